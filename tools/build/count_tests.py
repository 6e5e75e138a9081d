#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints "N passed, N failed, N skipped" over Meson's testlog.json files. Exit code 1 if a test failed or none passed.

Usage: count_tests.py TESTLOG.json..."""
import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def main():
    passed = failed = skipped = 0
    for path in sys.argv[1:]:
        try:
            with open(path, encoding="utf-8") as stream:
                tests = [json.loads(line) for line in stream]
        except OSError as error:
            print(f"{path}: {error.strerror}: the tests did not run", file=sys.stderr)
            failed += 1
            continue
        for test in tests:
            if test["result"] in PASSED:
                passed += 1
            elif test["result"] in SKIPPED:
                skipped += 1
            else:
                failed += 1
                print(f"failed: {test['name']} ({test['result']})")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
