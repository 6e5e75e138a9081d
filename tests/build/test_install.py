#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs the build into a temporary root; a program compiled against it with pkg-config runs.

Usage: test_install.py BUILD_FOLDER VERSION"""
import glob
import os
import shlex
import subprocess
import sys
import tempfile

PROGRAM = """#include <attn_scores/attn_scores.h>
#include <stdio.h>
int main(void) {
    attns_context *ctx;
    attns_context_params params = {0};
    params.cache_dir = "";
    if (attns_context_create(&ctx, &params) != ATTNS_OK) {
        return 1;
    }
    attns_context_destroy(ctx);
    return puts(attns_version()) < 0;
}
"""


def run(*line, env=None):
    return subprocess.run(line, env=env, check=True, capture_output=True, text=True).stdout


def main():
    build, version = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", root)
        (pc_file,) = glob.glob(f"{root}/**/pkgconfig/attn-scores.pc", recursive=True)
        env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(pc_file), "PKG_CONFIG_SYSROOT_DIR": root}
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "attn-scores", env=env))
        # The sysroot must not be put before folders of other packages.
        flags = [flag if os.path.exists(flag[2:]) or flag[:2] not in ("-I", "-L") else flag.replace(root, "", 1)
                 for flag in flags]
        if glob.glob(f"{root}/**/libattn_scores.a", recursive=True):
            flags += shlex.split(run("pkg-config", "--static", "--libs", "attn-scores", env=env))
        source, program = f"{root}/program.c", f"{root}/program"
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(PROGRAM)
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags)
        libraries = os.path.dirname(os.path.dirname(pc_file))
        printed = run(program, env={**os.environ, "LD_LIBRARY_PATH": libraries}).strip()
        modversion = run("pkg-config", "--modversion", "attn-scores", env=env).strip()
        print(f"installed library says {printed}, pkg-config {modversion}, the build {version}")
        return 0 if printed == modversion == version else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd}\n{error.stdout}\n{error.stderr}")
        sys.exit(1)
