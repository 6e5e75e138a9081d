#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The shared library exports exactly what the public headers declare, and links neither libcuda nor NVRTC.

Usage: test_symbols.py LIBRARY HEADER..."""
import re
import subprocess
import sys


def output_of(*line):
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def main():
    library, *headers = sys.argv[1:]
    exported = {line.split()[-1].split("@")[0] for line in output_of("nm", "-D", "--defined-only", library).splitlines()}
    declared = set()
    for header in headers:
        with open(header, encoding="utf-8") as stream:
            text = re.sub(r"/\*.*?\*/", "", stream.read(), flags=re.S)
        declared.update(re.findall(r"ATTNS_API\s[^;(]*?\b(attns_\w+)\s*\(", text))
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", library))
    problems = [f"exported but not declared in a header: {name}" for name in sorted(exported - declared)]
    problems += [f"declared in a header but not exported: {name}" for name in sorted(declared - exported)]
    problems += [f"linked: {name}" for name in needed if re.match(r"lib(cuda|nvrtc)", name)]
    if len(declared) < 10:
        problems.append(f"only {len(declared)} functions found in {headers}")
    print("\n".join(problems) or f"{len(declared)} functions exported; linked: {', '.join(needed)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
