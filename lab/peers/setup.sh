#!/usr/bin/env bash
# Installs the libraries that compare_peers measures beside the tuned kernels, into one folder (default target/peers-venv).
# Needs python3 with venv, a C compiler and the package index. What cannot be installed is named and left out.
#
#     lab/peers/setup.sh [FOLDER]
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:-$here/../../target/peers-venv}"

NUMPY=2.4.6
ONNX=1.23.2
ONNXRUNTIME=1.31.1
OPENVINO=2026.4.1
# oneDNN with OpenMP is on the index in two places: by itself, oneDNN 3.2.0, and inside PaddlePaddle, oneDNN 3.6.2. (Newer
# ones there are built for SYCL alone.)
ONEDNN=2023.2.0
PADDLE=3.3.1

fail() { echo "setup.sh: $*" >&2; exit 1; }

python3 -m venv "$folder" || fail "python3 cannot make a virtual environment (on Debian: apt-get install python3-venv)"
folder="$(cd "$folder" && pwd)"
python="$folder/bin/python"
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }
pip install "numpy==$NUMPY" || fail "numpy, which everything here needs, cannot be installed"
"${CC:-cc}" -O2 -shared -fPIC -o "$folder/timing.so" "$here/timing.c" || fail "timing.c cannot be compiled"

listed=()
have() { listed+=("$1"); echo "installed: $2"; }
lack() { echo "left out: $1" >&2; }

have '{"peer": "openblas"}' "OpenBLAS of numpy $NUMPY"
if pip install "onnx==$ONNX"; then
    if pip install "onnxruntime==$ONNXRUNTIME"; then have '{"peer": "onnxruntime"}' "ONNX Runtime $ONNXRUNTIME"; else lack "ONNX Runtime"; fi
    if pip install "openvino==$OPENVINO"; then have '{"peer": "openvino"}' "OpenVINO $OPENVINO"; else lack "OpenVINO"; fi
else
    lack "ONNX Runtime and OpenVINO, whose models onnx makes"
fi

if pip install "onednn-cpu-gomp==$ONEDNN"; then
    have "{\"peer\": \"onednn\", \"env\": {\"ONEDNN_LIBRARY\": \"$folder/lib/libdnnl.so.3\"}}" "oneDNN 3.2.0"
else
    lack "oneDNN 3.2.0"
fi

library="$folder/paddle/libdnnl.so.3"
if [ ! -f "$library" ]; then
    wheels="$(mktemp -d)"
    pip download --no-deps --dest "$wheels" "paddlepaddle==$PADDLE" && "$python" - "$wheels" "$library" <<'PY'
import pathlib, sys, zipfile
(wheel,), library = pathlib.Path(sys.argv[1]).glob("*.whl"), pathlib.Path(sys.argv[2])
library.parent.mkdir(exist_ok=True)
library.write_bytes(zipfile.ZipFile(wheel).read("paddle/libs/libdnnl.so.3"))
PY
    rm -r "$wheels"
fi
if [ -f "$library" ]; then
    have "{\"peer\": \"onednn\", \"env\": {\"ONEDNN_LIBRARY\": \"$library\"}}" "oneDNN 3.6.2"
else
    lack "oneDNN 3.6.2"
fi

(IFS=,; echo "[${listed[*]}]") > "$folder/peers.json"
echo "ready: $folder"
