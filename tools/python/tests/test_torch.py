# SPDX-License-Identifier: MIT
"""With torch, under pytest. Tests of values need a CUDA device with kernels; the others run everywhere.

    export PYTHONPATH=tools/python/src ATTN_SCORES_LIBRARY=build/src/libattn_scores.so.0
    pytest -q tools/python/tests/test_torch.py
"""
import ctypes
import sys
import threading

try:
    import pytest

    torch = pytest.importorskip("torch", reason="torch is not installed")
except BaseException as error:
    if __name__ != "__main__":
        raise
    print(f"skipped: {error}")
    sys.exit(77)

import attn_scores  # noqa: E402
from attn_scores import _abi, _torch, deep_gemm  # noqa: E402
from torch_reference import Case, decode_fp4  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


def supported(case):
    """Skips where the device has no kernel for the operation at all."""
    try:
        case.call()
    except attn_scores.UnsupportedError as error:
        if "there is no kernel for" not in str(error):
            raise
        pytest.skip(str(error))
    return case


# ---- Values ----------------------------------------------------------------------------------------------------------

F16, BF16 = torch.float16, torch.bfloat16


@needs_gpu
@pytest.mark.parametrize("options", [
    *({"next_n": n} for n in range(1, 9)),
    *({"block_size": size, "next_n": 2} for size in (16, 32, 128, 256)),
    *({"head_dim": dim} for dim in (32, 64)),
    *({"heads": heads} for heads in (8, 24, 32, 128)),
    {"output_dtype": F16}, {"output_dtype": BF16}, {"acc_dtype": F16}, {"epi_dtype": F16},
    {"acc_dtype": F16, "epi_dtype": F16, "output_dtype": F16, "next_n": 2},
    {"per_slot": True, "next_n": 3}, {"lens": [0, 1, 500]}, {"batch": 40, "max_seq_len": 130, "heads": 16},
], ids=str)
def test_fp8_values(options):
    case = Case("fp8", **options)
    out = case.new_out()
    case.call(out=out)
    case.check(out)


@needs_gpu
@pytest.mark.parametrize("options", [
    *({"next_n": n} for n in (1, 2, 4, 8)), *({"block_size": size} for size in (16, 32, 128)), {"head_dim": 64},
    {"heads": 32}, {"output_dtype": torch.float32}, {"output_dtype": F16}, {"per_slot": True, "next_n": 2},
], ids=str)
def test_fp4_values(options):
    case = supported(Case("fp4", **options))
    out = case.new_out()
    case.call(out=out)
    case.check(out)


