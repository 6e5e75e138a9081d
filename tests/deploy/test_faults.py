#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The real command, with system calls that fail under it (faults.c): whatever fails, it compiles, says so once, leaves
nothing half done, and the next run finds the cache sound. The compiler is one that compiles nothing, for speed."""
import errno
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools"))
import command  # noqa: E402

KERNELS = [
    "paged_mqa_logits_schedule for sm_90a",
    "fp8_paged_mqa_logits h64 d128 b64 n1 out=f32 acc=f32 epi=f32 for sm_90a",
    "fp8_paged_mqa_logits h64 d128 b64 n2 out=f32 acc=f32 epi=f32 for sm_90a",
]

# 0 is a transfer of one byte only.
ERRORS = {
    "openat": ["EIO", "ESTALE", "EACCES", "ENOSPC", "EDQUOT", "ENOENT", "EMFILE", "EBUSY", "EROFS"],
    "mkdirat": ["EIO", "ESTALE", "EACCES", "ENOSPC", "EDQUOT", "ENOENT", "EROFS"],
    "mkdirat+": ["EIO"],
    "write": ["EIO", "ENOSPC", "EDQUOT", "ESTALE", 0],
    "read": ["EIO", "ESTALE", 0],
    "close": ["EIO", "ENOSPC", "EDQUOT"],
    "renameat": ["EIO", "ESTALE", "EBUSY", "ENOENT", "EACCES", "ENOSPC", "EDQUOT"],
    "renameat+": ["EIO", "ESTALE", "ENOENT"],
    "unlinkat": ["EIO", "ESTALE", "EBUSY", "ENOENT", "EACCES"],
    "unlinkat+": ["EIO", "ENOENT"],
    "fstat": ["EIO", "ESTALE"],
    "fstatat": ["EIO", "ESTALE", "ENOENT"],
    "futimens": ["EIO", "EROFS"],
    "setlk": ["ENOLCK", "EIO", "EINVAL", "EAGAIN"],
    "fsync": ["EIO"],
}


class Faults(command.CommandTest):
    preload = None
    nvrtc = None
    injected = 0

    def setUp(self):
        super().setUp()
        self.cache = f"{self.home.name}/kernels"
        self.log = f"{self.home.name}/faults"

    def precompile(self, faults=None, clock=None, kernels=KERNELS):
        environment = {
            "ATTNS_CACHE_DIR": "",  # no other place that could help out
            "LD_PRELOAD": self.preload,
            "ATTNS_FAULTS_BELOW": self.cache,
            "ATTNS_FAULTS_LOG": self.log,
        }
        if faults:
            environment["ATTNS_FAULTS"] = faults
        if clock:
            environment["ATTNS_FAULTS_CLOCK"] = str(clock)
        arguments = [argument for kernel in kernels for argument in ("--kernel", kernel)]
        return self.run_command(
            "precompile", *arguments, "-j1", "--nvrtc", self.nvrtc, "--cache-dir", self.cache, environment=environment
        )

    def check(self, result, may_say=None):
        """Compiled or found, whatever failed; each cause told once."""
        text = f"{result.stdout}\n{result.stderr}"
        self.assertIn(result.returncode, (0, 1), text)
        self.assertIn(f"{len(KERNELS)} kernels in", result.stdout, text)
        self.assertIn(", 0 failed,", result.stdout, text)
        told = [line for line in result.stderr.splitlines() if "cubin cache" in line]
        self.assertLessEqual(len(told), 1 if may_say is None else may_say, text)
        if result.returncode == 1:
            self.assertRegex(result.stderr, "could not be stored|none was stored|and not in --cache-dir", text)

    def check_sound(self):
        """The next run, without faults: complete and sound. Returns what it had to compile."""
        result = self.precompile()
        text = f"{result.stdout}\n{result.stderr}"
        self.assertEqual(result.returncode, 0, text)
        verified = self.succeed("cache", "verify", "--cache-dir", self.cache)
        self.assertIn(f"{len(KERNELS)} kernels are sound, 0 damaged", verified.stdout)

    def clean(self):
        subprocess.run(["rm", "-rf", self.cache, self.log], check=True)

    def faults(self):
        if not os.path.exists(self.log):
            return 0
        with open(self.log, encoding="utf-8") as lines:
            return len(lines.readlines())

    def stray_files(self):
        return [
            name for _, _, names in os.walk(self.cache) for name in names if not name.endswith(".cubin") and name != "lock"
        ]

    def test_cold_cache(self):
        for call, errors in ERRORS.items():
            hit = 0
            for name in errors:
                code = getattr(errno, name) if name else 0
                for first, count in ((0, 1), (1, 1), (3, 1), (0, 1000000)):
                    if name == "EAGAIN" and count > 1:
                        continue  # somebody who holds the lock: waited for, ten seconds for each kernel
                    with self.subTest(call=call, error=name, first=first, count=count):
                        self.clean()
                        self.check(self.precompile(f"{call}:{code}:{first}:{count}"))
                        hit += self.faults() > 0
                        if not call.startswith("unlinkat"):
                            self.assertEqual([file for file in self.stray_files() if not self.left(call, file)], [])
                        self.check_sound()
            Faults.injected += hit
            # Nothing of these is called when a cold cache is filled.
            if call.rstrip("+") not in ("read", "futimens", "fsync", "unlinkat", "fstatat"):
                self.assertGreater(hit, 0, call)

    @staticmethod
    def left(call, file):
        """A temporary file stays where its removal is what fails; the next sweep takes it."""
        return call.startswith(("renameat+", "openat")) and file.startswith(".tmp-")

    def test_warm_cache(self):
        for call in ("openat", "read", "close", "fstat", "fstatat", "futimens", "setlk", "unlinkat"):
            hit = 0
            for name in ERRORS[call]:
                code = getattr(errno, name) if name else 0
                for first, count in ((0, 1), (2, 1), (0, 1000000)):
                    if name == "EAGAIN" and count > 1:
                        continue
                    with self.subTest(call=call, error=name, first=first, count=count):
                        self.clean()
                        self.assertEqual(self.precompile().returncode, 0)
                        for path, _, names in os.walk(self.cache):
                            for file in names:
                                os.utime(os.path.join(path, file), (1, 1))  # due for renewal
                        self.check(self.precompile(f"{call}:{code}:{first}:{count}"), may_say=2)
                        hit += self.faults() > 0
                        self.check_sound()
            Faults.injected += hit
            if call not in ("fstatat", "setlk", "unlinkat"):
                self.assertGreater(hit, 0, call)

    def damage(self, change):
        """Every entry changed by a function of its bytes; None removes it."""
        entries = sorted(
            os.path.join(path, name) for path, _, names in os.walk(self.cache) for name in names if name.endswith(".cubin")
        )
        contents = []
        for entry in entries:
            with open(entry, "rb") as file:
                contents.append(file.read())
        for index, entry in enumerate(entries):
            new = change(contents, index)
            os.unlink(entry)
            if new is not None:
                with open(os.open(entry, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(new)
        return len(entries)

    def test_damaged_entries_are_replaced_once(self):
        changes = {
            "empty": lambda all_, i: b"",
            "one byte": lambda all_, i: all_[i][:1],
            "header only": lambda all_, i: all_[i][:72],
            "half": lambda all_, i: all_[i][: len(all_[i]) // 2],
            "last bit": lambda all_, i: all_[i][:-1] + bytes([all_[i][-1] ^ 1]),
            "a bit inside": lambda all_, i: all_[i][:200] + bytes([all_[i][200] ^ 16]) + all_[i][201:],
            "something behind": lambda all_, i: all_[i] + b"junk",
            "another's": lambda all_, i: all_[(i + 1) % len(all_)],
            "another version": lambda all_, i: all_[i][:8] + b"\x02" + all_[i][9:],
            "gone": lambda all_, i: None,
        }
        for name, change in changes.items():
            with self.subTest(damage=name):
                self.clean()
                self.assertEqual(self.precompile().returncode, 0)
                self.assertEqual(self.damage(change), len(KERNELS))
                Faults.injected += len(KERNELS)
                result = self.precompile()
                self.check(result, may_say=len(KERNELS))
                self.assertIn(f"{len(KERNELS)} compiled", result.stdout)
                told = sum("dropped" in line for line in result.stderr.splitlines())
                self.assertEqual(told, 0 if name == "gone" else len(KERNELS), result.stderr)
                again = self.precompile()
                self.assertIn(f"{len(KERNELS)} from disk", again.stdout)
                self.assertNotIn("cubin cache", again.stderr)

    def test_clock_jumps(self):
        for seconds in (3600 * 24 * 365, 7200, 1):
            with self.subTest(seconds=seconds):
                self.clean()
                for expected in ("compiled", "from disk", "from disk"):
                    result = self.precompile(clock=seconds)
                    self.check(result, may_say=0)
                    self.assertEqual(result.returncode, 0)
                    self.assertIn(f"{len(KERNELS)} {expected}", result.stdout)
                self.assertEqual(self.stray_files(), [])

    def test_directory_removed_while_running(self):
        """Over and over, by another process."""
        vandal = subprocess.Popen(["sh", "-c", f"while :; do rm -rf '{self.cache}'; done"], stderr=subprocess.DEVNULL)
        try:
            for _ in range(20):
                self.check(self.precompile(), may_say=1)
        finally:
            vandal.kill()
            vandal.wait()
        self.check_sound()

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.injected} runs under faults or on damaged entries", flush=True)


if __name__ == "__main__":
    Faults.preload, Faults.nvrtc = sys.argv.pop(2), sys.argv.pop(2)
    command.main()
