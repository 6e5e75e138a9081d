#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a program with an empty temporary folder as its first argument and exits with its exit code.

Usage: in_temporary_folder.py PROGRAM [ARGUMENT...]"""
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    code = subprocess.run([sys.argv[1], folder, *sys.argv[2:]], check=False).returncode
# A negative code is the signal that ended the program.
sys.exit(code if code >= 0 else 128 - code)
