#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a C file that defines one text file as `const char NAME[]`, NUL-terminated.

Usage: embed_text.py INPUT OUTPUT.c NAME"""
import pathlib
import sys


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    data = pathlib.Path(sys.argv[1]).read_bytes() + b"\0"
    rows = ", ".join(str(byte) for byte in data)
    name = sys.argv[3]
    pathlib.Path(sys.argv[2]).write_text(
        f"extern const char {name}[];\nconst char {name}[] = {{{rows}}};\n", encoding="ascii"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
