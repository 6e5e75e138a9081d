#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn-scores precompile without a GPU: compiles once, then finds everything on disk; failures are failures."""
import os
import re

import command

SET = ("--arch", "sm_90a", "--num-heads", "8,64", "--block-size", "64", "--next-n", "1")


class Precompile(command.CommandTest):
    def test_second_run_compiles_nothing(self):
        cache = f"{self.home.name}/kernels"
        runs = [self.json_lines("precompile", *SET, "--cache-dir", cache, "-j", "1") for _ in range(2)]
        for run, source in zip(runs, ("compiled", "disk")):
            kernels, totals = run[:-1], run[-1]
            self.assertEqual({kernel["type"] for kernel in kernels}, {"kernel"})
            self.assertEqual({kernel["source"] for kernel in kernels}, {source})
            self.assertEqual(sum("fp8_paged_mqa_logits" in kernel["kernel"] for kernel in kernels), 2)
            self.assertEqual(totals["type"], "totals")
            self.assertEqual(totals[source], len(kernels))
            self.assertEqual(totals["failed"], 0)
            for kernel in kernels:
                self.assertEqual(kernel["arch"], "sm_90a")
                self.assertGreater(kernel["registers"], 0)
                self.assertEqual(kernel["spill_bytes"], 0)
                self.assertIsNone(kernel["error"])
        self.assertEqual({k["kernel"] for k in runs[0][:-1]}, {k["kernel"] for k in runs[1][:-1]})
        (info,) = self.json_lines("info", "--cache-dir", cache)
        self.assertEqual(info["cache_entries"], len(runs[0]) - 1)

    def test_text_and_default_place(self):
        text = self.succeed("precompile", "--arch=sm_90a", "--num-heads=8", "--next-n=1", "-j1").stdout
        lines = text.splitlines()
        for number, line in enumerate(lines[:-1], 1):
            self.assertRegex(line, rf"^\[ ?{number}/{len(lines) - 1}\] compiled +[\d.]+ s +\d+ registers +0 spill bytes  ")
        self.assertRegex(lines[-1], rf"^{len(lines) - 1} kernels in .*, 0 failed, 0 with spills$")
        self.assertTrue(os.path.isdir(f"{self.home.name}/.cache/attn-scores"))

    def test_kernels_for_little_and_much_work(self):
        """Both come of one shape, are told apart by name, and go into a bundle."""
        cache, moved = (f"{self.home.name}/{folder}" for folder in ("kernels", "moved"))
        run = self.json_lines("precompile", "--arch=sm_90a", "--next-n=2", "--cache-dir", cache)
        names = sorted(line["kernel"] for line in run[:-1])
        little = "fp8_paged_mqa_logits h64 d128 b64 n2 out=f32 acc=f32 epi=f32"
        self.assertEqual(names, [little, f"{little} much work", "paged_mqa_logits_schedule"])
        self.succeed("cache", "export", "--cache-dir", cache, "--out", f"{self.home.name}/bundle")
        self.succeed("cache", "import", f"{self.home.name}/bundle", "--cache-dir", moved)
        kernel = ["--kernel", f"{little} much work for sm_90a", "--kernel", f"{little} for sm_90a"]
        self.assertEqual(self.json_lines("precompile", *kernel, "--cache-dir", moved)[-1]["disk"], 2)
        result = self.run_command("precompile", "--kernel", f"{little.replace('n2', 'n1')} much work for sm_90a")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("much_work: is 1, accepted: 0", result.stderr)

    def test_broken_template_fails_and_is_not_cached(self):
        cache, templates = f"{self.home.name}/kernels", f"{self.home.name}/templates"
        self.make_broken_templates(templates)
        result = self.run_command(
            "precompile", "--arch=sm_90a", "--next-n=1", "--cache-dir", cache, "--template-dir", templates
        )
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("this does not compile", result.stderr)
        self.assertNotIn(", 0 failed", result.stdout)
        (info,) = self.json_lines("info", "--cache-dir", cache)
        self.assertEqual(info["cache_entries"], 1)  # the schedule kernel, whose template is sound

    def make_broken_templates(self, folder):
        """The real templates with one line too many in the logits kernel."""
        source = os.path.join(os.path.dirname(__file__), "..", "..", "templates")
        for path, _, names in os.walk(source):
            target = os.path.join(folder, os.path.relpath(path, source))
            os.makedirs(target, exist_ok=True)
            for name in names:
                if re.search(r"\.cuh?$", name):
                    with open(os.path.join(path, name), encoding="utf-8") as stream:
                        text = stream.read()
                    if name.startswith("fp8_paged_mqa_logits"):
                        text += '\n#error "this does not compile"\n'
                    with open(os.path.join(target, name), "w", encoding="utf-8") as stream:
                        stream.write(text)

    def test_nowhere_to_store_is_a_failure(self):
        result = self.run_command("precompile", "--arch=sm_90a", "--num-heads=8", "--next-n=1", "--cache-dir", "")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("--cache-dir", result.stderr)

    def test_no_compiler_is_a_failure(self):
        result = self.run_command("precompile", "--arch=sm_90a", "--next-n=1", "--nvrtc", "/nowhere/libnvrtc.so")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("/nowhere/libnvrtc.so", result.stderr)

    def test_cold_compile_time(self):
        (cold,) = self.json_lines("bench", "--cold", "--arch=sm_90a", "--replays=1", "--libcuda=/nowhere/libcuda.so")
        self.assertGreater(cold["compile_ms"], 10)
        self.assertLess(cold["open_nvrtc_ms"], cold["compile_ms"])
        self.assertIsNone(cold["first_call_ms"])


if __name__ == "__main__":
    command.main(needs_nvrtc=True)
