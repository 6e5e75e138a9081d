#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what the package costs, on a CUDA device with torch:

    PYTHONPATH=tools/python/src ATTN_SCORES_LIBRARY=build/src/libattn_scores.so.0 python tools/python/tests/measure.py

Host time is wall time of warm calls that are not waited for, in batches that the driver's queue takes. Device time is
that of a replayed CUDA graph of 20 calls, which walk through copies of the KV pool, by events; the C library's own
figure for the shape is that of `attn-scores bench`.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import attn_scores
from attn_scores import _torch, deep_gemm, ops
from torch_reference import Case


def host_time(call, batch=200, rounds=100):
    """Median and smallest microseconds of a call."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(batch):
            call()
        times.append((time.perf_counter_ns() - start) / batch / 1000)
    torch.cuda.synchronize()
    return statistics.median(times), min(times)


def line(title, times):
    print(f"{title:58} {times[0]:8.2f} us median {times[1]:8.2f} us least", flush=True)


def import_time():
    program = ("import time; start = time.perf_counter(); import attn_scores; there = time.perf_counter()\n"
               "attn_scores.fp8_paged_mqa_logits; print(there - start, time.perf_counter() - there)")
    times = []
    with tempfile.TemporaryDirectory() as folder:
        # Bytecode as pip leaves it, wherever the package is.
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        for _ in range(12):
            run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True)
            times.append([float(seconds) * 1e6 for seconds in run.stdout.split()])
    for title, values in zip(("import attn_scores", "  its first operation looked up"), zip(*times[1:])):
        line(f"{title}, without torch", (statistics.median(values), min(values)))


def measure_host():
    case = Case("fp8", batch=4, max_seq_len=512, block_size=64)
    q, kv, weights, tables, lens = tensors = case.tensors
    out = case.new_out(columns=512)
    large = case.new_out(rows=64, columns=4096)
    meta = attn_scores.compute_paged_mqa_logits_schedule(lens)
    fp8 = attn_scores.fp8_paged_mqa_logits
    line("fp8_paged_mqa_logits, out= of its shape",
         host_time(lambda: fp8(q, kv, weights, tables, lens, 512, out=out)))
    line("  with schedule_meta",
         host_time(lambda: fp8(q, kv, weights, tables, lens, 512, out=out, schedule_meta=meta)))
    line("  out= larger: a view is returned", host_time(lambda: fp8(q, kv, weights, tables, lens, 512, out=large)))
    line("  without out", host_time(lambda: fp8(q, kv, weights, tables, lens, 512)))
    line("  without out, with padding", host_time(lambda: fp8(q, kv, weights, tables, lens, 500)))
    fp8(*tensors, 512, out=out)
    frame, given = ops.fp8_call.idle[-1], (*tensors, out)
    line("  of it: the call into C", host_time(lambda: frame.invoke(*given)))
    none = [tensor[:0] for tensor in (q, weights, tables, lens, out)]
    line("  with B == 0, which launches nothing",
         host_time(lambda: fp8(none[0], kv, none[1], none[2], none[3], 512, out=none[4])))
    line("compute_paged_mqa_logits_schedule, out=",
         host_time(lambda: attn_scores.compute_paged_mqa_logits_schedule(lens, out=meta)))
    line("deep_gemm.fp8_paged_mqa_logits",
         host_time(lambda: deep_gemm.fp8_paged_mqa_logits(q, kv, weights, lens, tables, meta, 512)))
    try:
        from attn_scores import torch_ops
    except (ImportError, AttributeError):
        return
    line("torch_ops.fp8_paged_mqa_logits_out",
         host_time(lambda: torch_ops.fp8_paged_mqa_logits_out(q, kv, weights, tables, lens, 512, out)))
    a = torch.zeros(16, device="cuda")
    line("for comparison: torch.add of 16 numbers, out=", host_time(lambda: torch.add(a, a, out=a)))


def measure_device(batch, context, calls=20):
    block_size, heads, dim = 64, 64, 128
    columns = context // block_size
    copies = max(1, min(calls, -(-600_000_000 // (batch * context * (dim + 4)))))
    # Sums of random bytes that are never NaN; scales of one.
    kv = torch.randint(0, 0x7F, (copies, batch * columns, block_size * (dim + 4)), dtype=torch.uint8, device="cuda")
    kv[..., block_size * dim:] = torch.ones(block_size, device="cuda").view(torch.uint8)
    kv = kv.view(copies, -1, block_size, 1, dim + 4)
    q = torch.randint(0, 0x7F, (batch, 1, heads, dim), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    weights = torch.randn(batch, heads, device="cuda")
    tables = torch.randperm(batch * columns, device="cuda").view(batch, columns).int()
    lens = torch.full((batch,), context, dtype=torch.int32, device="cuda")
    out = torch.empty(batch, context, device="cuda")

    def all_calls():
        for number in range(calls):
            attn_scores.fp8_paged_mqa_logits(q, kv[number % copies], weights, tables, lens, context, out=out)

    all_calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_calls()
    times = []
    for _ in range(30):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / calls)
    line(f"device time, {batch} x {context}, next_n 1", (statistics.median(times), min(times)))


if __name__ == "__main__":
    print(f"torch {torch.__version__}, libattn_scores {attn_scores.library_version()}, "
          f"{'exchange table' if _torch.exchange else 'attributes'}, {torch.cuda.get_device_name()}")
    import_time()
    measure_host()
    for shape in ((1, 16384), (16, 4096), (64, 4096), (64, 16384)):
        measure_device(*shape)
