#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds the attn-scores command and runs the library's main job: compiling the kernels and
# checking them, on the software GPU if there is no other; with a GPU also measuring them.
set -euo pipefail

cd "$(dirname "$0")/.."
. tools/build/setup.sh

# shellcheck disable=SC2046 # one package per word
install_packages $(missing_packages build)
setup_build build -Dtools=enabled
say "building"
ninja -C build tools/attn-scores tools/ptxsim/libptxsim_cuda.so
attn_scores=build/tools/attn-scores
ensure_nvrtc "$attn_scores"
export ATTNS_CACHE_DIR=$PWD/build/kernels

say "what is here"
info=$("$attn_scores" info)
printf '%s\n' "$info"

if grep -q '^device .* kernels for ' <<<"$info"; then
    say "compiling the kernels for this GPU into $ATTNS_CACHE_DIR"
    "$attn_scores" precompile --num-heads 64 --block-size 64 --next-n 1-4
    say "checking the reference, then the kernels against it"
    "$attn_scores" verify --reference
    "$attn_scores" verify --quick
    say "measuring"
    "$attn_scores" bench --batch 1,16,64 --seq-len 4096,16384 --next-n 1,2
else
    say "no GPU here that the library has kernels for: compiling those for sm_90a into $ATTNS_CACHE_DIR"
    "$attn_scores" precompile --arch sm_90a --num-heads 64 --block-size 64 --next-n 1-4
    say "checking the reference, then the kernels against it on the software GPU"
    "$attn_scores" verify --reference
    "$attn_scores" verify --quick --device sim:sm_90a
fi
say "done"
