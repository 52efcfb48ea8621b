"""Writes ONNX models."""

import numpy as np
import onnx
from onnx import helper, numpy_helper


def save(folder, name, nodes, inputs, outputs, constants=()):
    """Writes a model of some nodes to a folder, and returns the path."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()]
    infos = [[helper.make_tensor_value_info(*info) for info in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, name, *infos, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path
