#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a cold start of many ranks costs: 8 processes that precompile the same 24 kernels into one directory, beside one
process alone. For `meson test --benchmark cold_start`; measure_cold.py COMMAND [PROCESSES [KERNELS]]."""
import os
import subprocess
import sys
import tempfile
import time


def names(count):
    """Kernels of one kind and of about the same cost."""
    heads = [8 * (1 + index) for index in range(8)]
    kernels = [(h, b, n) for n in (1, 2) for b in (32, 64, 128) for h in heads]
    return [f"fp8_paged_mqa_logits h{h} d128 b{b} n{n} out=f32 acc=f32 epi=f32 for sm_90a" for h, b, n in kernels[:count]]


def run(command, processes, kernels):
    """(seconds, compiles) of a cold start."""
    with tempfile.TemporaryDirectory() as home:
        arguments = [command, "precompile", "--cache-dir", f"{home}/kernels"]
        for name in names(kernels):
            arguments += ["--kernel", name]
        env = {**os.environ, "HOME": home}
        start = time.monotonic()
        ranks = [subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        outs = [rank.communicate()[0] for rank in ranks]
        seconds = time.monotonic() - start
        assert all(rank.returncode == 0 for rank in ranks), outs
        return seconds, sum("] compiled " in line for out in outs for line in out.splitlines())


def main():
    command = sys.argv[1]
    processes, kernels = (int(text) for text in (sys.argv[2:] + ["8", "24"][len(sys.argv) - 2 :])[:2])
    alone = [run(command, 1, kernels) for _ in range(2)]
    many = [run(command, processes, kernels) for _ in range(2)]
    for count, results in ((1, alone), (processes, many)):
        for seconds, compiles in results:
            print(f"{count} processes x {kernels} kernels: {seconds:6.2f} s, {compiles} compiles")
    print(f"ratio of the best: {min(s for s, _ in many) / min(s for s, _ in alone):.3f}")


if __name__ == "__main__":
    main()
