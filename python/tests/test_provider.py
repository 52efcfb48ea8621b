"""Sessions of ONNX Runtime with the package's provider; `ort/ep/tests` tests the provider itself."""

import autotune
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnx_models import save


def test_sessions_of_onnx_runtime_run_on_the_provider(layer):
    x = np.random.default_rng(4).uniform(-1, 1, (5, 64)).astype(np.float32)
    wanted = autotune.load(layer, threads=1)(x)
    for _ in range(2):
        options = onnxruntime.SessionOptions()
        autotune.add_provider(options, threads=1)
        session = onnxruntime.InferenceSession(str(layer), options, enable_fallback=0)
        assert session.get_providers()[0] == autotune.PROVIDER
        for found, array in zip(session.run(None, {"x": x}), wanted):
            np.testing.assert_allclose(found, array, atol=1e-4)


def test_the_provider_takes_a_snapshot_and_a_bound_of_the_error(layer, tmp_path):
    def session(**arguments):
        options = onnxruntime.SessionOptions()
        autotune.add_provider(options, threads=1, **arguments)
        return onnxruntime.InferenceSession(str(layer), options, enable_fallback=0)

    db, snapshot, missing = (tmp_path / name for name in ("db", "tuned.snapshot", "missing.snapshot"))
    autotune.tune("matmul:m=32,n=64,k=32", trials=1, threads=1, db=db, progress=False)
    autotune.write_snapshot(snapshot, db=db)
    x = np.ones((4, 64), np.float32)
    assert session(snapshot=snapshot, spin=False).run(None, {"x": x})[0].shape == (4, 48)
    with pytest.raises(Exception, match="options db and snapshot exclude each other"):
        session(db=db, snapshot=snapshot)
    with pytest.raises(Exception, match=f"option snapshot={missing}: no snapshot at"):
        session(snapshot=missing)
    with pytest.raises(Exception, match="option max_error=-1: expected a relative error"):
        session(precision="auto", max_error=-1)


def test_long_recurrent_layers_run_on_the_provider(tmp_path):
    random = np.random.default_rng(7)
    weights = {"w": (1, 32, 4), "r": (1, 32, 8), "b": (1, 64)}
    constants = {name: random.uniform(-0.3, 0.3, shape).astype(np.float32) for name, shape in weights.items()}
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("LSTM", ["positive", "w", "r", "b"], ["y", "state"], hidden_size=8),
    ]
    outputs = [("y", TensorProto.FLOAT, ["steps", 1, 2, 8]), ("state", TensorProto.FLOAT, [1, 2, 8])]
    path = save(tmp_path, "lstm", nodes, [("x", TensorProto.FLOAT, ["steps", 2, 4])], outputs, constants)
    options = onnxruntime.SessionOptions()
    autotune.add_provider(options, threads=1)
    session = onnxruntime.InferenceSession(str(path), options, enable_fallback=0)
    plain = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # The first is short enough to be unrolled.
    for steps in (20, 300):
        x = random.uniform(-1, 1, (steps, 2, 4)).astype(np.float32)
        for found, wanted in zip(session.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_session_tunes_what_the_database_does_not_know(layer, tmp_path):
    db = tmp_path / "db"
    options = onnxruntime.SessionOptions()
    for name in ("rows", "n", "batch"):
        options.add_free_dimension_override_by_name(name, 4)
    autotune.add_provider(options, threads=1, db=db, tune="3s")
    session = onnxruntime.InferenceSession(str(layer), options, enable_fallback=0)
    x = np.ones((4, 64), np.float32)
    assert session.run(None, {"x": x})[0].shape == (4, 48)
    records = autotune._command.call(["log", "export", "-", "--db", str(db)]).splitlines()
    assert len(records) > 2
