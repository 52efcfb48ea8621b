"""Sessions of ONNX Runtime with the execution provider, and models for them."""

import os

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx_models import save

LIBRARY = os.environ["AUTOTUNE_EP_LIBRARY"]
PROVIDER = "AutotuneExecutionProvider"


def devices():
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]


def session(path, options=None, alone=False, config=None, settings=None):
    settings = settings or onnxruntime.SessionOptions()
    for key, value in (config or {}).items():
        settings.add_session_config_entry(key, value)
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1" if alone else "0")
    settings.add_provider_for_devices(devices(), {"threads": "1", **(options or {})})
    # Otherwise a failure is printed, and the session starts again without the provider.
    model = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(model, sess_options=settings, enable_fallback=0)


def taken(session):
    """Operators of each part of the provider; `None` where ONNX Runtime does not tell (1.23)."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    parts = session.get_provider_graph_assignment_info()
    return [[node.op_type for node in part.get_nodes()] for part in parts if part.ep_name == PROVIDER]


def random(shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def check(path, session, inputs):
    reference = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for found, wanted in zip(session.run(None, inputs), reference.run(None, inputs)):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * max(np.abs(wanted).max(initial=0), 1e-6))


def layer(folder, name="layer", middle=(), rows="rows"):
    """Two products, with some nodes from `h` to `g` between them, of any number of rows or a fixed one."""
    between = list(middle) or [helper.make_node("Relu", ["h"], ["g"])]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), *between, helper.make_node("MatMul", ["g", "b"], ["y"])]
    inputs, outputs = [("x", TensorProto.FLOAT, [rows, 32])], [("y", TensorProto.FLOAT, [rows, 16])]
    return save(folder, name, nodes, inputs, outputs, {"a": random((32, 24), 1), "b": random((24, 16), 2)})
