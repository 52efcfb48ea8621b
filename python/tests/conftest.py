"""Models for the tests."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import save


@pytest.fixture
def layer(tmp_path):
    """relu(x w + b) for any number of rows, and the position of the largest element of each."""
    random = np.random.default_rng(1)
    constants = {
        "w": random.uniform(-1, 1, (64, 48)).astype(np.float32),
        "b": random.uniform(-1, 1, 48).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
        helper.make_node("ArgMax", ["sum"], ["largest"], axis=1, keepdims=0),
    ]
    inputs = [("x", TensorProto.FLOAT, ["rows", 64])]
    outputs = [("y", TensorProto.FLOAT, ["rows", 48]), ("largest", TensorProto.INT64, ["rows"])]
    return save(tmp_path, "layer", nodes, inputs, outputs, constants)


@pytest.fixture
def embedding(tmp_path):
    """Rows of a table by i64 numbers where a mask is true, else zeros; as f64."""
    table = np.random.default_rng(2).uniform(-1, 1, (100, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["mask", "axes"], ["column"]),
        helper.make_node("Where", ["column", "rows", "zero"], ["kept"]),
        helper.make_node("Cast", ["kept"], ["y"], to=TensorProto.DOUBLE),
    ]
    constants = {"table": table, "axes": np.array([1]), "zero": np.float32(0)}
    inputs = [("ids", TensorProto.INT64, ["n"]), ("mask", TensorProto.BOOL, ["n"])]
    return save(tmp_path, "embedding", nodes, inputs, [("y", TensorProto.DOUBLE, ["n", 16])], constants)


@pytest.fixture
def scaled(tmp_path):
    """x * scale, where scale is an input without axes."""
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"])]
    inputs = [("x", TensorProto.FLOAT, [4]), ("scale", TensorProto.FLOAT, [])]
    return save(tmp_path, "scaled", nodes, inputs, [("y", TensorProto.FLOAT, [4])])


@pytest.fixture
def unsupported(tmp_path):
    """An operator of another domain."""
    node = helper.make_node("Mystery", ["x"], ["y"], name="riddle", domain="example.org")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example.org", 1)]
    graph = helper.make_graph([node], "unsupported", info[:1], info[1:])
    path = tmp_path / "unsupported.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
