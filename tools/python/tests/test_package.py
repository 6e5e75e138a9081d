# SPDX-License-Identifier: MIT
"""The package as it is installed: a wheel with the library in it, in a fresh virtual environment without numpy or
torch; what import brings in; which library is opened; precompiling.

Usage: test_package.py SOURCE_FOLDER LIBRARY"""
import glob
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

SKIP = 77


def run(*line, env=None, check=True, **options):
    result = subprocess.run(line, env=env, capture_output=True, text=True, timeout=200, check=False, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{line}\n{result.stdout}\n{result.stderr}")
    return result


class PackageTest(unittest.TestCase):
    source = library = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        root = cls.folder.name
        # pip builds in the source folder; a copy keeps that clean.
        copy = f"{root}/tree/tools/python"
        os.makedirs(os.path.dirname(copy))
        run("cp", "-r", cls.source, copy)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
            "--wheel-dir", root, copy, env={**cls.environment(), "ATTN_SCORES_LIBRARY": cls.library})
        (cls.wheel,) = glob.glob(f"{root}/*.whl")
        run(sys.executable, "-m", "venv", f"{root}/venv")
        cls.python = f"{root}/venv/bin/python"
        run(cls.python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", cls.wheel, env=cls.environment())

    @staticmethod
    def environment(**more):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("PYTHONPATH", "ATTN_SCORES_LIBRARY", "ATTNS_CACHE_DIR")}
        return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}

    def installed(self, program, check=True, **environment):
        environment.setdefault("ATTNS_CACHE_DIR", f"{self.folder.name}/cache")
        return run(self.python, "-c", program, env=self.environment(**environment), check=check, cwd="/")

    def skip_without_nvrtc(self, result):
        if "LibraryNotFoundError: " in result.stderr and "nvrtc" in result.stderr:
            self.skipTest(result.stderr.splitlines()[-1])
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_wheel_holds_library_and_types(self):
        names = zipfile.ZipFile(self.wheel).namelist()
        for name in ("libattn_scores.so.0", "py.typed", "ops.py", "deep_gemm.py", "torch_ops.py"):
            self.assertIn(f"attn_scores/{name}", names)
        self.assertRegex(os.path.basename(self.wheel), r"^attn_scores-0\.1\.0-py3-none-linux_\w+\.whl$")

    def test_import_is_light(self):
        printed = self.installed(
            "import sys; before = set(sys.modules); import attn_scores\n"
            "print(sorted(set(sys.modules) - before - {'__future__'}))\n"
            "import attn_scores.deep_gemm\n"
            "print(sorted({'torch', 'numpy', 'subprocess'} & set(sys.modules)))\n"
            "print('libattn' in open('/proc/self/maps').read())"
        ).stdout
        self.assertEqual(printed.splitlines(), ["['attn_scores']", "[]", "False"])

    def test_names_are_found_when_asked_for(self):
        for name in ("fp8_paged_mqa_logits", "Counters", "Context", "precompile_paged_mqa_logits", "CudaError"):
            printed = self.installed(
                f"import attn_scores; before = dir(attn_scores); found = attn_scores.{name}\n"
                f"from attn_scores import {name}\n"
                f"print(found is {name}, found.__name__, '{name}' in before)\n"
                "print(attn_scores.ops.__name__, attn_scores.errors.__name__, hasattr(attn_scores, 'nothing'))").stdout
            self.assertEqual(printed.splitlines(), [f"True {name} True", "attn_scores.ops attn_scores.errors False"])
        printed = self.installed("import attn_scores; from attn_scores import *\n"
                                 "print(set(attn_scores.__all__) - set(globals()))").stdout
        self.assertEqual(printed.strip(), "set()")

    def test_call_on_software_gpu(self):
        """All the way, with nothing but the standard library."""
        tests = os.path.dirname(os.path.abspath(__file__))
        printed = self.installed(f"""
import struct, sys
sys.path.insert(0, {tests!r})
import attn_scores
from software_gpu import DeviceArray, use_device
use_device()
# One head sees a key of ones; the other heads have no weight: 128 * 0.5 * 2 = 128.
q = DeviceArray((1, 1, 8, 128), "uint8", b"\\x38" * 1024)                                   # 1.0
kv = DeviceArray((1, 64, 1, 132), "uint8", b"\\x38" * (64 * 128) + struct.pack("<64f", *[2.0] * 64))
weights = DeviceArray((1, 8), "float32", struct.pack("<8f", 0.5, *[0.0] * 7))
table = DeviceArray((1, 1), "int32", struct.pack("<i", 0))
lens = DeviceArray((1,), "int32", struct.pack("<i", 3))
out = DeviceArray((1, 64), "float32", b"\\xff" * 256)
attn_scores.fp8_paged_mqa_logits(q, kv, weights, table, lens, 64, out=out)
print(struct.unpack("<3f", out.read()[:12]), out.read()[12:] == b"\\xff" * 244, attn_scores.library_version())
print([line.split()[-1] for line in open("/proc/self/maps") if "libattn_scores" in line][0])
""", check=False)
        self.skip_without_nvrtc(printed)
        printed = printed.stdout.splitlines()
        self.assertEqual(printed[0], "(128.0, 128.0, 128.0) True 0.1.0")
        self.assertTrue(printed[1].startswith(self.folder.name), printed[1])

    def test_which_library(self):
        report = "import attn_scores; print(attn_scores.library_version())"
        wrong = self.installed(report, check=False, ATTN_SCORES_LIBRARY="/nowhere/libattn_scores.so")
        self.assertIn("LibraryNotFoundError: libattn_scores cannot be opened. /nowhere/libattn_scores.so", wrong.stderr)
        other = self.installed(report, check=False, ATTN_SCORES_LIBRARY="libc.so.6")
        self.assertIn("libc.so.6 is no libattn_scores", other.stderr)
        self.assertEqual(self.installed(report, ATTN_SCORES_LIBRARY=self.library).stdout.strip(), "0.1.0")

    def test_precompile_in_an_image_build(self):
        """For a target, without a GPU; the cache then serves where compiling is forbidden."""
        cache = f"{self.folder.name}/shipped"
        precompile = """
import attn_scores
sources = []
attn_scores.precompile_paged_mqa_logits(
    variants=("fp8",), archs=("sm_90a",), num_heads=(8,), block_sizes=(64,), next_ns=(1,), batch_sizes=[1, 64],
    progress=lambda done, total, kernel: sources.append((done, total, kernel.source, kernel.error)))
print(sorted(sources))
"""
        environment = {"ATTNS_CACHE_DIR": cache, "ATTNS_LOAD_PTX": "0", "ATTNS_LIBCUDA": "/nowhere/libcuda.so.1"}
        first = self.installed(precompile, check=False, **environment)
        self.skip_without_nvrtc(first)
        self.assertEqual(first.stdout.strip(), "[(1, 2, 'compiler', ''), (2, 2, 'compiler', '')]", first.stderr)
        again = self.installed(precompile, **environment, ATTNS_FORBID_COMPILE="1")
        self.assertEqual(again.stdout.strip(), "[(1, 2, 'disk', ''), (2, 2, 'disk', '')]")

    def test_precompile_refuses(self):
        for arguments, message in (
                ("variants=('fp16',)", "InvalidArgumentError: variants: has ['fp16'], accepted: fp8"),
                ("variants=('fp8',), archs=('sm_75',)", "sm_75"),
                ("variants=('fp8',), archs=('sm_90a',), num_heads=(9,)", "num_heads"),
                ("variants=('fp8',), archs=('sm_90a',), block_sizes=()", "block_sizes: empty"),
                ("device='cpu'", "InvalidArgumentError: device: is cpu, accepted: a CUDA device"),
                ("output_dtypes=('int8',)", "output_dtypes: is int8"),
                ("device=0, archs=('sm_90a',)", "archs: given together with device")):
            with self.subTest(arguments):
                result = self.installed(f"import attn_scores; attn_scores.precompile_paged_mqa_logits({arguments})",
                                        check=False)
                self.assertIn(message, result.stderr)
                self.assertIn("Error: ", result.stderr)


if __name__ == "__main__":
    PackageTest.library = os.path.abspath(sys.argv.pop(2))
    PackageTest.source = sys.argv.pop(1)
    try:
        import hatchling  # noqa: F401
    except ImportError:
        print("skipped: hatchling, which builds the wheel, is not installed (tools/run-tests.sh installs it)")
        sys.exit(SKIP)
    unittest.main(verbosity=2)
