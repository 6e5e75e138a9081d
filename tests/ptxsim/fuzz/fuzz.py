#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the PTX fuzzer of this folder with clang and runs it for a while.

Usage: fuzz.py FOLDER SECONDS [libFuzzer arguments]

FOLDER keeps the objects, the program, what was learnt (corpus/) and inputs that fail (crash-*, leak-*, timeout-*); such
an input is run again by giving its path as a further argument. Exit code 77: clang with libFuzzer is not there."""
import concurrent.futures
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MACHINE = os.path.normpath(f"{HERE}/../../../tools/ptxsim")
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", f"-I{MACHINE}",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def have_fuzzer(folder):
    source = f"{folder}/probe.c"
    with open(source, "w", encoding="utf-8") as stream:
        stream.write("int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d == 0 && n > 9; }\n")
    try:
        line = ["clang", "-fsanitize=fuzzer,address", source, "-o", f"{folder}/probe"]
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def compile_one(source, folder):
    target = f"{folder}/{os.path.basename(source)[:-2]}.o"
    newest = max(os.path.getmtime(path) for path in [source] + glob.glob(f"{MACHINE}/*.h"))
    if not os.path.exists(target) or os.path.getmtime(target) < newest:
        subprocess.run(["clang", *FLAGS, "-fsanitize=fuzzer-no-link", "-c", source, "-o", target], check=True)
    return target


def main():
    folder, seconds, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.makedirs(f"{folder}/corpus", exist_ok=True)
    if not have_fuzzer(folder):
        print("clang with libFuzzer (Debian: clang, libclang-rt-dev) is not installed")
        return 77
    sources = [path for path in sorted(glob.glob(f"{MACHINE}/*.c"))
               if not os.path.basename(path).startswith(("driver_", "device."))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() and min(os.cpu_count(), 2)) as pool:
        objects = list(pool.map(lambda path: compile_one(path, folder), [*sources, f"{HERE}/fuzz_ptx.c"]))
    program = f"{folder}/fuzz_ptx"
    subprocess.run(["clang", *FLAGS, "-fsanitize=fuzzer", *objects, "-lm", "-lpthread", "-o", program], check=True)
    corpus = [] if any(os.path.isfile(path) for path in rest) else [f"{folder}/corpus", f"{HERE}/corpus"]
    line = [program, f"-max_total_time={seconds}", "-max_len=6000", "-timeout=20", "-rss_limit_mb=3000",
            f"-dict={HERE}/ptx.dict", f"-artifact_prefix={folder}/", "-print_final_stats=1", *rest, *corpus]
    return subprocess.run(line, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
