#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A project that uses the library as a Meson subproject configures, builds and runs.

Usage: test_subproject.py SOURCE_FOLDER CUDA_PATH (a comma-separated list, may be empty)"""
import os
import subprocess
import sys
import tempfile

MESON = """project('user', 'c', default_options: ['c_std=c11', 'buildtype=plain', 'default_library=static'])
attn_scores = dependency('attn-scores', fallback: 'attn-scores')
executable('user', 'user.c', dependencies: attn_scores)
"""
PROGRAM = """#include <attn_scores/attn_scores.h>
#include <stdio.h>
int main(void) {
    return puts(attns_version()) < 0 || attns_min_block_table_width(65, 64) != 2;
}
"""


def main():
    source, cuda_path = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/subprojects")
        os.symlink(source, f"{folder}/subprojects/attn-scores")
        for name, text in (("meson.build", MESON), ("user.c", PROGRAM)):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as stream:
                stream.write(text)
        build = f"{folder}/build"
        options = [f"-Dattn-scores:cuda-path={cuda_path}"] if cuda_path else []
        # --wrap-mode would download nothing here, but an installed copy must not stand in for the subproject either.
        setup = ["meson", "setup", "--wrap-mode=nodownload", "--force-fallback-for=attn-scores", *options, build, folder]
        for line in (setup, ["ninja", "-j1", "-C", build, "user"], [f"{build}/user"]):
            result = subprocess.run(line, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                print(f"{line} failed with {result.returncode}\n{result.stdout}\n{result.stderr}")
                return 1
        extra = [name for name in ("tests", "tools") if os.path.exists(f"{build}/subprojects/attn-scores/{name}")]
        print(f"built and run: {result.stdout.strip()}")
        if extra:
            print(f"a subproject should build the library alone, but built {', '.join(extra)}")
        return 1 if extra else 0


if __name__ == "__main__":
    sys.exit(main())
