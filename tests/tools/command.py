# SPDX-License-Identifier: MIT
"""Runs the attn-scores command for the tests beside this file."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SKIP = 77


class CommandTest(unittest.TestCase):
    """The command is the program's first argument. Every test has an empty HOME of its own."""

    command = None

    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def run_command(self, *arguments, environment=None):
        env = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}
        env.pop("ATTNS_CACHE_DIR", None)
        env.pop("ATTNS_CACHE_READONLY_DIRS", None)
        env["HOME"] = self.home.name
        env.update(environment or {})
        return subprocess.run(
            [self.command, *arguments], env=env, capture_output=True, text=True, timeout=240, check=False
        )

    def succeed(self, *arguments, **options):
        result = self.run_command(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result

    def json_lines(self, *arguments, **options):
        """The objects printed, or a skipped test if the build has no JSON."""
        result = self.run_command(*arguments, "--json", **options)
        if "this build has no JSON output" in result.stderr:
            self.skipTest("built without jansson")
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return [json.loads(line) for line in result.stdout.splitlines()]


def has_nvrtc(command):
    info = subprocess.run([command, "info"], capture_output=True, text=True, timeout=60, check=True)
    return "\ncompiler      none" not in info.stdout


def main(needs_nvrtc=False):
    CommandTest.command = sys.argv.pop(1)
    if needs_nvrtc and not has_nvrtc(CommandTest.command):
        print("skipped: there is no NVRTC on this machine (see attn-scores info)")
        sys.exit(SKIP)
    unittest.main(verbosity=2)
