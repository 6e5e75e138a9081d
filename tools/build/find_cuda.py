#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the include folders that hold cuda.h and nvrtc.h, one per line.

Arguments: toolkit roots or include folders to look in. Without any: $CUDA_PATH, $CUDA_HOME, the toolkit of the nvcc in
PATH, /usr/local/cuda, /usr/local/cuda-* (newest first), /usr/include. The two headers may lie in different folders, as
they do when they come from Python wheels."""
import glob
import os
import re
import shutil
import sys

HEADERS = ("cuda.h", "nvrtc.h")


def default_roots():
    roots = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    roots.append("/usr/local/cuda")
    versions = glob.glob("/usr/local/cuda-*")
    versions.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path)], reverse=True)
    return [root for root in roots + versions + ["/usr"] if root]


def include_folders(root):
    yield os.path.join(root, "include")
    yield from sorted(glob.glob(os.path.join(root, "targets", "*-linux", "include")))
    yield root


def main():
    roots = sys.argv[1:] or default_roots()
    found = {}
    for root in roots:
        for folder in include_folders(root):
            for header in HEADERS:
                if header not in found and os.path.isfile(os.path.join(folder, header)):
                    found[header] = os.path.abspath(folder)
    missing = [header for header in HEADERS if header not in found]
    if missing:
        print(
            f"{' and '.join(missing)} not found in: {', '.join(roots)}.\n"
            "The build needs these two headers of a CUDA toolkit (12.8 or newer) and nothing else of it. Point to "
            "them with -Dcuda-path=<toolkit root or include folder>[,<another>].",
            file=sys.stderr,
        )
        return 1
    print("\n".join(dict.fromkeys(found[header] for header in HEADERS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
