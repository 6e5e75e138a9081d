#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The public headers compile alone, without a warning, as C11 and as C++17, with every compiler found here.

Usage: test_header.py INCLUDE_FOLDER"""
import shutil
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
LANGUAGES = {
    "c": ("-std=c11", ["cc", "gcc", "clang"]),
    "c++": ("-std=c++17", ["c++", "g++", "clang++"]),
}
SOURCE = """#include <attn_scores/python.h>
attns_status probe(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params, CUstream stream);
attns_status probe(attns_context *ctx, const attns_fp8_paged_mqa_logits_params *params, CUstream stream) {
    return attns_fp8_paged_mqa_logits(ctx, params, stream);
}
"""


def main():
    failed = tried = 0
    for language, (standard, compilers) in LANGUAGES.items():
        found = [compiler for compiler in compilers if shutil.which(compiler)]
        if not found:
            print(f"no {language} compiler found; {language} is not checked")
        for compiler in found:
            with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
                source.write(SOURCE)
                source.flush()
                line = [compiler, "-x", language, standard, *WARNINGS, "-fsyntax-only", "-I", sys.argv[1], source.name]
                code = subprocess.run(line, check=False).returncode
            print(f"{'ok  ' if code == 0 else 'FAIL'} {compiler} {standard}")
            tried += 1
            failed += code != 0
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
