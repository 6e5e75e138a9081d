#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times DeepGEMM's FP8 paged MQA logits on the GPU present, for `attn-scores bench --rivals FILE`.

Needs Python 3.10, torch with CUDA, and DeepGEMM as the package deep_gemm (PyPI: sgl-deep-gemm, the version that was
built for the torch present). It is timed as `attn-scores bench` times its own calls (tools/bench.h): a CUDA graph of
calls that walk through copies of the KV pool which together exceed L2 four times, and 400 MB; the median over replays;
near-normal e4m3 values, weights uniform in [-1, 1), one random block table, float32 scores, blocks of 64 tokens.

Every shape makes one JSON object on a line of its own:

  library, device    names and version of what was measured, and of the GPU
  pdl                with programmatic dependent launch
  B, ctx, next_n     requests, KV tokens of a request, query slots of a request
  H, D, bkv          heads, head dim, tokens of a KV block
  jitter             lengths are uniform in 0.7 .. 1.3 of ctx instead of all equal
  us_both, us_main   device time of a call: schedule and logits kernels together; logits kernel alone
  gbps_both, gbps    each KV byte and scale once, queries, weights, scores, per us_both and us_main
  tflops             of the matrix product, per us_main
  host_us            wall time to enqueue one eager call of the logits kernel