@needs_gpu
def test_fp4_other_inputs():
    """Interleaved scales, and torch's dtype for two values in a byte, give the same bits."""
    case = supported(Case("fp4", block_size=128))
    expected = case.call(clean_logits=True)
    if hasattr(torch, "float4_e2m1fn_x2"):
        case.q = case.q.view(torch.float4_e2m1fn_x2)
        assert torch.equal(case.call(clean_logits=True), expected)
    slots = torch.arange(128, device="cuda")
    blocks = case.kv.flatten(1)
    scales = blocks[:, 128 * 64:].view(-1, 128, 4)[:, slots % 4 * 32 + slots // 4]
    case.kv = torch.cat([blocks[:, :128 * 64], scales.flatten(1)], 1).view(case.kv.shape)
    assert torch.equal(case.call(clean_logits=True, is_kv_sf_interleaved=True), expected)


@needs_gpu
@pytest.mark.parametrize("variant", ["fp8", "fp4"])
def test_what_is_returned(variant):
    """Without out, with one of that shape, with a larger one; views of it; uint8 for the values; clean; a schedule."""
    case = supported(Case(variant, next_n=2))
    shape = (case.rows, case.max_seq_len)
    fresh = case.call(clean_logits=True)
    assert fresh.shape == shape and fresh.stride() == (512, 1) and fresh.dtype is case.output_dtype
    exact = case.new_out(columns=case.max_seq_len)
    assert case.call(out=exact) is exact
    case.check(exact)
    large = case.new_out(rows=case.rows + 3, columns=700)
    view = case.call(out=large)
    assert view.shape == shape and view.stride() == (700, 1) and view.data_ptr() == large.data_ptr()
    case.check(large)
    slice_of = case.new_out(columns=900)
    inner = slice_of[:, 100:]
    view = case.call(out=inner)
    assert view.data_ptr() == inner.data_ptr() and view.shape == shape
    assert slice_of[:, :100].isnan().all()
    case.check(inner)
    clean = case.new_out()
    case.call(out=clean, clean_logits=True, enable_pdl=True)
    case.check(clean, clean=True)
    assert torch.equal(clean[:, :case.max_seq_len], fresh)

    schedule = attn_scores.compute_paged_mqa_logits_schedule(case.lens, next_n=2, variant=variant)
    assert schedule.shape == (torch.cuda.get_device_properties(0).multi_processor_count + 1, 2)
    for meta in (schedule, attn_scores.compute_paged_mqa_logits_schedule(case.lens, num_sms=7)):
        scheduled = case.new_out()
        case.call(out=scheduled, schedule_meta=meta, clean_logits=True)
        assert torch.equal(scheduled[:, :case.max_seq_len], fresh)

    as_bytes = case.q.view(torch.uint8)
    case.q = as_bytes
    again = case.new_out()
    case.call(out=again, clean_logits=True)
    assert torch.equal(again[:, :case.max_seq_len], fresh)


@needs_gpu
def test_schedules_agree():
    lens = torch.randint(0, 5000, (77, 2), dtype=torch.int32, device="cuda")
    schedule = attn_scores.compute_paged_mqa_logits_schedule
    on_gpu = schedule(lens)
    for other in (schedule(lens, use_gpu_kernel=False), schedule(lens.cpu()), schedule(lens.cpu(), device="cuda:0"),
                  schedule(lens.t().contiguous().t()), schedule(lens, out=torch.empty_like(on_gpu))):
        assert other.is_cuda and torch.equal(on_gpu, other)
    assert torch.equal(schedule(lens.cpu(), device="cpu", num_sms=len(on_gpu) - 1), on_gpu.cpu())


def indexer_inputs(nvfp4, groups=5, per_group=3, max_context=300):
    rows, pages = groups * per_group, 40
    requests = torch.randint(0, 4, (groups,), dtype=torch.int32, device="cuda")
    lengths = torch.randint(1, max_context + 1, (groups,), dtype=torch.int32, device="cuda")
    lengths[1], requests[1] = 0, 12345
    table = torch.randperm(pages, device="cuda")[:4 * 5].view(4, 5).int()
    scores = torch.full((rows, max_context), float("nan"), device="cuda")
    if nvfp4:
        query, keys = (torch.randint(0, 256, (*shape, 64), dtype=torch.uint8, device="cuda")
                       for shape in ((rows,), (pages, 64)))
        query_scales, key_scales = (torch.randint(0x20, 0x60, (*shape, 8), dtype=torch.uint8, device="cuda")
                                    .view(torch.float8_e4m3fn) for shape in ((rows,), (pages, 64)))
        decoded = [decode_fp4(values) * scales.double().repeat_interleave(16, -1)
                   for values, scales in ((query, query_scales), (keys, key_scales))]
        options = {"query_scales": query_scales, "key_scales": key_scales}
    else:
        query, keys = (torch.randn(shape, device="cuda").bfloat16() for shape in ((rows, 128), (pages, 64, 128)))
        decoded, options = [query.double(), keys.double()], {}
    arguments = {"query": query, "key_cache": keys, "block_table": table, "context_lengths": lengths,
                 "requests": requests, "scores": scores, **options}
    return arguments, decoded, per_group


def check_indexer(arguments, decoded, per_group):
    scores, lengths = arguments["scores"], arguments["context_lengths"]
    query, keys = decoded
    for row in range(len(query)):
        group = row // per_group
        length = int(lengths[group])
        assert scores[row, length:].isnan().all()
        if not length:
            continue
        positions = torch.arange(length, device="cuda")
        pages = arguments["block_table"][int(arguments["requests"][group])].long()
        k = keys[pages[positions // 64], positions % 64]
        expected, sums = k @ query[row], k.abs() @ query[row].abs()
        # float32 sums of 128 products, in any order, of tensor cores that cut terms at 2^-23 of the largest
        assert ((scores[row, :length].double() - expected).abs() <= 144 * 2.0**-23 * sums).all()


@needs_gpu
@pytest.mark.parametrize("nvfp4", [False, True], ids=["bf16", "nvfp4"])
def test_indexer_values(nvfp4):
    arguments, decoded, per_group = indexer_inputs(nvfp4)
    assert attn_scores.indexer_scores(**arguments) is None
    check_indexer(arguments, decoded, per_group)


# ---- DeepGEMM's shape ------------------------------------------------------------------------------------------------


@needs_gpu
def test_deep_gemm():
    case = Case("fp8", next_n=2, per_slot=True)
    q, kv, weights, tables, lens = case.tensors
    meta = deep_gemm.get_paged_mqa_logits_metadata(lens, 64, deep_gemm.get_num_sms())
    arguments = (kv, weights, lens, tables, meta, case.max_seq_len)
    expected = case.call(clean_logits=True)
    for got in (deep_gemm.fp8_paged_mqa_logits(q, *arguments, True),
                deep_gemm.fp8_paged_mqa_logits(q=q, kv_cache=kv, weights=weights, context_lens=lens, block_table=tables,
                                               schedule_meta=None, max_context_len=case.max_seq_len, clean_logits=True),
                deep_gemm.fp8_fp4_paged_mqa_logits((q, None), *arguments, clean_logits=True)):
        assert got.shape == expected.shape and got.stride(0) * 4 % 1024 == 0
        assert torch.equal(got, expected)
    half = deep_gemm.fp8_fp4_paged_mqa_logits((q, None), *arguments, logits_dtype=torch.bfloat16, clean_logits=True)
    assert half.dtype is torch.bfloat16 and half.stride(0) * 2 % 1024 == 0
    assert torch.equal(half, expected.bfloat16())

    # A row for each token, as callers of ragged batches make them, gives the same bits.
    ids = torch.arange(len(lens), dtype=torch.int32, device="cuda").repeat_interleave(2)
    flat = (q.flatten(0, 1).unsqueeze(1), kv, weights, lens.view(-1, 1), tables.repeat_interleave(2, 0))
    meta = deep_gemm.get_paged_mqa_logits_metadata(flat[3], 64, 132, indices=ids)
    got = deep_gemm.fp8_paged_mqa_logits(*flat, meta, case.max_seq_len, clean_logits=True, indices=ids)
    assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="^indices: given with next_n 2"):
        deep_gemm.fp8_paged_mqa_logits(q, *arguments, indices=ids)
    with pytest.raises(ValueError, match="^indices: is torch.int64"):
        deep_gemm.get_paged_mqa_logits_metadata(flat[3], 64, 132, indices=ids.long())
    with pytest.raises(ValueError, match="^q: is float8_e4m3fn with scales"):
        deep_gemm.fp8_fp4_paged_mqa_logits((q, q), *arguments)


@needs_gpu
def test_deep_gemm_fp4():
    case = supported(Case("fp4"))
    q, q_sf, kv, weights, tables, lens = case.tensors
    got = deep_gemm.fp8_fp4_paged_mqa_logits((q.view(torch.int8), q_sf), kv, weights, lens, tables, None,
                                             case.max_seq_len, clean_logits=True, logits_dtype=torch.bfloat16)
    assert torch.equal(got, case.call(clean_logits=True))


# ---- Errors ----------------------------------------------------------------------------------------------------------


def test_wrong_arguments():
    """Found before any device is touched, so that CPU tensors do; the message names the argument."""
    case = Case("fp8", device="cpu")
    names = ("q", "kv_fused", "weights", "block_tables", "seq_lens")
    right = {**dict(zip(names, case.tensors)), "max_seq_len": 500}
    for change, error, pattern in (
            ({}, ValueError, "^q: .*cpu"),
            ({"q": case.q[0]}, ValueError, "^q: rank is 3, accepted: 4"),
            ({"q": case.q.view(torch.uint8).view(torch.float8_e5m2)}, ValueError, "^q: .*float8_e5m2|^q: .*cpu"),
            ({"weights": "weights"}, TypeError, "^weights: is of type str, accepted"),
            ({"weights": None}, TypeError, "^weights: is of type NoneType, accepted"),
            ({"weights": torch.eye(3).to_sparse()}, ValueError, "^weights: cannot be read in place"),
            ({"seq_lens": case.lens.tolist()}, TypeError, "^seq_lens: is of type list"),
            ({"out": case.new_out().half()}, ValueError, "^out: dtype is torch.float16, accepted: torch.float32"),
            ({"output_dtype": torch.float64}, ValueError, "^output_dtype: is torch.float64, accepted: float32"),
            ({"acc_dtype": torch.bfloat16}, ValueError, "^(acc_dtype: is bf16|q: .*cpu)"),
            ({"max_seq_len": -1}, ValueError, "^max_seq_len: is -1"),
            ({"max_seq_len": 1.5}, TypeError, "^max_seq_len: is 1.5")):
        with pytest.raises(error, match=pattern):
            attn_scores.fp8_paged_mqa_logits(**{**right, **change})
    with pytest.raises(TypeError):
        attn_scores.fp8_paged_mqa_logits(*case.tensors, 500, torch.float32)  # keyword-only
    with pytest.raises(ValueError, match="^num_sms: is None"):
        attn_scores.compute_paged_mqa_logits_schedule(case.lens, device="cpu")


@needs_gpu
def test_wrong_arguments_on_the_device():
    case = Case("fp8")
    q, kv, weights, tables, lens = case.tensors
    out = case.new_out()
    for change, pattern in (
            ({"q": q.view(torch.uint8).view(torch.float8_e5m2)}, "^q: dtype is float8_e5m2, accepted: float8_e4m3fn"),
            ({"q": q[..., :96]}, r"^q: head_dim \(shape\[3\]\) is 96, accepted: 32, 64 or 128"),
            ({"kv_fused": kv[..., :131]}, r"^kv_fused: shape\[3\] is 131, accepted: 132"),
            ({"kv_fused": kv.cpu()}, "^kv_fused: .*cpu"),
            ({"weights": weights.half()}, "^weights: dtype is float16, accepted: float32"),
            ({"weights": weights.t().contiguous().t()}, r"^weights: stride\[1\]"),
            ({"block_tables": tables.long()}, "^block_tables: dtype is int64, accepted: int32"),
            ({"seq_lens": lens[:2]}, r"^seq_lens: shape\[0\] is 2, accepted: 3"),
            ({"schedule_meta": lens}, "^schedule_meta: rank is 1, accepted: 2"),
            ({"out": out[:2]}, r"^out: shape\[0\] is 2, accepted: 3"),
            ({"out": out[:, :400]}, r"^out: shape\[1\] is 400, accepted: 500"),
            ({"out": out[:1].expand(3, -1)}, r"^out: stride\[0\] is 0"),
            ({"out": out.cpu()}, "^out: .*cpu"),
            ({"out": out[0]}, "^out: rank is 1, accepted: 2"),
            ({"acc_dtype": torch.bfloat16}, "^acc_dtype: is bf16, accepted")):
        arguments = {"q": q, "kv_fused": kv, "weights": weights, "block_tables": tables, "seq_lens": lens,
                     "max_seq_len": 500, "out": out, **change}
        with pytest.raises(ValueError, match=pattern):
            attn_scores.fp8_paged_mqa_logits(**arguments)
    assert out.isnan().all()
    case.call(out=out)  # nothing is left over from the errors
    case.check(out)


@needs_gpu
def test_what_was_remembered_of_the_call_before():
    """An out of the same shape that fitted then and does not now, options that are equal and not the same."""
    case, small = Case("fp8", batch=4), Case("fp8", batch=2)
    out = case.new_out(columns=500)
    assert case.call(out=out) is out
    out.fill_(float("nan"))
    view = small.call(out=out)
    assert view.shape == (2, 500) and view.data_ptr() == out.data_ptr()
    small.check(out)
    with pytest.raises(ValueError, match=r"^out: shape\[0\] is 2, accepted: 4"):
        case.call(out=out[:2])
    wide = case.new_out(rows=2, columns=700)
    with pytest.raises(ValueError, match=r"^out: shape\[0\] is 2, accepted: 4"):
        case.call(out=wide)
    assert small.call(out=wide).shape == (2, 500)
    small.check(wide)
    for wrong in (500.0, "500", None):
        case.max_seq_len = wrong
        with pytest.raises(TypeError, match="^max_seq_len: is"):
            case.call(out=out)
    case.max_seq_len = 500
    with pytest.raises(ValueError, match="^out: dtype is torch.float16, accepted: torch.float32"):
        case.call(out=out.half())
    for dtype in (torch.float32, "float32", torch.float16, "float16", torch.float32):
        got = case.call(out=None, output_dtype=dtype)
        assert str(got.dtype).endswith(str(dtype).rpartition(".")[2])
    out.fill_(float("nan"))
    case.call(out=out)
    case.check(out)


@needs_gpu
def test_no_gradient_graph_and_subclasses():
    case = Case("fp8")
    expected = case.call(clean_logits=True)
    case.weights = torch.nn.Parameter(case.weights)
    assert torch.equal(case.call(clean_logits=True), expected)
    case.weights = case.weights.detach().requires_grad_()
    assert torch.equal(case.call(clean_logits=True), expected)


def test_slots_agree():
    """What torch's C function says of a tensor, and what the attributes say."""
    if _torch.exchange is None:
        pytest.skip("this torch has no DLPack exchange table")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = torch.zeros(4, 6, 8, device=device)
    dtypes = (torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.int8,
              torch.float8_e4m3fn, torch.float8_e5m2)
    tensors = [base, base[1:, ::2], base[0, 0, 0], base[:0], *(base.to(dtype) for dtype in dtypes)]
    slot = _torch.Slot()
    for tensor in tensors:
        exchanged = _abi.DLTensor()
        _torch.describe(tensor, exchanged)
        _torch.fill_slot(tensor, slot)
        described = []
        for each in (exchanged, slot.tensor):
            shape, strides = each.shape[:each.ndim], each.strides[:each.ndim]
            described.append(((each.data or 0) + each.byte_offset, each.ndim, shape,
                              [s for n, s in zip(shape, strides) if n > 1],
                              (each.dtype.code, each.dtype.bits, each.dtype.lanes),
                              (each.device.device_type, each.device.device_id)))
        assert described[0] == described[1], tensor.dtype


@needs_gpu
def test_older_torch(monkeypatch):
    """The path of a torch without the exchange table."""
    case = Case("fp8", next_n=2)
    expected = case.call(clean_logits=True)
    monkeypatch.setattr(_torch, "exchange", None)
    monkeypatch.setattr(attn_scores.ops.fp8_call, "idle", [])
    for _ in range(3):
        assert torch.equal(case.call(clean_logits=True), expected)
    case.q, case.weights = case.q[:1], case.weights[:2]
    case.tables, case.lens, case.rows = case.tables[:1], case.lens[:1], 2
    assert torch.equal(case.call(clean_logits=True), expected[:2])


# ---- Streams, graphs, threads, contexts ------------------------------------------------------------------------------


@needs_gpu
def test_current_stream():
    """The call waits for what torch has queued before it on a side stream, and other work of torch for the call."""
    case = Case("fp8")
    expected = case.call(clean_logits=True)
    torch.cuda.synchronize()
    stream, late = torch.cuda.Stream(), torch.zeros_like(case.weights)
    right, case.weights = case.weights, late
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(right)
        got = case.call(clean_logits=True).clone()
    stream.synchronize()
    assert torch.equal(got, expected)
    given = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # a stream that is given wins
        out = case.new_out()
        stream.synchronize()
        case.call(clean_logits=True, out=out, stream=given.cuda_stream)
    given.synchronize()
    assert torch.equal(out[:, :case.max_seq_len], expected)


@needs_gpu
def test_graph_follows_its_inputs():
    case = Case("fp8", next_n=2, lens=[10, 20, 30])
    meta = attn_scores.compute_paged_mqa_logits_schedule(case.lens)
    out, scheduled = case.new_out(), case.new_out()
    case.call(out=out, schedule_meta=None)
    case.call(out=scheduled, schedule_meta=meta)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.call(out=out)
        attn_scores.compute_paged_mqa_logits_schedule(case.lens, out=meta)
        case.call(out=scheduled, schedule_meta=meta)
    for lens in ([500, 1, 0], [2, 499, 64]):
        case.lens.copy_(torch.tensor(lens, dtype=torch.int32))
        out.fill_(float("nan"))
        scheduled.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        case.check(out)
        case.check(scheduled)


@needs_gpu
def test_capture_without_a_kernel_stays_valid():
    case = Case("fp8", heads=40)
    ready = Case("fp8")
    ready.call()
    with attn_scores.Context(cache_dir="", cache_readonly_dirs="") as context:
        graph, out = torch.cuda.CUDAGraph(), ready.new_out()
        with torch.cuda.graph(graph):
            with pytest.raises(attn_scores.WouldCompileError, match="precompile"):
                case.call(context=context)
            ready.call(out=out)
        graph.replay()
        torch.cuda.synchronize()
        ready.check(out)
        assert context.counters().compiles == 0


@needs_gpu
def test_threads_and_contexts():
    """Eight threads, each with its own stream and shape, half of them through a context of their own."""
    cases = [Case("fp8", next_n=1 + n % 4, seed=n, batch=1 + n % 3) for n in range(8)]
    expected = [case.call(clean_logits=True) for case in cases]
    torch.cuda.synchronize()
    failures, barrier = [], threading.Barrier(len(cases))

    def work(number):
        try:
            case, stream = cases[number], torch.cuda.Stream()
            context = attn_scores.Context() if number % 2 else None
            barrier.wait()
            with torch.cuda.stream(stream):
                for _ in range(200):
                    got = case.call(clean_logits=True, context=context)
                same = torch.equal(got, expected[number])
            stream.synchronize()
            if context is not None:
                assert context.counters().memory_hits >= 199
                context.close()
            assert same, number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(attn_scores.ops.fp8_call.idle) <= 2 * len(cases)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices")
def test_second_device():
    """Tensors of a device that is not the current one, on its default stream and on another."""
    with torch.cuda.device(0):
        case = Case("fp8", device="cuda:1")
        out = case.new_out()
        case.call(out=out)
        assert torch.cuda.current_device() == 0
        stream = torch.cuda.Stream("cuda:1")
        stream.wait_stream(torch.cuda.current_stream("cuda:1"))
        with torch.cuda.stream(stream):
            other = case.new_out()
            case.call(out=other)
        torch.cuda.synchronize("cuda:1")
        case.check(out)
        case.check(other)
        with pytest.raises(ValueError, match="^weights: .*cuda:0"):
            case.weights = case.weights.to("cuda:0")
            case.call(out=out)


# ---- Operators -------------------------------------------------------------------------------------------------------


def operators():
    from attn_scores import torch_ops

    return torch_ops


def test_fake_operators():
    from torch._subclasses.fake_tensor import FakeTensorMode

    ops = operators()
    with FakeTensorMode():
        q = torch.empty(3, 2, 64, 128, dtype=torch.float8_e4m3fn, device="cuda")
        other = torch.empty(1, device="cuda")
        logits = ops.fp8_paged_mqa_logits(q, other, other, other, other, 300, output_dtype=F16)
        assert (logits.shape, logits.stride(), logits.dtype) == ((6, 300), (512, 1), F16)
        assert logits.device.type == "cuda"
        logits = ops.fp4_paged_mqa_logits(q.view(torch.uint8), other, other, other, other, other, 256)
        assert (logits.shape, logits.stride(), logits.dtype) == ((6, 256), (256, 1), BF16)
        assert ops.compute_paged_mqa_logits_schedule(other, 132).shape == (133, 2)
        assert ops.indexer_scores(other, other, other, other, other, other) is None


@needs_gpu
def test_operators_pass_torchs_checks():
    operators()
    opcheck, registered = torch.library.opcheck, torch.ops.attn_scores
    case = Case("fp8", next_n=2)
    case.q = case.q.view(torch.uint8)  # opcheck compares arguments, which float8 tensors do not do
    out = case.new_out(columns=500)
    # Without clean_logits two calls differ in what they do not write.
    opcheck(registered.fp8_paged_mqa_logits.default, (*case.tensors, 500), {"clean_logits": True})
    opcheck(registered.fp8_paged_mqa_logits_out.default, (*case.tensors, 500, out), {"clean_logits": True})
    opcheck(registered.compute_paged_mqa_logits_schedule.default, (case.lens, 132))
    arguments, _, _ = indexer_inputs(False)
    arguments["scores"].zero_()
    opcheck(registered.indexer_scores.default, tuple(arguments.values()))
    fp4 = supported(Case("fp4"))
    opcheck(registered.fp4_paged_mqa_logits.default, (*fp4.tensors, 500), {"clean_logits": True})
    out = fp4.new_out(columns=500)
    opcheck(registered.fp4_paged_mqa_logits_out.default, (*fp4.tensors, 500, out), {"clean_logits": True})


def step(q, kv, weights, tables, lens, max_seq_len, ops):
    """A piece of a decode step around the operator: both sides are torch's to fuse."""
    schedule = ops.compute_paged_mqa_logits_schedule(lens, 132)
    logits = ops.fp8_paged_mqa_logits(q, kv, weights * 2, tables, lens, max_seq_len, schedule_meta=schedule,
                                      clean_logits=True)
    return torch.topk(logits + 1, 16, dim=-1)


@needs_gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])  # the latter captures CUDA graphs
def test_compile(mode):
    ops = operators()
    compiled = torch.compile(step, fullgraph=True, mode=mode)
    for seed in range(4):
        case = Case("fp8", seed=seed, lens=[100 + seed, 500, 333])
        arguments = (*case.tensors, case.max_seq_len, ops)
        for _ in range(3):
            values, indices = compiled(*arguments)
        expected_values, expected_indices = step(*arguments)
        assert torch.equal(values, expected_values)
        assert torch.equal(indices, expected_indices)


@needs_gpu
def test_compile_out_and_dynamic_shapes():
    ops = operators()

    def into(out, lens, case):
        ops.fp8_paged_mqa_logits_out(case[0], case[1], case[2], case[3], lens + 0, out.shape[1], out, clean_logits=True)
        return out * 2

    compiled = torch.compile(into, fullgraph=True, dynamic=True)
    for batch, max_seq_len in ((3, 500), (5, 700), (2, 130)):
        case = Case("fp8", batch=batch, max_seq_len=max_seq_len)
        out = case.new_out(columns=max_seq_len)
        doubled = compiled(out, case.lens, case.tensors[:4])
        case.check(out, clean=True)
        assert torch.equal(doubled, out * 2)


def test_struct_size():
    assert ctypes.sizeof(_abi.DLTensor) == 48


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", __file__]))
