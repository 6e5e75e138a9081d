#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/rival_deep_gemm.py where torch, a GPU or DeepGEMM is missing: a message and an exit code, no file touched."""
import os
import py_compile
import subprocess
import sys
import tempfile
import unittest

TORCH = """
__version__ = "2.11.0"
class cuda:
    is_available = staticmethod(lambda: {gpu})
"""


class Rival(unittest.TestCase):
    script = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_script(self, *arguments, modules=None):
        """Sees `modules` (name to source) and the standard library, nothing else that is installed."""
        for name, source in (modules or {}).items():
            with open(os.path.join(self.folder, name + ".py"), "w", encoding="utf-8") as file:
                file.write(source)
        env = {**os.environ, "PYTHONPATH": self.folder, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-S", self.script, *arguments],
            env=env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def refused(self, code, mentioned, *arguments, modules=None):
        output = os.path.join(self.folder, "rivals.jsonl")
        result = self.run_script(*(arguments or (output,)), modules=modules)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(mentioned, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertFalse(os.path.exists(output))

    def test_compiles(self):
        py_compile.compile(self.script, cfile=os.path.join(self.folder, "out.pyc"), doraise=True)

    def test_help(self):
        result = self.run_script("--help")
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("FILE", "--batch", "--seq-len", "--time-limit", "us_both", "jitter"):
            self.assertIn(text, result.stdout)

    def test_wrong_arguments(self):
        for option in ("--batch=0", "--seq-len=4,", "--next-n=x", "--replays=0", "--batch=4", "--seq-len=64", "--bat=4"):
            self.refused(2, option.split("=")[0], "-", option)
        self.refused(2, "FILE", "--jitter")

    def test_without_torch(self):
        self.refused(1, "torch is needed")

    def test_without_gpu(self):
        self.refused(77, "no NVIDIA GPU", modules={"torch": TORCH.format(gpu=False)})

    def test_without_deep_gemm(self):
        modules = {"torch": TORCH.format(gpu=True)}
        self.refused(1, "sgl-deep-gemm), in a version built for torch 2.11.0", modules=modules)

    def test_deep_gemm_for_another_torch(self):
        modules = {"torch": TORCH.format(gpu=True), "deep_gemm": "raise OSError('undefined symbol: _ZN3c10\\nstack')"}
        self.refused(1, "OSError: undefined symbol: _ZN3c10\n", modules=modules)


if __name__ == "__main__":
    Rival.script = sys.argv.pop(1)
    unittest.main(verbosity=2)
