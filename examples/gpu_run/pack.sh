#!/usr/bin/env bash
# Gathers all that run.sh needs on a machine without a Rust toolchain into one folder (default target/gpu_run): the command, the
# comparison, the tests that need a GPU or its compiler, and NVRTC, compressed.
#
#     AUTOTUNE_NVRTC=FOLDER_OF_LIBNVRTC examples/gpu_run/pack.sh [FOLDER]
#
# NVRTC 12.9 (Python's nvidia-cuda-nvrtc-cu12: nvidia/cuda_nvrtc/lib) compiles for sm_70 to sm_120, and its code runs with drivers for
# CUDA 12 and 13.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
folder="${1:-$root/target/gpu_run}"

cd "$root"
cargo build --release -p autotune
cargo build --release -p autotune-examples --features peers --example compare_peers
# The paths of the test programs, which cargo names after their contents.
tests() {
    cargo test --release --no-run --message-format=json "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and "test" in message["target"]["kind"]:
        print(message["target"]["name"], message["executable"])'
}
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/peers"
cp "$target/release/autotune" "$target/release/examples/compare_peers" "$folder/bin/"
{ tests -p autotune-measure --test contract; tests -p autotune-schedules --test cuda_kernels; } |
    while read -r name program; do cp "$program" "$folder/bin/$name"; done
strip "$folder"/bin/*
cp "$here/run.sh" "$here/summary.py" "$folder/"
cp "$root"/examples/peers/{server,reference,torch_gpu}.py "$folder/peers/"
if [ -n "${AUTOTUNE_NVRTC:-}" ]; then
    (cd "$AUTOTUNE_NVRTC" && find . -name 'libnvrtc*.so*' ! -name '*.alt.*') > "$folder/files"
    tar -C "$AUTOTUNE_NVRTC" -cJf "$folder/nvrtc.tar.xz" -T "$folder/files"
    rm "$folder/files"
else
    echo "pack.sh: AUTOTUNE_NVRTC names no folder: the machine must have NVRTC itself" >&2
fi
du -sh "$folder"
