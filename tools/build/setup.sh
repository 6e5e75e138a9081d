# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by quickstart.sh and run-tests.sh, which run at the root of the source tree. Installs what is missing and
# configures a build folder. Everything that is not a Debian package goes into a Python environment under build/.

PYTHON_ENV=build/python

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

has_header() {
    command -v cc >/dev/null && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1
}

has_library() {
    command -v pkg-config >/dev/null && pkg-config --exists "$1"
}

# missing_packages build|tests: Debian packages for what this machine lacks.
missing_packages() {
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v meson >/dev/null || echo meson
    command -v ninja >/dev/null || echo ninja-build
    command -v pkg-config >/dev/null || echo pkg-config
    command -v python3 >/dev/null || echo python3
    has_library libsodium || echo libsodium-dev
    has_library jansson || echo libjansson-dev
    has_header dlpack/dlpack.h || echo libdlpack-dev
    if [ "$1" = tests ]; then
        command -v c++ >/dev/null || echo g++
        has_library cmocka || echo libcmocka-dev
        command -v clang >/dev/null || echo clang libclang-rt-dev # for fuzzing
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

install_packages() {
    [ $# -gt 0 ] || return 0
    say "installing $*"
    if ! command -v apt-get >/dev/null || ! as_root true 2>/dev/null; then
        die "these Debian packages (or their like) are needed, and there is no apt-get or no right to use it: $*"
    fi
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# Python packages of the environment under build/.
install_python_packages() {
    say "installing into $PYTHON_ENV: $*"
    if [ ! -x "$PYTHON_ENV/bin/pip" ]; then
        # Debian splits venv from python3; what a failed attempt leaves is of no use.
        python3 -m venv "$PYTHON_ENV" 2>/dev/null || {
            rm -rf "$PYTHON_ENV"
            install_packages python3-venv
            python3 -m venv "$PYTHON_ENV"
        }
    fi
    "$PYTHON_ENV/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# What the tests of the Python package need. Before Meson looks for the Python that runs them: the one of the environment
# if there is one, else the system's.
ensure_python_test_packages() {
    local python=python3
    [ ! -x "$PYTHON_ENV/bin/python" ] || python=$PYTHON_ENV/bin/python
    "$python" -c 'import ensurepip, hatchling, numpy, venv' 2>/dev/null || install_python_packages numpy hatchling
}

install_cuda_wheels() {
    install_python_packages 'nvidia-cuda-nvrtc~=13.0' 'nvidia-cuda-runtime~=13.0'
}

ensure_meson() {
    if ! python3 -c 'import sys; sys.exit(tuple(map(int, sys.argv[1].split(".")[:2])) < (1, 0))' "$(meson --version)"; then
        install_python_packages 'meson>=1.0'
        PATH="$PWD/$PYTHON_ENV/bin:$PATH"
    fi
}

# A file of the installed wheels; nothing if it is not there.
wheel_file() {
    find "$PYTHON_ENV" -path "*/nvidia/*/$1" -print -quit 2>/dev/null
}

# setup_build FOLDER [MESON OPTION...]
setup_build() {
    local folder=$1
    shift
    ensure_meson
    if ! python3 tools/build/find_cuda.py >/dev/null 2>&1; then
        [ -n "$(wheel_file include/cuda.h)" ] || install_cuda_wheels
        local header
        header=$(wheel_file include/cuda.h)
        set -- "$@" "-Dcuda-path=$PWD/$(dirname "$header")"
    fi
    say "configuring $folder"
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" "$@"
    else
        meson setup "$folder" "$@"
    fi
}

# ensure_newer_nvrtc: for the tests, an NVRTC that knows sm_107a (13.4 is the first), next to the usual one, and a disassembler
# that goes with it. Not found is no failure: the tests say what they skip.
ensure_newer_nvrtc() {
    local tools=$PYTHON_ENV-tools
    if [ -z "$(find "$tools" -name 'libnvrtc.so.*' -print -quit 2>/dev/null)" ]; then
        PYTHON_ENV=$tools install_python_packages 'nvidia-cuda-nvrtc>=13.4' 'nvidia-cuda-nvdisasm>=13.4' || return 0
    fi
    ATTNS_TEST_NVRTC="$PWD/$(PYTHON_ENV=$tools wheel_file 'lib/libnvrtc.so.*')"
    ATTNS_TEST_NVDISASM="$PWD/$(PYTHON_ENV=$tools wheel_file 'bin/nvdisasm')"
    export ATTNS_TEST_NVRTC ATTNS_TEST_NVDISASM
}

# ensure_nvrtc ATTN_SCORES: the library finds an NVRTC, from the wheel if need be.
ensure_nvrtc() {
    local info
    info=$("$1" info)
    if grep -q '^compiler *none' <<<"$info"; then
        [ -n "$(wheel_file 'lib/libnvrtc.so.*')" ] || install_cuda_wheels
        ATTNS_LIBNVRTC="$PWD/$(wheel_file 'lib/libnvrtc.so.*')"
        export ATTNS_LIBNVRTC
        info=$("$1" info)
        if grep '^compiler *none' <<<"$info"; then
            die "NVRTC cannot be used"
        fi
    fi
}
