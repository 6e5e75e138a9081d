#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a libFuzzer target: run.py TARGET CORPUS [OPTION...]. What it finds is written beside the target."""
import os
import subprocess
import sys
import tempfile


def main():
    target, corpus, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as found:
        command = [target, "-timeout=10", "-rss_limit_mb=512", f"-artifact_prefix={target}-", *options, found, corpus]
        print(" ".join(command), flush=True)
        sys.exit(subprocess.run(command, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}, check=False).returncode)


if __name__ == "__main__":
    main()
