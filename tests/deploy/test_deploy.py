#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Precompiling and the cache as deployments meet them, with the real command and the real compiler: many ranks, kills,
full disks, random users, read-only roots, other paths, upgrades, missing pieces of the compiler."""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from deployment import DeploymentTest, SCHEDULE, STRANGER, command, logits, nvrtc_files  # noqa: E402

TEMPLATES = os.path.join(os.path.dirname(__file__), "..", "..", "templates")


class Deploy(DeploymentTest):
    def precompile(self, *names, cache=None, environment=None, options=()):
        return self.run_command(
            "precompile", *self.kernels(*names), "--cache-dir", cache or self.cache, *options, environment=environment
        )

    # ---- Many ranks ----

    def test_eight_ranks_compile_each_kernel_once(self):
        names = [SCHEDULE, logits(1), logits(1, 8), logits(1, 32)]
        arguments = [self.command, "precompile", *self.kernels(*names), "--cache-dir", self.cache]
        env = {**os.environ, "HOME": self.home.name}
        ranks = [
            subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(8)
        ]
        compiled = 0
        for rank in ranks:
            out, err = rank.communicate(timeout=120)
            self.assertEqual(rank.returncode, 0, f"{out}\n{err}")
            self.assertEqual(err, "")
            compiled += sum(" compiled " in line for line in out.splitlines() if line.startswith("["))
        self.assertEqual(compiled, len(names))
        self.assertEqual(self.file_names(), sorted([".cubin"] * len(names) + ["lock"]))

    def file_names(self):
        """Kinds of files in the cache."""
        names = [name for _, _, files in os.walk(self.cache) for name in files]
        return sorted(name if name == "lock" else os.path.splitext(name)[1] or name for name in names)

    # ---- Kills ----

    def test_killed_while_compiling(self):
        """The next process is done within the time of its compiles and two seconds; nothing is removed or left."""
        start = time.monotonic()
        self.assertEqual(self.precompile(logits(2), cache=f"{self.home.name}/other").returncode, 0)
        alone = time.monotonic() - start
        arguments = [self.command, "precompile", *self.kernels(logits(2)), "--cache-dir", self.cache]
        inodes = set()
        for _ in range(4):
            victim = subprocess.Popen(arguments, env={**os.environ, "HOME": self.home.name}, stdout=subprocess.DEVNULL)
            time.sleep(random.uniform(0.02, 0.9 * alone))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            if os.path.exists(f"{self.cache}/v1/lock"):
                inodes.add(os.stat(f"{self.cache}/v1/lock").st_ino)
        start = time.monotonic()
        result = self.precompile(logits(2))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(time.monotonic() - start, 2 * alone + 2)
        self.assertEqual(result.stderr, "")
        inodes.add(os.stat(f"{self.cache}/v1/lock").st_ino)
        self.assertEqual(len(inodes), 1)
        self.assertIn("1 kernels are sound", self.succeed("cache", "verify", "--cache-dir", self.cache).stdout)

    # ---- Places ----

    def test_other_path_user_and_environment(self):
        """Built under one path by one user, run under another by another: nothing is compiled, by whatever process."""
        self.assertEqual(self.precompile(SCHEDULE, logits(1)).returncode, 0)
        self.succeed("cache", "export", "--cache-dir", self.cache, "--out", f"{self.home.name}/kernels.attns")
        moved = f"{self.home.name}/some where/else"
        shutil.copytree(self.cache, moved)
        subprocess.run(["chmod", "-R", "a+rX,go-w", moved], check=True)
        program = self.public_command()
        for place in (moved, f"{self.home.name}/kernels.attns"):
            result = self.run_as(
                STRANGER,
                [program, "precompile", *self.kernels(logits(1), SCHEDULE)],
                {"ATTNS_CACHE_READONLY_DIRS": place, "HOME": "/", "PATH": "", "CUDA_HOME": "/nowhere", "Z": "z" * 3000},
            )
            self.assertEqual(self.counts(result), {"compiled": 0, "from disk": 2, "failed": 0}, result.stderr)
            self.assertEqual(result.returncode, 0)

    def test_random_user_on_a_read_only_root(self):
        """HOME unset or /, nothing can be written: what is shipped is found, anything else lives in memory only."""
        self.needs_mounts()
        self.assertEqual(self.precompile(SCHEDULE).returncode, 0)
        subprocess.run(["chmod", "-R", "a+rX,go-w", self.cache], check=True)
        program = self.public_command()
        root = self.home.name
        for home in ("", "HOME=/"):
            for variable, expected in (
                (f"ATTNS_CACHE_READONLY_DIRS={self.cache}", {"compiled": 0, "from disk": 1, "failed": 0}),
                (f"ATTNS_CACHE_DIR={self.cache}", {"compiled": 0, "from disk": 1, "failed": 0}),
                (f"ATTNS_CACHE_DIR={root}/fresh", {"compiled": 1, "from disk": 0, "failed": 0}),
            ):
                script = (
                    f"mount --bind {root} {root} && mount -o remount,ro,bind {root} && "
                    f"exec setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups env -i PATH= {home} "
                    f"'{variable}' {program} precompile --kernel '{SCHEDULE}'"
                )
                result = subprocess.run(
                    ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
                )
                with self.subTest(home=home, variable=variable):
                    self.assertEqual(self.counts(result), expected, result.stderr)
                    warnings = [line for line in result.stderr.splitlines() if "warning" in line]
                    self.assertEqual(len(warnings), 0 if "READONLY" in variable else 1, result.stderr)
                    self.assertEqual(result.returncode, 1 if "fresh" in variable else 0)

    def test_small_disk(self):
        """64 KiB: what fits is stored, the rest is told once and compiles all the same; nothing partial is seen."""
        self.needs_mounts()
        names = [SCHEDULE, logits(1, 8), logits(1, 16)]
        os.mkdir(self.cache, 0o700)
        program = f"{self.command} precompile {' '.join(f'''--kernel '{name}' ''' for name in names)}"
        script = (
            f"mount -t tmpfs -o size=64k,mode=700 none {self.cache} && {{ {program} --cache-dir {self.cache} -j1; "
            f"code=$?; {self.command} cache verify --cache-dir {self.cache}; find {self.cache} -name '.tmp*'; exit $code; }}"
        )
        result = subprocess.run(
            ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "HOME": "/", "ATTNS_CACHE_DIR": ""},
        )
        text = f"{result.stdout}\n{result.stderr}"
        self.assertEqual(self.counts(result), {"compiled": 3, "from disk": 0, "failed": 0}, text)
        self.assertEqual(sum("No space left" in line for line in result.stderr.splitlines()), 1, text)
        self.assertIn("could not be stored", result.stderr)
        self.assertEqual(result.returncode, 1)
        self.assertIn("kernels are sound, 0 damaged", result.stdout)
        self.assertNotIn(".tmp", result.stdout)

    def test_set_uid_program_reads_no_environment(self):
        self.needs_root()
        program = f"{self.home.name}/set-uid"
        shutil.copy(self.command, program)
        os.chown(program, 1001, 1001)
        os.chmod(program, 0o4755)
        own = f"{self.home.name}/home"
        os.mkdir(own)
        os.chown(own, STRANGER, STRANGER)
        environment = {"HOME": own, "XDG_CACHE_HOME": own, "ATTNS_CACHE_DIR": f"{own}/kernels",
                       "ATTNS_CACHE_READONLY_DIRS": f"{own}/shipped"}
        plain = self.run_as(STRANGER, [self.public_command(), "cache", "path"], environment)
        self.assertEqual(plain.stdout, f"{own}/kernels\n", plain.stderr)
        result = self.run_as(STRANGER, [program, "cache", "path"], environment)
        if os.statvfs(self.home.name).f_flag & os.ST_NOSUID:
            self.skipTest("the temporary folder is mounted nosuid")
        self.assertEqual(result.stdout, "")
        self.assertIn("no cache directory that can be written", result.stderr)

    # ---- Upgrades ----

    def test_what_an_upgrade_compiles_again(self):
        """One byte of the source: yes. Times, owners and places of files: no."""
        templates = f"{self.home.name}/templates"
        shutil.copytree(TEMPLATES, templates)
        names = (SCHEDULE, logits(1))
        for expected in (2, 0):
            result = self.precompile(*names, options=("--template-dir", templates))
            self.assertEqual(self.counts(result)["compiled"], expected, result.stderr)
        self.assertEqual(self.counts(self.precompile(*names))["compiled"], 0)  # the built-in ones are the same bytes
        for path, _, files in os.walk(templates):
            for file in files:
                os.utime(os.path.join(path, file), (1, 1))
        self.assertEqual(self.counts(self.precompile(*names, options=("--template-dir", templates)))["compiled"], 0)
        with open(f"{templates}/schedule.cu", "a", encoding="utf-8") as source:
            source.write(" ")
        result = self.precompile(*names, options=("--template-dir", templates))
        self.assertEqual(self.counts(result), {"compiled": 1, "from disk": 1, "failed": 0})
        self.assertEqual(self.counts(self.precompile(*names))["compiled"], 0)  # both live side by side

    def test_bundles_are_reproducible(self):
        """Two builds at other times, in other places and in another order give the same bytes."""
        bundles = []
        for index, names in enumerate(((SCHEDULE, logits(1)), (logits(1), SCHEDULE))):
            cache, bundle = f"{self.home.name}/{index}/deep" * (index + 1), f"{self.home.name}/{index}.attns"
            result = self.precompile(*names, cache=cache, environment={"TZ": "Asia/Tokyo"} if index else None)
            self.assertEqual(self.counts(result)["compiled"], 2)
            self.succeed("cache", "export", "--cache-dir", cache, "--out", bundle)
            with open(bundle, "rb") as file:
                bundles.append(file.read())
        self.assertEqual(bundles[0], bundles[1])

    # ---- The compiler ----

    def test_no_program_is_started(self):
        if shutil.which("strace") is None:
            self.skipTest("there is no strace")
        trace = f"{self.home.name}/trace"
        result = subprocess.run(
            ["strace", "-f", "-e", "trace=execve", "-o", trace, self.command, "precompile", "--kernel", SCHEDULE,
             "--cache-dir", self.cache],
            env={"HOME": self.home.name, "PATH": ""}, capture_output=True, text=True, timeout=120, check=False,
            executable=shutil.which("strace"),
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(trace, encoding="utf-8") as lines:
            self.assertEqual(sum("execve(" in line for line in lines), 1)

    def test_missing_pieces_of_the_compiler(self):
        """libnvrtc alone works without headers and tools; without its builtins it says what it misses, and where it
        looked; without it at all what is precompiled still serves."""
        library, builtins = nvrtc_files(self.command)
        folder = f"{self.home.name}/nvrtc"
        os.mkdir(folder)
        lonely = f"{folder}/libnvrtc.so.{os.path.basename(library).split('.so.')[-1].split('.')[0]}"
        os.symlink(library, f"{folder}/there")
        shutil.copy(library, lonely)
        environment = {"PATH": "", "LD_LIBRARY_PATH": "", "CUDA_HOME": "", "CUDA_PATH": ""}
        result = self.precompile(SCHEDULE, options=("--nvrtc", lonely), environment=environment)
        if result.returncode != 0:  # unless the loader finds the builtins elsewhere
            self.assertIn("libnvrtc-builtins.so", result.stderr)
            self.assertIn(folder, result.stderr)
        for file in builtins:
            shutil.copy(file, folder)
        result = self.precompile(SCHEDULE, options=("--nvrtc", lonely), environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.precompile(SCHEDULE, options=("--nvrtc", "/nonexistent/libnvrtc.so"), environment=environment)
        self.assertEqual(self.counts(result), {"compiled": 0, "from disk": 1, "failed": 0})
        result = self.precompile(logits(1), options=("--nvrtc", "/nonexistent/libnvrtc.so"), environment=environment)
        self.assertEqual(self.counts(result)["failed"], 1)
        self.assertIn("/nonexistent/libnvrtc.so", result.stderr)

    def test_unknown_targets(self):
        result = self.precompile("paged_mqa_logits_schedule for sm_35")
        self.assertEqual(result.returncode, 2)
        self.assertIn("sm_90a", result.stderr)

    # ---- What a run used ----

    def test_from_log(self):
        log = f"{self.home.name}/server.log"
        with open(log, "w", encoding="utf-8") as out:
            out.write(
                "INFO server starts\n"
                f"attn-scores: compiled {logits(1)} in 0.312 s: 78 registers\n"
                f"WARN {SCHEDULE}: compiling is forbidden\nINFO fp8_paged_mqa_logits: q: dtype is float16\n"
                f"{SCHEDULE}\n{SCHEDULE}\n"
            )
        result = self.succeed("precompile", "--from-log", log, "--cache-dir", self.cache)
        self.assertEqual(self.counts(result), {"compiled": 2, "from disk": 0, "failed": 0})
        listed = self.json_lines("cache", "list", "--from-log", log, "--cache-dir", self.cache)
        self.assertEqual({entry.get("kernel") for entry in listed[:-1]},
                         {logits(1).split(" for ")[0], SCHEDULE.split(" for ")[0]})
        with open(log, "a", encoding="utf-8") as out:
            out.write("fp8_paged_mqa_logits h64 d128 b64 n1 ou\n")
        result = self.run_command("precompile", "--from-log", log, "--cache-dir", self.cache)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"{log}:7: 'fp8_paged_mqa_logits h64 d128 b64 n1 ou' is not the name of a kernel", result.stderr)
        for arguments, code, part in (
            (("--from-log", "/nonexistent"), 1, "cannot be opened"),
            (("--from-log", "/dev/null"), 2, "names no kernel in 0 lines"),
        ):
            result = self.run_command("precompile", *arguments, "--cache-dir", self.cache)
            self.assertEqual(result.returncode, code)
            self.assertIn(part, result.stderr)

    def test_the_command_of_a_message_works(self):
        environment = {"ATTNS_FORBID_COMPILE": "1"}
        result = self.precompile(logits(1), environment=environment)
        self.assertEqual(result.returncode, 1)
        advice = result.stderr.strip().splitlines()[-1].split("What prepares it: ")[1]
        self.assertTrue(advice.startswith("attn-scores precompile --kernel '"), advice)
        shell = advice.replace("attn-scores", f"'{self.command}'", 1)
        subprocess.run(["sh", "-c", shell], check=True, capture_output=True, env={**os.environ, "HOME": self.home.name})
        result = self.precompile(logits(1), environment=environment)
        self.assertEqual(self.counts(result), {"compiled": 0, "from disk": 1, "failed": 0})


if __name__ == "__main__":
    command.main(needs_nvrtc=True)
