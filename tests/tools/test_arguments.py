#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Help, exit codes and messages of attn-scores; nothing here compiles a kernel."""
import os

import command


class Help(command.CommandTest):
    def test_no_command_is_a_usage_error(self):
        result = self.run_command()
        self.assertEqual(result.returncode, 2)
        self.assertIn("precompile", result.stderr)

    def test_help_names_every_command(self):
        text = self.succeed("--help").stdout
        for name in ("info", "precompile", "verify", "bench"):
            self.assertIn(f"\n  {name} ", text)

    def test_every_command_has_help(self):
        for name in ("info", "precompile", "verify", "bench"):
            text = self.succeed(name, "--help").stdout
            self.assertIn(f"Usage: attn-scores {name}", text)
            self.assertIn("--json", text)

    def test_version(self):
        self.assertRegex(self.succeed("--version").stdout, r"^attn-scores \d+\.\d+\.\d+\n$")


class WrongArguments(command.CommandTest):
    def refused(self, arguments, *mentioned):
        """Exit code 2, nothing on stdout, and a message with every text of `mentioned`."""
        result = self.run_command(*arguments)
        self.assertEqual(result.returncode, 2, f"{arguments}\n{result.stdout}\n{result.stderr}")
        self.assertEqual(result.stdout, "")
        for text in mentioned:
            self.assertIn(text, result.stderr)

    def test_unknown_command(self):
        self.refused(["compile"], "'compile'", "precompile")

    def test_unknown_option(self):
        for name in ("info", "precompile", "verify", "bench"):
            self.refused([name, "--no-such-option"], "no-such-option")

    def test_stray_argument(self):
        for name in ("info", "precompile", "bench"):
            self.refused([name, "stray"], "arguments")

    def test_lists(self):
        for text in ("", "x", "4,", ",4", "4-", "4-2", "-4", "4;5", "0", "9", "1-9", "99999999999999999999", "4 ", " 4"):
            self.refused(["bench", f"--next-n={text}"], "--next-n", f"'{text}'", "from 1 to 8")

    def test_names(self):
        for text in ("f64", "", "f32,", "f32,,f16", "F32"):
            self.refused(["precompile", f"--out-dtype={text}"], "--out-dtype", f"'{text}'", "f32, f16, bf16")
        self.refused(["precompile", "--variant=fp5"], "--variant", "'fp5'", "fp8, fp4")
        self.refused(["precompile", "--kv-sf=x"], "--kv-sf", "'x'", "plain, interleaved")
        for name in ("verify", "bench"):
            self.refused([name, "--op=fp5"], "--op", "'fp5'", "fp8, fp4, indexer")
        for name in ("info", "precompile", "verify", "bench"):
            self.refused([name, "--family=fast"], "--family", "'fast'", "auto, tuned, portable")
        self.refused(["bench", "--schedule=host"], "--schedule", "'host'", "self, meta")
        self.refused(["bench", "--preset=x"], "--preset", "'x'", "deepgemm")

    def test_simulated_device(self):
        self.refused(["verify", "--device=sim:sm_75"], "--device", "'sim:sm_75'", "sim:sm_80, ", "sim:sm_121a")
        self.refused(["verify", "--device=sim"], "--device", "'sim'")

    def test_empty_name(self):
        self.refused(["precompile", "--arch=sm_90a,"], "--arch", "'sm_90a,'")

    def test_number(self):
        for text in ("0", "-1", "two", "1.5", ""):
            self.refused(["precompile", f"--jobs={text}"], "--jobs", f"'{text}'")

    def test_options_that_exclude_each_other(self):
        self.refused(["bench", "--preset=deepgemm", "--batch=4"], "--preset", "--batch")
        self.refused(["bench", "--arch=sm_90a"], "--arch", "--cold")

    def test_rivals(self):
        self.refused(["bench", "--rivals=/no/such/file"], "--rivals", "/no/such/file")
        path = os.path.join(self.home.name, "rivals.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n{\n")
        result = self.run_command("bench", f"--rivals={path}")
        self.assertEqual(result.returncode, 2)
        if "reads no JSON" in result.stderr:
            self.skipTest("built without jansson")
        self.assertIn(f"--rivals: {path}, line 2: ", result.stderr)
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"B": 1, "ctx": 64, "next_n": 1, "H": 64, "D": 128, "bkv": 64, "us_both": 5}')
        self.refused(["bench", f"--rivals={path}", "--op=fp4"], "--rivals", "--op")

    def test_what_the_library_refuses(self):
        self.refused(["precompile", "--arch=sm_1"], "sm_1", "sm_90a")
        self.refused(["precompile", "--arch=sm_90a", "--num-heads=12"], "12")
        self.refused(["precompile", "--arch=sm_90a", "--head-dim=96"], "96")
        self.refused(["precompile", "--arch=sm_90a", "--block-size=48"], "48")
        self.refused(["precompile", "--arch=sm_90a", "--next-n=9"], "9")
        self.refused(["precompile", "--arch=sm_90a", "--variant=fp4", "--head-dim=32"], "head_dim", "64 or 128")


