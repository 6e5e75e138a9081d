#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and runs every test that this machine can run.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: tools/run-tests.sh [--sanitize]

Installs what is missing (Debian packages; NVRTC, the CUDA headers, numpy and hatchling from PyPI), builds into build/
with warnings as errors and runs all tests. Tests that need a GPU are skipped where there is none.

  --sanitize   then builds into build-sanitize/ with AddressSanitizer and UBSan and runs the tests that need no GPU
               there too (implied where the environment variable CI is set)
TEXT
}

sanitize=${CI:+yes}
for argument in "$@"; do
    case $argument in
    --sanitize) sanitize=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        printf "'%s' is not accepted\n" "$argument" >&2
        usage >&2
        exit 2
        ;;
    esac
done

cd "$(dirname "$0")/.."
. tools/build/setup.sh

# shellcheck disable=SC2046 # one package per word
install_packages $(missing_packages tests)
ensure_python_test_packages
setup_build build --werror -Dtests=enabled -Dtools=enabled
say "building"
meson compile -C build
ensure_nvrtc build/tools/attn-scores
ensure_newer_nvrtc

status=0
say "testing"
rm -f build/meson-logs/testlog.json build-sanitize/meson-logs/testlog.json
meson test -C build --no-rebuild --print-errorlogs || status=1
logs=(build/meson-logs/testlog.json)

if [ -n "$sanitize" ]; then
    setup_build build-sanitize --werror -Dtests=enabled -Dtools=enabled -Dbuildtype=debugoptimized \
        -Db_sanitize=address,undefined -Db_lundef=false -Dc_args=-fno-sanitize-recover=undefined
    say "building with sanitizers"
    meson compile -C build-sanitize
    say "testing with sanitizers"
    export ASAN_OPTIONS=halt_on_error=1:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    meson test -C build-sanitize --no-rebuild --no-suite gpu --no-suite sim --no-suite compile --timeout-multiplier 3 --print-errorlogs || status=1
    logs+=(build-sanitize/meson-logs/testlog.json)
fi

echo
python3 tools/build/count_tests.py "${logs[@]}" || status=1
exit $status
