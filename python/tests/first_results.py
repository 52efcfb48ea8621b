"""First results of the two installed packages, and their size; run by a new environment's Python."""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile

import autotune
import numpy as np
import onnxruntime
import onnxruntime_autotune
from onnx import TensorProto, helper
from onnx_models import save

MOST_BYTES = 60 << 20

for package, module in (("autotune", autotune), ("onnxruntime-autotune", onnxruntime_autotune)):
    files = importlib.metadata.files(package)
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
    bytes_ = sum(file.locate().stat().st_size for file in files if file.suffix != ".pyc")
    print(f"{package}: {bytes_ / 1e6:.1f} MB installed")
    # Other profiles than `release` make larger files.
    assert "--release" not in sys.argv or bytes_ <= MOST_BYTES, bytes_

program = pathlib.Path(sys.prefix) / "bin" / "autotune"
version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
assert version == f"autotune {importlib.metadata.version('autotune')}\n", version
assert autotune.load("dqn", threads=1)(np.ones((1, 4, 84, 84), np.float32)).shape == (1, 18)

with tempfile.TemporaryDirectory() as folder:
    weights = np.random.default_rng(1).uniform(-1, 1, (32, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x, y = ("x", TensorProto.FLOAT, [8, 32]), ("y", TensorProto.FLOAT, [8, 16])
    path = str(save(pathlib.Path(folder), "layer", nodes, [x], [y], {"w": weights}))
    given = np.random.default_rng(2).uniform(-1, 1, (8, 32)).astype(np.float32)
    wanted = np.maximum(given @ weights, 0)
    np.testing.assert_allclose(autotune.load(path, threads=1)(given), wanted, atol=1e-4)

    onnxruntime.register_execution_provider_library("other", onnxruntime_autotune.get_library_path())
    devices = onnxruntime.get_ep_devices()
    devices = [device for device in devices if device.ep_name == onnxruntime_autotune.get_ep_name()]
    assert len(devices) == 1 and onnxruntime_autotune.get_ep_names() == [devices[0].ep_name]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices, {"threads": "1"})
    session = onnxruntime.InferenceSession(path, options, enable_fallback=0)
    np.testing.assert_allclose(session.run(None, {"x": given})[0], wanted, atol=1e-4)