class Info(command.CommandTest):
    def test_text(self):
        text = self.succeed("info").stdout
        for word in ("attn-scores", "driver", "compiler", "cache"):
            self.assertRegex(text, rf"(?m)^{word} ")

    def test_json(self):
        lines = self.json_lines("info", "--cache-dir", f"{self.home.name}/kernels")
        self.assertEqual(len(lines), 1)
        info = lines[0]
        self.assertEqual(info["cache_entries"], 0)
        self.assertEqual(info["cache_readonly_dirs"], "")
        self.assertIsInstance(info["devices"], list)
        self.assertIn({"name": "sm_90a"}, info["simulated_devices"])
        self.assertTrue(info["libcuda"] or info["libcuda_error"])
        self.assertTrue(info["libnvrtc"] or info["libnvrtc_error"])

    def test_which_kernel_serves(self):
        (info,) = self.json_lines("info", "--arch=sm_90a", "--libcuda", "/nowhere/libcuda.so")
        kernels = {kernel["op"]: kernel for kernel in info["kernels"]}
        self.assertLessEqual({"fp8", "fp4"}, set(kernels))
        self.assertEqual({kernel["arch"] for kernel in info["kernels"]}, {"sm_90a"})
        self.assertEqual(kernels["fp8"]["family"], "sm90")
        self.assertEqual(kernels["fp8"]["reason"], "tuned for sm_90a")
        much = [kernels["fp8"][key] for key in ("much_tiles", "much_columns")]
        self.assertEqual(much, [96, "72 to 128, 200 to 256"])
        self.assertEqual(kernels["fp4"]["much_tiles"], 0)
        self.assertTrue(kernels["fp4"]["family"] or "no kernel" in kernels["fp4"]["reason"])
        text = self.succeed("info", "--arch=sm_90a", "--libcuda", "/nowhere/libcuda.so").stdout
        self.assertRegex(text, r"(?m)^kernels +sm_90a +fp8: tuned for sm_90a; for 72 to 128, 200 to 256 columns .* from 96 tiles")
        self.assertRegex(text, r"(?m)^ +sm_90a +indexer-bf16: one kernel for all targets$")
        result = self.run_command("info", "--arch=sm_1")
        self.assertEqual(result.returncode, 2)
        self.assertIn("sm_90a", result.stderr)

    def test_missing_libraries_are_reported_not_fatal(self):
        (info,) = self.json_lines("info", "--libcuda", "/nowhere/libcuda.so", "--nvrtc", "/nowhere/libnvrtc.so")
        self.assertIsNone(info["libcuda"])
        self.assertIn("/nowhere/libcuda.so", info["libcuda_error"])
        self.assertIsNone(info["libnvrtc"])
        self.assertIn("/nowhere/libnvrtc.so", info["libnvrtc_error"])
        self.assertEqual(info["devices"], [])

    def test_bench_without_a_driver(self):
        result = self.run_command("bench", "--libcuda", "/nowhere/libcuda.so")
        self.assertEqual(result.returncode, 77)
        self.assertIn("/nowhere/libcuda.so", result.stderr)


if __name__ == "__main__":
    command.main()
