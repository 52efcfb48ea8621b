#!/usr/bin/env bash
# Gathers all that run.py needs on a machine without a Rust toolchain into one folder (default target/gpu_run): the command, the
# comparison, the tests that need a GPU.
#
#     lab/gpu_run/pack.sh [--nvrtc FOLDER_OF_LIBNVRTC] [--programs FOLDER] [FOLDER]
#
# --nvrtc adds NVRTC, compressed, for a machine that has none (54 MB). Version 12.9 (Python's nvidia-cuda-nvrtc-cu12:
# nvidia/cuda_nvrtc/lib) compiles for sm_70 to sm_120, and its code runs with drivers for CUDA 12 and 13. --programs takes the programs
# from a folder instead of building them.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"

nvrtc="" programs="" folder="$root/target/gpu_run"
while [ $# -gt 0 ]; do
    case "$1" in
        --nvrtc) nvrtc="$2"; shift 2 ;;
        --programs) programs="$2"; shift 2 ;;
        *) folder="$1"; shift ;;
    esac
done

# Builds the programs into a folder.
build() {
    cd "$root"
    cargo build --release -p autotune-cli
    cargo build --release -p autotune-lab --example compare_peers
    cp "$target/release/autotune" "$target/release/examples/compare_peers" "$1/"
    # Cargo names test programs after their contents.
    cargo test --release --no-run --message-format=json -p autotune-measure --test contract | python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == ["test"]:
        shutil.copy(message["executable"], sys.argv[1])' "$1/contract"
    strip "$1"/*
}

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/peers"
if [ -n "$programs" ]; then
    cp -P "$programs"/* "$folder/bin/"
else
    build "$folder/bin"
fi
cp "$here"/*.py "$here/README.md" "$folder/"
cp "$root"/lab/peers/{server,reference,torch_gpu}.py "$folder/peers/"
if [ -n "$nvrtc" ]; then
    (cd "$nvrtc" && find . -name 'libnvrtc*.so*' ! -name '*.alt.*') > "$folder/files"
    tar -C "$nvrtc" -cJf "$folder/nvrtc.tar.xz" -T "$folder/files"
    rm "$folder/files"
fi
du -sh "$folder"
