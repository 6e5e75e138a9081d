#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn-scores cache: what it lists, verifies, removes and moves about. The compiler is one that compiles nothing."""
import os
import sys

import command

SCHEDULE = "paged_mqa_logits_schedule"
LOGITS = [f"fp8_paged_mqa_logits h{heads} d128 b64 n1 out=f32 acc=f32 epi=f32" for heads in (8, 64)]
DAY = 86400


class Cache(command.CommandTest):
    nvrtc = None
    older_nvrtc = None

    def setUp(self):
        super().setUp()
        self.cache = f"{self.home.name}/kernels"
        self.bundle = f"{self.home.name}/kernels.attns"

    def fill(self, nvrtc=None, cache=None, names=(SCHEDULE, *LOGITS), environment=None):
        arguments = [argument for name in names for argument in ("--kernel", f"{name} for sm_90a")]
        self.succeed(
            "precompile", *arguments, "--nvrtc", nvrtc or self.nvrtc, "--cache-dir", cache or self.cache,
            environment=environment,
        )

    def run_cache(self, *arguments, cache=None):
        return self.json_lines("cache", *arguments, "--cache-dir", self.cache if cache is None else cache)

    def files(self):
        return [os.path.join(path, name) for path, _, names in os.walk(self.cache) for name in names if name != "lock"]

    def test_list(self):
        self.fill()
        *entries, totals = self.run_cache("list")
        self.assertEqual([entry["kernel"] for entry in entries], sorted([SCHEDULE, *LOGITS]))
        self.assertEqual(totals["entries"], 3)
        self.assertEqual(totals["bytes"], sum(os.path.getsize(file) for file in self.files()))
        for entry in entries:
            self.assertEqual(entry["arch"], "sm_90a")
            self.assertEqual(entry["compiler"], "NVRTC 99.1")
            self.assertEqual(entry["registers"], 42)
            self.assertEqual(entry["tier"], self.cache)
            self.assertTrue(entry["writable"])
            self.assertIsNone(entry["damage"])
            self.assertTrue(any(entry["key"] in file for file in self.files()))
        text = self.succeed("cache", "list", "--cache-dir", self.cache).stdout.splitlines()
        self.assertTrue(text[0].startswith("SIZE "))
        self.assertEqual(len(text), 5)
        self.assertTrue(text[-1].startswith("3 kernels, "))
        self.assertEqual(self.run_cache("list", cache="")[-1]["entries"], 0)

    def test_filters(self):
        self.fill(self.older_nvrtc, names=(SCHEDULE,))
        self.fill()
        log = f"{self.home.name}/log"
        with open(log, "w", encoding="utf-8") as out:
            out.write(f"{LOGITS[1]} for sm_90a: slow\n")
        for arguments, count in (
            (("--kernel", "*logits h8 *"), 1),
            (("--kernel", "fp8*,*schedule"), 4),
            (("--kernel", "fp4*"), 0),
            (("--compiler", "12.8"), 1),
            (("--compiler", "12.8,99.1", "--arch", "sm_90a"), 4),
            (("--arch", "compute_90a"), 0),
            (("--from-log", log), 1),
        ):
            self.assertEqual(self.run_cache("list", *arguments)[-1]["entries"], count, arguments)
        self.assertEqual(self.run_cache("export", "--out", self.bundle)[-1]["entries"], 4)
        self.assertEqual(self.run_cache("export", "--newest", "--out", self.bundle)[-1]["entries"], 3)
        self.assertEqual(self.run_cache("export", "--from-log", log, "--out", self.bundle)[-1]["entries"], 1)
        result = self.run_command("cache", "export", "--kernel", "fp4*", "--out", f"{self.bundle}2", "--cache-dir", self.cache)
        self.assertEqual(result.returncode, 1)
        self.assertFalse(os.path.exists(f"{self.bundle}2"))

    def test_verify(self):
        self.fill()
        self.assertEqual(self.run_cache("verify"), [
            {"type": "totals", "entries": 3, "bytes": sum(os.path.getsize(file) for file in self.files()), "damaged": 0}])
        victim = self.files()[0]
        with open(victim, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        for _ in range(2):
            result = self.run_command("cache", "verify", "--cache-dir", self.cache)
            self.assertEqual(result.returncode, 1)
            self.assertIn(os.path.basename(victim).removesuffix(".cubin"), result.stdout)
            self.assertIn("its checksum differs", result.stdout)
            self.assertIn("2 kernels are sound, 1 damaged", result.stdout)
        self.assertIn("damaged: its checksum differs", self.succeed("cache", "list", "--cache-dir", self.cache).stdout)
        self.assertIn("damaged, removed", self.succeed("cache", "verify", "--remove", "--cache-dir", self.cache).stdout)
        self.assertEqual(self.run_cache("verify")[-1]["entries"], 2)

    def test_export_and_import(self):
        self.fill()
        self.assertEqual(self.run_cache("export", "--out", self.bundle)[-1]["entries"], 3)
        self.assertEqual(os.stat(self.bundle).st_mode & 0o777, 0o644 & ~os.umask(os.umask(0)))
        listed = self.json_lines("cache", "list", "--cache-dir", "", "--cache-readonly", self.bundle)
        self.assertEqual(listed[-1]["entries"], 3)
        self.assertEqual({entry["tier"] for entry in listed[:-1]}, {self.bundle})
        other = f"{self.home.name}/other"
        for stored, present in ((3, 0), (0, 3)):
            totals = self.run_cache("import", self.bundle, cache=other)[-1]
            self.assertEqual((totals["stored"], totals["present"], totals["damaged"]), (stored, present, 0))
        self.assertIn("0 compiled", self.succeed(
            "precompile", "--kernel", f"{SCHEDULE} for sm_90a", "--nvrtc", self.nvrtc, "--cache-dir", other).stdout)
        # An entry is exported once, though two tiers have it.
        both = self.json_lines(
            "cache", "export", "--out", f"{self.bundle}2", "--cache-dir", self.cache, "--cache-readonly", self.bundle)
        self.assertEqual(both[-1]["entries"], 3)
        with open(self.bundle, "rb") as a, open(f"{self.bundle}2", "rb") as b:
            self.assertEqual(a.read(), b.read())
        with open(self.bundle, "r+b") as file:
            file.seek(-1, 2)
            file.write(b"?")
        result = self.run_command("cache", "import", self.bundle, "--cache-dir", f"{self.home.name}/third")
        self.assertEqual(result.returncode, 1)
        self.assertIn("2 kernels stored", result.stdout)
        self.assertIn("1 damaged", result.stdout)
        with open(self.bundle, "r+b") as file:
            file.truncate(1000)
        result = self.run_command("cache", "import", self.bundle, "--cache-dir", f"{self.home.name}/third")
        self.assertEqual(result.returncode, 1)
        self.assertIn("is no bundle: its length differs", result.stderr)

    def test_prune(self):
        self.fill()
        files = sorted(self.files(), key=os.path.getsize)
        now = os.stat(files[0]).st_mtime
        for days, file in zip((40, 10, 0), files):
            os.utime(file, (now - days * DAY, now - days * DAY))
        temporary = f"{os.path.dirname(files[0])}/.tmp-00112233445566778899aabbccddeeff"
        with open(temporary, "w", encoding="utf-8") as out:
            out.write("half an entry")
        os.utime(temporary, (now - 60, now - 60))
        totals = self.run_cache("prune", "--unused-days", "30", "--dry-run")[-1]
        self.assertEqual((totals["removed"], totals["temporary_files"]), (1, 0))
        self.assertEqual(len(self.files()), 4)
        totals = self.run_cache("prune", "--unused-days", "30")[-1]
        self.assertEqual((totals["removed"], totals["temporary_files"], totals["failed"]), (1, 1, 0))
        self.assertEqual(sorted(self.files()), sorted(files[1:]))
        size = os.path.getsize(files[2])
        self.assertEqual(self.run_cache("prune", "--max-size", str(size))[-1]["left_bytes"], size)
        self.assertEqual(self.files(), [files[2]])  # the one used last
        self.assertEqual(self.run_cache("prune")[-1]["removed"], 0)
        self.assertEqual(self.run_cache("prune", "--kernel", "nothing")[-1]["removed"], 0)
        self.assertEqual(self.run_cache("prune", "--all")[-1]["removed"], 1)
        self.assertEqual(self.files(), [])
        self.fill()
        self.assertEqual(self.run_cache("prune", "--kernel", "fp8*")[-1]["removed"], 2)
        self.assertEqual(self.run_cache("list")[0]["kernel"], SCHEDULE)

    def test_path(self):
        self.assertEqual(self.succeed("cache", "path", "--cache-dir", self.cache).stdout, f"{self.cache}\n")
        self.assertEqual(self.succeed("cache", "path").stdout, f"{self.home.name}/.cache/attn-scores\n")
        self.fill()
        (figures,) = self.run_cache("path", "--cache-readonly", "/nowhere")
        self.assertEqual((figures["dir"], figures["readonly"], figures["entries"]), (self.cache, "/nowhere", 3))
        result = self.run_command("cache", "path", "--cache-dir", "")
        self.assertEqual((result.returncode, result.stdout), (1, ""))

    def test_wrong_arguments(self):
        for arguments, part in (
            ((), "accepted: list, verify, prune, export, import, path"),
            (("clean",), "'clean' is not accepted"),
            (("export",), "--out FILE is needed"),
            (("import",), "the bundle's name is needed"),
            (("list", "something"), "'something' is not accepted"),
            (("import", "a", "b"), "'b' is not accepted"),
            (("prune", "--max-size", "1T"), "'1T' is not accepted"),
            (("prune", "--max-size", "-1"), "'-1' is not accepted"),
            (("prune", "--unused-days", "soon"), "'soon' is not accepted"),
        ):
            result = self.run_command("cache", *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(part, result.stderr)
        result = self.run_command("cache", "import", "/nowhere")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot open '/nowhere'", result.stderr)


if __name__ == "__main__":
    Cache.nvrtc, Cache.older_nvrtc = sys.argv.pop(2), sys.argv.pop(2)
    command.main()
