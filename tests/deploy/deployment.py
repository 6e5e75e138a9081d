# SPDX-License-Identifier: MIT
"""What the deployment tests share: other users, mounts of their own, the compiler's files."""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools"))
import command  # noqa: E402

STRANGER = 54321
SCHEDULE = "paged_mqa_logits_schedule for sm_90a"


def logits(next_n, heads=64):
    return f"fp8_paged_mqa_logits h{heads} d128 b64 n{next_n} out=f32 acc=f32 epi=f32 for sm_90a"


class DeploymentTest(command.CommandTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.home.name, 0o755)
        self.cache = f"{self.home.name}/kernels"

    def kernels(self, *names):
        return [argument for name in names for argument in ("--kernel", name)]

    def counts(self, result):
        """What precompile's last line counts."""
        self.assertRegex(result.stdout, r"\d+ kernels in ", f"{result.stdout}\n{result.stderr}")
        line = re.search(r"^\d+ kernels in .*$", result.stdout, re.M).group()
        return {name: int(re.search(rf"(\d+) {name}\b", line).group(1)) for name in ("compiled", "from disk", "failed")}

    def needs_root(self):
        if os.geteuid() != 0:
            self.skipTest("becoming another user needs root")

    def needs_mounts(self):
        trial = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if trial.returncode != 0:
            self.skipTest(f"no mounts of its own: {trial.stderr.decode().strip()}")

    def public_command(self):
        """A copy of the command that every user can reach, whatever the modes above the build folder."""
        copy = f"{self.home.name}/attn-scores"
        if not os.path.exists(copy):
            subprocess.run(["cp", self.command, copy], check=True)
            os.chmod(copy, 0o755)
        return copy

    def run_as(self, uid, arguments, environment, cwd="/"):
        """With nothing in the environment but what is given."""
        self.needs_root()
        return subprocess.run(
            arguments, env=environment, cwd=cwd, user=uid, group=uid, extra_groups=[], capture_output=True, text=True,
            timeout=120, check=False,
        )


def nvrtc_path(program):
    info = subprocess.run([program, "info"], capture_output=True, text=True, timeout=60, check=True).stdout
    return re.search(r"^compiler +(\S.*), NVRTC ", info, re.M).group(1)


def nvrtc_files(program):
    """libnvrtc and its companions."""
    path = os.path.realpath(nvrtc_path(program))
    if not os.path.isabs(nvrtc_path(program)):
        maps = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
        found = re.search(rf"{re.escape(nvrtc_path(program))} .*=> (\S+)", maps)
        path = os.path.realpath(found.group(1)) if found else path
    return path, glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so*"))
