# SPDX-License-Identifier: MIT
"""Every operation through DLPack on the software GPU, against float64; what is wrong is refused with the argument's
name.

Random inputs come from the seed that is printed; ATTNS_TEST_SEED repeats a run."""
import functools
import os
import random
import sys
import threading
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: numpy, which the references are computed with, is not installed (tools/run-tests.sh installs it)")
    sys.exit(77)
import reference

import attn_scores
from attn_scores import deep_gemm  # noqa: F401  importing it needs no torch
from software_gpu import DeviceArray, new_stream, use_device

SEED = int(os.environ.get("ATTNS_TEST_SEED", random.randrange(2**31)))
OUTPUTS = {"float32": (np.float32, lambda bits: bits), "float16": (np.float16, lambda bits: bits),
           "bfloat16": (np.uint16, reference.from_bfloat16)}
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def on_device(array, dtype=None, **options):
    return DeviceArray(array.shape, dtype or str(array.dtype), np.ascontiguousarray(array).tobytes(), **options)


class LogitsCase:
    """Random inputs of a logits call, on the host and on the device."""

    def __init__(self, rng, variant, batch=2, next_n=1, heads=8, head_dim=128, block_size=64, max_seq_len=150,
                 lens=None, output_dtype="float32"):
        self.variant, self.output_dtype, self.max_seq_len = variant, output_dtype, max_seq_len
        self.rows = batch * next_n
        columns = -(-max_seq_len // block_size)
        blocks = batch * columns + 2
        if variant == "fp8":
            self.q = self.float8(rng, (batch, next_n, heads, head_dim))
            values = self.float8(rng, (blocks, block_size * head_dim))
            smallest = -26 if output_dtype == "float16" else -8  # float16 ends at 65504
            scales = (2.0 ** rng.integers(smallest, smallest + 17, (blocks, block_size))).astype(np.float32)
            kv = np.concatenate([values, scales.view(np.uint8)], 1).reshape(blocks, block_size, 1, head_dim + 4)
        else:
            self.q = rng.integers(0, 256, (batch, next_n, heads, head_dim // 2), dtype=np.uint8)
            self.q_sf = rng.integers(122, 132, (batch, next_n, heads, 4), dtype=np.uint8).view(np.int32)[..., 0]
            values = rng.integers(0, 256, (blocks, block_size * head_dim // 2), dtype=np.uint8)
            scales = rng.integers(122, 132, (blocks, block_size * head_dim // 32), dtype=np.uint8)
            kv = np.concatenate([values, scales], 1).reshape(blocks, block_size, 1, -1)
        self.kv = kv
        self.weights = rng.standard_normal((self.rows, heads)).astype(np.float32)
        if variant == "fp4" and output_dtype == "float16":
            self.weights *= np.float32(2.0**-10)
        self.tables = rng.permutation(blocks)[:batch * columns].reshape(batch, columns).astype(np.int32)
        if lens is None:
            lens = rng.integers(next_n, max_seq_len + 1, batch)
        self.lens = np.asarray(lens, np.int32)

    @staticmethod
    def float8(rng, shape):
        codes = rng.integers(0, 256, shape, dtype=np.uint8)
        return np.where(codes & 0x7F == 0x7F, codes ^ 1, codes)  # no NaN

    def inputs(self, **q_options):
        tensors = [on_device(self.q, **q_options)]
        if self.variant == "fp4":
            tensors.append(on_device(self.q_sf))
        return (*tensors, on_device(self.kv), on_device(self.weights), on_device(self.tables), on_device(self.lens))

    def reference(self):
        arguments = (self.weights, self.tables, self.lens, self.max_seq_len)
        if self.variant == "fp8":
            return reference.fp8(self.q, self.kv, *arguments)
        rounded = self.output_dtype != "float32" and os.environ.get("PTXSIM_DEVICE", "sm_90a") == "sm_90a"
        return reference.fp4(self.q, self.q_sf, self.kv, *arguments, rounded=rounded)

    def new_out(self, rows=None, columns=None):
        """Poisoned, NaN in every format."""
        rows, columns = rows or self.rows, columns or attn_scores.padded_seq_len(self.max_seq_len)
        size = OUTPUTS[self.output_dtype][0]().itemsize
        return DeviceArray((rows, columns), self.output_dtype, b"\xff" * (rows * columns * size))

    def values(self, out):
        bits, decode = OUTPUTS[self.output_dtype]
        return decode(np.frombuffer(out.read(), bits).reshape(out.shape)).astype(np.float64)


class LogitsTest(unittest.TestCase):
    def setUp(self):
        use_device()
        self.rng = np.random.default_rng([SEED, sum(map(ord, self._testMethodName))])

    def call(self, variant):
        return {"fp8": attn_scores.fp8_paged_mqa_logits, "fp4": attn_scores.fp4_paged_mqa_logits}[variant]

    def check(self, case, out, clean=False):
        logits, errors, limits = case.reference()
        got = case.values(out)
        self.assertTrue(np.all(np.isnan(got[case.rows:])), "rows past the last one are written")
        for row, limit in enumerate(limits):
            deviation = np.abs(got[row, :limit] - logits[row, :limit])
            allowed = errors[row, :limit] + ROUNDING[case.output_dtype] * np.abs(logits[row, :limit]) + 2.0**-24
            worst = f"row {row}: {deviation.max(initial=0)} of {allowed.max(initial=0)}"
            self.assertTrue(np.all(deviation <= allowed), worst)
            if clean:
                self.assertTrue(np.all(np.isneginf(got[row, limit:case.max_seq_len])))
                limit = case.max_seq_len
            self.assertTrue(np.all(np.isnan(got[row, limit:])), f"row {row} is written past column {limit}")

    def run_shapes(self, variant, *shapes):
        for arguments in shapes:
            with self.subTest(**arguments):
                case = LogitsCase(self.rng, variant, **arguments)
                out = case.new_out()
                got = self.call(variant)(*case.inputs(), case.max_seq_len, output_dtype=case.output_dtype, out=out)
                self.assertIs(got, out)  # it cannot be sliced
                self.check(case, out)

    def test_fp8_shapes(self):
        self.run_shapes("fp8", {"next_n": 2}, {"heads": 64, "head_dim": 64, "block_size": 32, "max_seq_len": 70},
                        {"output_dtype": "float16", "head_dim": 32}, {"output_dtype": "bfloat16"})

    def test_fp4_shapes(self):
        case = LogitsCase(self.rng, "fp4")
        try:
            attn_scores.fp4_paged_mqa_logits(
                *case.inputs(), case.max_seq_len, output_dtype=case.output_dtype, out=case.new_out())
        except attn_scores.UnsupportedError as error:
            self.assertRegex(str(error), "there is no kernel for sm_")
            self.skipTest(str(error))
        self.run_shapes("fp4", {}, {"next_n": 2, "output_dtype": "bfloat16", "block_size": 32},
                        {"output_dtype": "float16", "head_dim": 64})

    def test_float8_queries_and_old_capsules(self):
        case = LogitsCase(self.rng, "fp8")
        results = []
        for options in ({"dtype": "float8_e4m3fn"}, {"versioned": False}, {"flags": 1}):
            out = case.new_out()
            inputs = case.inputs(**options)
            attn_scores.fp8_paged_mqa_logits(*inputs, case.max_seq_len, out=out)
            self.check(case, out)
            results.append(out.read())
            request = inputs[0].requests[-1]
            self.assertEqual(request["stream"], 1)
            if "versioned" not in options:
                self.assertIs(request["copy"], False)
                self.assertGreaterEqual(request["max_version"], (1, 0))
        self.assertEqual(len(set(results)), 1)

    def test_schedule_clean_lengths_and_larger_out(self):
        lens = [[3, 150, 60], [0, 1, 64]]
        case = LogitsCase(self.rng, "fp8", next_n=3, lens=lens)
        inputs = case.inputs()
        meta = DeviceArray((5, 2), "int32")
        self.assertIs(attn_scores.compute_paged_mqa_logits_schedule(inputs[4], out=meta), meta)
        out = case.new_out(rows=case.rows + 2, columns=200)
        attn_scores.fp8_paged_mqa_logits(*inputs, case.max_seq_len, schedule_meta=meta, out=out, clean_logits=True)
        self.check(case, out, clean=True)

    def test_strided_views(self):
        """Lengths with a stride, an out that is a column slice, a memory offset."""
        case = LogitsCase(self.rng, "fp8")
        q, kv, weights, tables, _ = case.inputs()
        wide = np.stack([case.lens, np.zeros_like(case.lens)], 1)
        lens = on_device(wide).view(case.lens.shape, (2,))
        storage = case.new_out(columns=512)
        out = storage.view((case.rows, case.max_seq_len), (512, 1), offset=4 * 40)
        attn_scores.fp8_paged_mqa_logits(q, kv, weights, tables, lens, case.max_seq_len, out=out)
        got = case.values(storage)
        self.assertTrue(np.all(np.isnan(got[:, :40])))
        shifted = DeviceArray((case.rows, 472), "float32", np.ascontiguousarray(got[:, 40:], np.float32).tobytes())
        self.check(case, shifted)

    def test_stream_and_threads(self):
        """Calls of several threads through one context, each on its own stream."""
        cases = [LogitsCase(self.rng, "fp8", next_n=1 + n % 2) for n in range(4)]
        outs, failures = [None] * len(cases), []

        def work(number):
            try:
                use_device()
                case, stream = cases[number], new_stream()
                inputs, out = case.inputs(), case.new_out()
                for _ in range(3):
                    attn_scores.fp8_paged_mqa_logits(*inputs, case.max_seq_len, out=out, stream=stream)
                self.assertEqual({request["stream"] for request in inputs[0].requests}, {stream})
                outs[number] = out
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(cases))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for case, out in zip(cases, outs):
            self.check(case, out)

    def test_empty(self):
        case = LogitsCase(self.rng, "fp8", batch=0, lens=[])
        tensors = case.inputs()
        out = DeviceArray((0, 256), "float32")
        self.assertIs(attn_scores.fp8_paged_mqa_logits(*tensors, case.max_seq_len, out=out), out)

    def refused(self, error, pattern, call):
        with self.assertRaisesRegex(error, pattern) as caught:
            call()
        return caught.exception

    def test_wrong_arguments(self):
        case = LogitsCase(self.rng, "fp8")
        names = ("q", "kv_fused", "weights", "block_tables", "seq_lens")
        right = {**dict(zip(names, case.inputs())), "max_seq_len": case.max_seq_len, "out": case.new_out()}
        fp8 = attn_scores.fp8_paged_mqa_logits
        host = np.zeros((2, 256), np.float32)
        for change, error, pattern in (
                ({"q": right["weights"]}, ValueError, "^q: rank is 2, accepted: 4"),
                ({"q": on_device(case.q, "float8_e5m2")}, ValueError, "^q: dtype is float8_e5m2, .*: float8_e4m3fn"),
                ({"q": on_device(case.q[:, :, :7])}, ValueError, "q: .*7.*accepted"),
                ({"kv_fused": [1, 2]}, TypeError, "^kv_fused: is of type list, accepted: .*__dlpack__"),
                ({"weights": right["out"]}, ValueError, "^weights: "),
                ({"block_tables": right["seq_lens"]}, ValueError, "^block_tables: rank is 1, accepted: 2"),
                ({"seq_lens": on_device(case.lens.astype(np.int64))}, ValueError, "^seq_lens: dtype is int64, .*int32"),
                ({"out": None}, ValueError, "^out: is None, accepted"),
                ({"out": host}, ValueError, "^out: .*cpu"),
                ({"out": DeviceArray((2, 256), "float32", flags=1)}, ValueError, "^out: is read-only"),
                ({"out": DeviceArray((2, 149), "float32")}, ValueError, r"^out: shape\[1\] is 149, accepted: 150"),
                ({"out": DeviceArray((1, 256), "float32")}, ValueError, r"^out: shape\[0\] is 1, accepted: 2"),
                ({"out": DeviceArray((2, 256), "float16")}, ValueError, "^out: dtype .* float32"),
                ({"output_dtype": "float16"}, ValueError, "^out: dtype .* float16"),
                ({"output_dtype": "int8"}, ValueError, "^output_dtype: is int8, accepted"),
                ({"acc_dtype": "bfloat16"}, ValueError, "^acc_dtype: is bf16, accepted"),
                ({"max_seq_len": -1}, ValueError, "^max_seq_len: is -1"),
                ({"max_seq_len": "150"}, TypeError, "^max_seq_len: is '150'"),
                ({"weights": on_device(case.weights, flags=2)}, ValueError, "^weights: .*copy"),
                ({"schedule_meta": right["weights"]}, ValueError, "^schedule_meta: dtype is float32, .*: int32")):
            with self.subTest(pattern=pattern):
                self.refused(error, pattern, functools.partial(fp8, **{**right, **change}))
        with self.assertRaises(TypeError):
            fp8(*case.inputs(), case.max_seq_len, "float32")  # keyword-only
        closed = attn_scores.Context(cache_dir="")
        closed.close()
        self.refused(ValueError, "^ctx: is NULL", lambda: fp8(**right, context=closed))

        fp4_case = LogitsCase(self.rng, "fp4")
        inputs, out = fp4_case.inputs(), fp4_case.new_out()
        for options, pattern in (({"sf_vec_size": 16}, "^sf_vec_size: is 16"), ({"epi_dtype": "float16"}, "^epi_dtype"),
                                 ({"is_kv_sf_interleaved": True}, "^is_kv_sf_interleaved"),
                                 ({"output_dtype": "bfloat16"}, "^out: dtype")):
            with self.subTest(pattern=pattern):
                options = {"output_dtype": "float32", **options}
                self.refused(ValueError, pattern, functools.partial(
                    attn_scores.fp4_paged_mqa_logits, *inputs, fp4_case.max_seq_len, out=out, **options))

    def test_log_and_counters(self):
        case, lines = LogitsCase(self.rng, "fp8"), []
        with attn_scores.Context(log=lambda level, line: lines.append((level, line)), log_level="debug") as context:
            for _ in range(2):
                attn_scores.fp8_paged_mqa_logits(
                    *case.inputs(), case.max_seq_len, out=case.new_out(), context=context)
            self.assertEqual(context.counters().module_loads, 1)
            self.assertEqual(context.counters().memory_hits, 1)
        self.assertTrue(lines)
        self.assertLessEqual({level for level, _ in lines}, {"debug", "info", "warning"})

    def test_would_compile(self):
        case = LogitsCase(self.rng, "fp8", heads=24)
        with attn_scores.Context(cache_dir="", cache_readonly_dirs="", forbid_compile=True) as context:
            error = self.refused(attn_scores.WouldCompileError, "precompile", lambda: attn_scores.fp8_paged_mqa_logits(
                *case.inputs(), case.max_seq_len, out=case.new_out(), context=context))
            self.assertIsInstance(error, RuntimeError)
            self.assertEqual(context.counters().compiles, 0)


class ScheduleTest(unittest.TestCase):
    def setUp(self):
        use_device()

    def test_host_and_device_agree(self):
        lens = np.array([700, 0, 64, 65, 3000], np.int32)
        for shares in (1, 4, 132):
            host = np.full((shares + 1, 2), -1, np.int32)
            self.assertIs(attn_scores.compute_paged_mqa_logits_schedule(lens, out=host), host)
            self.assertEqual(tuple(host[0]), (0, 0))
            self.assertEqual(tuple(host[-1]), (5, 0))
            device = DeviceArray(host.shape, "int32")
            attn_scores.compute_paged_mqa_logits_schedule(on_device(lens), out=device, variant="fp4")
            self.assertEqual(device.read(), host.tobytes())

    def test_wrong_arguments(self):
        lens = np.array([5], np.int32)
        out = np.zeros((5, 2), np.int32)
        read_only = out.copy()
        read_only.flags.writeable = False
        schedule = attn_scores.compute_paged_mqa_logits_schedule
        for call, pattern in (
                (lambda: schedule(lens), "^out: is None"),
                (lambda: schedule(lens, out=out, variant="fp16"), "^variant: is 'fp16', accepted: 'fp8' or 'fp4'"),
                (lambda: schedule(lens, out=out, next_n=9), "^next_n: is 9"),
                (lambda: schedule(lens, out=out, next_n=0), "^next_n: is 0"),
                (lambda: schedule(lens.astype(np.int64), out=out), "^seq_lens: dtype is int64"),
                (lambda: schedule(lens, out=out.T), "^schedule_meta: "),
                (lambda: schedule(lens, out=read_only), "^out: "),
                (lambda: schedule(on_device(lens), out=out), "^schedule_meta: .*cpu")):
            with self.subTest(pattern=pattern), self.assertRaisesRegex(ValueError, pattern):
                call()


class IndexerTest(unittest.TestCase):
    def setUp(self):
        use_device()
        self.rng = np.random.default_rng([SEED, 5])

    def run_case(self, query, keys, options, decoded_query, decoded_keys):
        lengths, requests = np.array([130, 0, 64], np.int32), np.array([1, 999, 0], np.int32)
        table = np.array([[5, 3, 1], [0, 2, 4]], np.int32)
        columns = 150
        scores = DeviceArray((6, columns), "float32", b"\xff" * (6 * columns * 4))
        result = attn_scores.indexer_scores(
            query, keys, on_device(table), on_device(lengths), requests=on_device(requests), scores=scores, **options)
        self.assertIsNone(result)
        expected, sums = reference.indexer(decoded_query, decoded_keys, table, lengths, requests, columns)
        got = np.frombuffer(scores.read(), np.float32).reshape(6, columns).astype(np.float64)
        written = ~np.isnan(expected)
        np.testing.assert_array_equal(~np.isnan(got), written)
        # float32 sums of 128 products, in any order, of tensor cores that cut terms at 2^-23 of the largest
        self.assertTrue(np.all(np.abs(got - expected)[written] <= 144 * 2.0**-23 * sums[written]))

    def test_bf16(self):
        bits = [reference.to_bfloat16(self.rng.standard_normal(shape)) for shape in ((6, 128), (6, 64, 128))]
        decoded = [reference.from_bfloat16(each).astype(np.float64) for each in bits]
        self.run_case(*(on_device(each, "bfloat16") for each in bits), {}, *decoded)

    def test_nvfp4(self):
        def numbers(rows):
            packed = self.rng.integers(0, 256, (*rows, 64), dtype=np.uint8)
            scales = self.rng.integers(0x20, 0x60, (*rows, 8), dtype=np.uint8)
            return packed, scales, reference.decode_fp4(packed) * np.repeat(reference.E4M3[scales], 16, -1)

        query, query_scales, decoded_query = numbers((6,))
        keys, key_scales, decoded_keys = numbers((6, 64))
        self.run_case(on_device(query), on_device(keys),
                      {"query_scales": on_device(query_scales), "key_scales": on_device(key_scales, "float8_e4m3fn")},
                      decoded_query, decoded_keys)
        with self.assertRaisesRegex(ValueError, "^key_scales: "):
            self.run_case(on_device(query), on_device(keys), {"query_scales": on_device(query_scales)},
                          decoded_query, decoded_keys)


class HelpersTest(unittest.TestCase):
    def test_shapes(self):
        self.assertEqual([attn_scores.min_block_table_width(n, 64) for n in (0, 1, 64, 65, 2**40)],
                         [0, 1, 1, 2, 2**34])
        self.assertEqual([attn_scores.padded_seq_len(n) for n in (0, 1, 256, 257, 2**40 + 1)],
                         [0, 256, 256, 512, 2**40 + 256])

    def test_context_and_info(self):
        with attn_scores.Context(cache_dir="") as context:
            info = context.info()
            self.assertEqual(info["num_devices"], 1)
            self.assertEqual(context.counters(), (0, 0, 0, 0))
            self.assertEqual(context.device_info(0)["num_sms"], int(os.environ.get("PTXSIM_SMS", 4)))
            with self.assertRaisesRegex(ValueError, "ordinal"):
                context.device_info(7)
        with self.assertRaisesRegex(ValueError, "^log_level: is 'loud', accepted: none, error"):
            attn_scores.Context(log_level="loud")


if __name__ == "__main__":
    compiler = attn_scores.default_context().info()
    if not compiler["libnvrtc"]:
        print(f"skipped: no NVRTC to compile kernels with: {compiler['libnvrtc_error']}")
        sys.exit(77)
    print(f"seed {SEED}", flush=True)
    unittest.main(verbosity=2)
