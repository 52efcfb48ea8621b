#!/usr/bin/env bash
# On a machine with a GPU, from the folder that pack.sh made: the tests that need a GPU, ResNet-18 tuned, and the tuned kernels
# beside cuBLAS and cuDNN (through PyTorch, where Python has it), interleaved. Writes OUT/gpu.json and OUT/gpu.md, and next to them
# what each step said.
#
#     run.sh OUT [STEP...]       steps: targets tests tune compare (default: all)
#
# TARGET=cuda|opencl, BUDGET=240s of tuning, TRIALS=64 for each workload that tuning leaves out, TURN_MS=30, ROUNDS=11,
# DTYPES="f32 tf32 f16", SUITES="resnet18 squares", SUBJECT=resnet18. TARGET=opencl takes small workloads by default: on PoCL it
# shows that everything runs.
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${1:?usage: run.sh OUT [STEP...]}"
shift
steps="${*:-targets tests tune compare}"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
export TARGET="${TARGET:-cuda}"
if [ "$TARGET" = opencl ]; then
    : "${SUBJECT:=conv2d:c=8,h=14,w=14,o=16,k=3,p=1,bias,act=relu}" "${BUDGET:=20s}" "${TRIALS:=4}" "${DTYPES:=f32}"
    : "${SUITES:=conv2d:c=8,h=14,w=14,o=16,k=3,p=1,bias,act=relu matmul:m=128,n=128,k=128}" "${ROUNDS:=3}"
fi
: "${SUBJECT:=resnet18}" "${BUDGET:=240s}" "${TRIALS:=64}" "${DTYPES:=f32 tf32 f16}" "${SUITES:=resnet18 squares}"
: "${ROUNDS:=11}" "${TURN_MS:=30}" "${PYTHON:=python3}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export AUTOTUNE_WORKER="$here/bin/autotune" RUST_BACKTRACE=0 TMPDIR="$work"
if [ -f "$here/nvrtc.tar.xz" ]; then
    mkdir "$work/nvrtc"
    # Python can unpack it where there is no xz.
    tar -xJf "$here/nvrtc.tar.xz" -C "$work/nvrtc" 2>/dev/null ||
        "$PYTHON" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/nvrtc.tar.xz" "$work/nvrtc"
    export AUTOTUNE_NVRTC="$work/nvrtc"
fi

# Runs a step if it is wanted; its words go to OUT/STEP.txt and its exit status to OUT/STEP.rc.
step() {
    local name="$1" wanted="$2"
    shift 2
    case " $steps " in *" $wanted "*) ;; *) return ;; esac
    echo "== $name: $*" >&2
    local start=$SECONDS
    "$@" > "$out/$name.txt" 2>&1
    local rc=$?
    echo "$rc" > "$out/$name.rc"
    echo "   exit status $rc after $((SECONDS - start)) s" >&2
    [ "$rc" = 0 ] || tail -n 5 "$out/$name.txt" >&2
}

command -v nvidia-smi > /dev/null && nvidia-smi > "$out/nvidia-smi.txt" 2>&1
step targets targets "$here/bin/autotune" targets
if [ "$TARGET" = cuda ]; then
    export AUTOTUNE_REQUIRE=cuda,nvrtc
    step test_compiler tests "$here/bin/cuda_kernels"
fi
step test_device tests "$here/bin/contract" "$TARGET::"
step tune tune "$here/bin/autotune" "$SUBJECT" --target "$TARGET" --time-budget "$BUDGET" --db "$out/db" --json "$out/tune.json"

printf '[{"peer": "torch", "python": "%s"}]\n' "$(command -v "$PYTHON")" > "$work/peers.json"
for dtype in $DTYPES; do
    with=()
    [ "$dtype" = f32 ] || with=(--with "dtype=$dtype")
    # Suites are separate words.
    # shellcheck disable=SC2086
    step "compare_$dtype" compare "$here/bin/compare_peers" --target "$TARGET" --db "$out/db" --suite $SUITES "${with[@]}" \
        --trials "$TRIALS" --rounds "$ROUNDS" --turn-ms "$TURN_MS" --peers "$work" --server "$here/peers/server.py" \
        --out "$out/compare_$dtype"
    cat "$work"/server*.log >> "$out/compare_$dtype.txt" 2>/dev/null
done
"$PYTHON" "$here/summary.py" "$out"
