#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""attn-scores bench on a GPU: its figures are possible ones and fit each other. Skipped (77) without a GPU."""
import subprocess
import sys

import command


class Bench(command.CommandTest):
    def rows(self, *arguments):
        lines = self.json_lines("bench", "--replays=3", "--batch=4,16", "--seq-len=4096", *arguments)
        self.assertEqual(lines[-1]["type"], "summary")
        self.assertEqual(lines[-1]["measured"], len(lines) - 1)
        self.assertEqual(lines[-1]["failed"], 0)
        return lines[:-1], lines[-1]

    def test_figures(self):
        rows, summary = self.rows("--next-n=1,2")
        self.assertEqual([(row["batch"], row["next_n"]) for row in rows], [(4, 1), (16, 1), (4, 2), (16, 2)])
        for row in rows:
            self.assertGreater(row["us"], 0.5)
            self.assertGreater(row["limit_us"], 0.5)
            self.assertGreater(row["host_us"], 0.1)
            self.assertGreater(row["launch_us"], 0.1)
            self.assertFalse(row["pools_fit_l2"])
            # Nothing streams from memory much faster than a copy does; a figure above that is a wrong measurement.
            self.assertLess(row["gbps"], 1.3 * summary["copy_gbps"])
            bytes_moved = row["batch"] * (
                4096 * 132 + row["next_n"] * (64 * 132 + 4096 * 4)
            )
            self.assertAlmostEqual(row["gbps"] * row["us"] * 1e3 / bytes_moved, 1, places=3)
            self.assertAlmostEqual(row["share_of_limit"], row["limit_us"] / row["us"], places=3)

    def test_variants(self):
        for arguments in (["--schedule=meta"], ["--pdl"], ["--clean", "--out-dtype=bf16"], ["--jitter"]):
            self.rows(*arguments)
        self.rows("--block-size=16,256", "--head-dim=64", "--num-heads=32")

    def test_too_large_is_left_out(self):
        lines = self.json_lines("bench", "--replays=3", "--batch=1,1048576", "--seq-len=8192")
        self.assertEqual(lines[-1]["measured"], 1)
        self.assertEqual(lines[-1]["too_large"], 1)

    def test_cold(self):
        (cold,) = self.json_lines("bench", "--cold", "--replays=1")
        self.assertTrue(cold["first_call_without_compiler"])
        self.assertGreater(cold["first_call_ms"], 0)


if __name__ == "__main__":
    probe = subprocess.run([sys.argv[1], "bench", "--batch=1", "--seq-len=64", "--replays=1"], timeout=120, check=False)
    if probe.returncode == command.SKIP:
        sys.exit(command.SKIP)
    command.main()