"""
from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, TextIO

if TYPE_CHECKING:
    import torch

FAILED, NO_GPU = 1, 77  # exit codes, as those of attn-scores

HEAD_DIM, BLOCK_SIZE = 128, 64
TOKEN_BYTES = HEAD_DIM + 4  # values, float32 scale

# The deepgemm preset of attn-scores bench: (batch, seq_len).
PRESET = [(1, 4096), (1, 16384), (1, 131072), (4, 16384), (16, 4096), (16, 16384),
          (64, 4096), (64, 16384), (64, 65536), (128, 8192), (256, 8192), (256, 32768)]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    batch: int
    seq_len: int
    next_n: int
    num_heads: int
    jitter: bool

    @property
    def max_seq_len(self) -> int:
        return self.seq_len * 13 // 10 if self.jitter else self.seq_len


def near_normal(torch: Any, count: int) -> torch.Tensor:
    """e4m3 values up to 448: the sum of four uniform bytes, scaled."""
    total = torch.randint(0, 256, (4, count), dtype=torch.uint8, device="cuda").sum(0, dtype=torch.float32)
    return ((total - 510) * (448 / 510)).to(torch.float8_e4m3fn)


def random_pools(torch: Any, pools: int, blocks: int) -> torch.Tensor:
    """[pools, blocks, 64, 1, 132] bytes: in each block the values of its tokens, then the scales (2^-20 .. 2^-19)."""
    out = torch.empty(pools * blocks, BLOCK_SIZE * TOKEN_BYTES, dtype=torch.uint8, device="cuda")
    values = BLOCK_SIZE * HEAD_DIM
    for part in out.split(1 << 12):
        part[:, :values] = near_normal(torch, len(part) * values).view(torch.uint8).view(-1, values)
        scales = (1 + torch.rand(len(part), BLOCK_SIZE, device="cuda")) * 2.0**-20
        part[:, values:] = scales.view(torch.uint8)
    return out.view(pools, blocks, BLOCK_SIZE, 1, TOKEN_BYTES)


class Problem:
    """The inputs of a shape, and DeepGEMM's calls on them."""

    def __init__(self, torch: Any, deep_gemm: Any, shape: Shape) -> None:
        self.torch, self.deep_gemm, self.shape = torch, deep_gemm, shape
        # By its older name where there is one: a release has the newer beside it and takes FP8 through the older alone.
        self.logits = getattr(deep_gemm, "fp8_paged_mqa_logits", None) or deep_gemm.fp8_fp4_paged_mqa_logits
        self.num_sms: int = deep_gemm.get_num_sms()

        batch, next_n, heads = shape.batch, shape.next_n, shape.num_heads
        width = -(-shape.max_seq_len // BLOCK_SIZE)
        blocks = batch * width
        wanted = max(4 * torch.cuda.get_device_properties(0).L2_cache_size, 400_000_000)
        self.pools = random_pools(torch, min(-(-wanted // (blocks * BLOCK_SIZE * TOKEN_BYTES)), 8192), blocks).unbind()
        self.q = near_normal(torch, batch * next_n * heads * HEAD_DIM).view(batch, next_n, heads, HEAD_DIM)
        self.weights = torch.rand(batch * next_n, heads, device="cuda") * 2 - 1
        self.table = torch.randperm(blocks, dtype=torch.int32, device="cuda").view(batch, width)
        lengths = torch.full((batch, 1), shape.seq_len, dtype=torch.int32, device="cuda")
        if shape.jitter:
            lengths = torch.randint(shape.seq_len * 7 // 10, shape.max_seq_len + 1, (batch, 1), device="cuda").int()
        # What each slot sees: the last one all tokens, every one before it a token less.
        self.lengths = (lengths - torch.arange(next_n - 1, -1, -1, dtype=torch.int32, device="cuda")).contiguous()
        self.tokens = int(lengths.sum())
        self.schedule = self.make_schedule()

    def make_schedule(self) -> torch.Tensor:
        return self.deep_gemm.get_paged_mqa_logits_metadata(self.lengths, BLOCK_SIZE, self.num_sms)

    def call(self, i: int, schedule: torch.Tensor) -> torch.Tensor:
        pool = self.pools[i % len(self.pools)]
        return self.logits(self.q, pool, self.weights, self.lengths, self.table, schedule, self.shape.max_seq_len)

    def both(self, i: int) -> None:
        self.call(i, self.make_schedule())

    def main(self, i: int) -> None:
        self.call(i, self.schedule)

    def check(self) -> None:
        """A figure of wrong scores is worth nothing: compares the first slot's first tokens."""
        torch = self.torch
        count = min(int(self.lengths[0, 0]), 4096)
        got = self.call(0, self.schedule)[0, :count].float()
        rows = self.pools[0].view(-1, BLOCK_SIZE * TOKEN_BYTES)[self.table[0, : -(-count // BLOCK_SIZE)].long()]
        values = rows[:, : BLOCK_SIZE * HEAD_DIM].contiguous().view(torch.float8_e4m3fn).float().view(-1, HEAD_DIM)
        scales = rows[:, BLOCK_SIZE * HEAD_DIM :].contiguous().view(torch.float32).flatten()
        heads = (values @ self.q[0, 0].float().T).relu() * self.weights[0]
        expected = (heads.sum(1) * scales)[:count]
        error = float((got - expected).abs().max() / expected.abs().max())
        if not error < 1e-2:  # FP8 tensor cores round at about 1e-4; a wrong layout is off by about 1
            raise RuntimeError(f"its scores are wrong: off by {error:.3g} of the largest")


def replay_us(torch: Any, calls: int, replays: int, enqueue: Callable[[int], None]) -> float:
    """Median device time of a call within replays of a graph of `calls` of them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            enqueue(i)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay() -> float:
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e3 / calls

    # The first replay uploads the graph, and the clocks need some milliseconds of load to settle.
    warm_until = time.monotonic() + 0.015
    replay()
    replay()
    while time.monotonic() < warm_until:
        replay()
    return statistics.median(replay() for _ in range(replays))


def eager_us(torch: Any, enqueue: Callable[[int], None], device_us: float) -> float:
    """Wall time to enqueue a warm call, in batches that do not fill the driver's queue."""
    calls, times = 200, []
    for _ in range(max(3, min(11, int(1e5 / (calls * device_us))))):
        begin = time.perf_counter()
        for i in range(calls):
            enqueue(i)
        times.append((time.perf_counter() - begin) * 1e6 / calls)
        torch.cuda.synchronize()
    return statistics.median(times)


def measure(torch: Any, deep_gemm: Any, shape: Shape, replays: int) -> dict[str, Any]:
    problem = Problem(torch, deep_gemm, shape)
    problem.check()  # compiles the kernels too, which a capture would refuse
    queries = shape.batch * shape.next_n * shape.num_heads
    moved = problem.tokens * (TOKEN_BYTES + 4 * shape.next_n) + queries * (HEAD_DIM + 4)
    walk = len(problem.pools)
    calls = walk * (int(2000 / ((3 + moved / 4e6) * walk)) + 1)  # two milliseconds of whole walks
    calls = max(calls, walk * -(-8 // walk))
    both = replay_us(torch, calls, replays, problem.both)
    main = replay_us(torch, calls, replays, problem.main)
    flops = 2 * problem.tokens * shape.next_n * shape.num_heads * HEAD_DIM
    return {
        "B": shape.batch, "ctx": shape.seq_len, "next_n": shape.next_n, "H": shape.num_heads, "D": HEAD_DIM,
        "bkv": BLOCK_SIZE, "jitter": shape.jitter, "us_main": round(main, 3), "us_both": round(both, 3),
        "gbps": round(moved / main * 1e-3, 1), "gbps_both": round(moved / both * 1e-3, 1),
        "host_us": round(eager_us(torch, problem.main, main), 2), "tflops": round(flops / main * 1e-6, 1),
    }  # fmt: skip


# ---- The command -----------------------------------------------------------------------------------------------------


def integers(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def parse_arguments() -> argparse.Namespace:
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text, allow_abbrev=False)
    add = parser.add_argument
    add("output", metavar="FILE", help="where the lines go; '-' for the standard output")
    add("--batch", type=integers, metavar="LIST",
        help="requests; with --seq-len: the product of both lists, instead of the deepgemm preset's twelve pairs")
    add("--seq-len", type=integers, metavar="LIST", help="KV tokens of a request")
    add("--next-n", type=integers, default=[1, 2], metavar="LIST", help="query slots (default: 1,2)")
    add("--num-heads", type=integers, default=[64], metavar="LIST", help="query heads (default: 64)")
    add("--jitter", action="store_true", help="lengths uniform in 0.7 .. 1.3 of seq-len")
    add("--pdl", action="store_true", help="programmatic dependent launch")
    add("--replays", type=int, default=11, help="graph replays of which the median counts (default: 11)")
    add("--seed", type=int, default=1, help="of inputs, lengths and block tables (default: 1)")
    add("--time-limit", type=float, default=120, metavar="SECONDS",
        help="no shape is started after this time (default: 120)")  # fmt: skip
    arguments = parser.parse_args()
    if (arguments.batch is None) != (arguments.seq_len is None):
        parser.error("--batch and --seq-len are accepted together only")
    if arguments.replays < 1:
        parser.error(f"--replays: {arguments.replays} given, at least 1 is accepted")
    return arguments


def shapes_of(arguments: argparse.Namespace) -> list[Shape]:
    pairs = PRESET
    if arguments.batch is not None:
        pairs = [(batch, seq_len) for batch in arguments.batch for seq_len in arguments.seq_len]
    return [
        Shape(batch, seq_len, next_n, heads, arguments.jitter)
        for heads in arguments.num_heads
        for next_n in arguments.next_n
        for batch, seq_len in pairs
    ]


def say(text: str) -> None:
    print(f"rival_deep_gemm: {text}", file=sys.stderr, flush=True)


def brief(error: Exception) -> str:
    """torch's messages go on with a stack."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def load() -> tuple[Any, Any]:
    """torch and deep_gemm; ends the program with a message where something is missing."""
    try:
        import torch
    except ImportError as error:
        say(f"torch is needed and could not be imported: {error}")
        sys.exit(FAILED)
    if not torch.cuda.is_available():
        say(f"torch {torch.__version__} finds no NVIDIA GPU here")
        sys.exit(NO_GPU)
    try:
        import deep_gemm
    except Exception as error:  # a build for another torch or CUDA fails in many ways
        say(f"DeepGEMM could not be imported: {brief(error)}")
        say(f"it is the package deep_gemm (PyPI: sgl-deep-gemm), in a version built for torch {torch.__version__}")
        sys.exit(FAILED)
    return torch, deep_gemm


def name_of(deep_gemm: Any) -> str:
    packages = importlib.metadata.packages_distributions().get("deep_gemm", [])
    if packages:
        return f"{packages[0]} {importlib.metadata.version(packages[0])}"
    return f"deep_gemm {getattr(deep_gemm, '__version__', 'of unknown version')}"


def run(output: TextIO, arguments: argparse.Namespace, torch: Any, deep_gemm: Any) -> int:
    begin = time.monotonic()
    deep_gemm.set_pdl(arguments.pdl)
    library, device = name_of(deep_gemm), torch.cuda.get_device_name(0)
    shapes, missing = shapes_of(arguments), 0
    say(f"{library} on {device}, torch {torch.__version__}, {len(shapes)} shapes")
    for i, shape in enumerate(shapes):
        if time.monotonic() - begin > arguments.time_limit:
            say(f"{len(shapes) - i} shapes left out: {arguments.time_limit:g} s are over (--time-limit)")
            missing += len(shapes) - i
            break
        torch.manual_seed(arguments.seed)
        try:
            row = measure(torch, deep_gemm, shape, arguments.replays)
        except Exception as error:  # one shape that fails leaves the others
            say(f"{shape} failed: {brief(error)}")
            missing += 1
            continue
        print(json.dumps({"library": library, "device": device, "pdl": arguments.pdl} | row), file=output, flush=True)
        say(f"{i + 1}/{len(shapes)}  B {shape.batch} x {shape.seq_len}, next_n {shape.next_n}: {row['us_both']} us, "
            f"{time.monotonic() - begin:.1f} s in all")  # fmt: skip
    return FAILED if missing else 0


def main() -> int:
    arguments = parse_arguments()
    torch, deep_gemm = load()
    if arguments.output == "-":
        return run(sys.stdout, arguments, torch, deep_gemm)
    with open(arguments.output, "w", encoding="utf-8") as output:
        return run(output, arguments, torch, deep_gemm)


if __name__ == "__main__":
    sys.exit(main())
