"""Writes the conformance models of the Python package `onnx` into a folder: those that it comes with, and one for each of its cases of single
operators, as `SET/NAME/model.onnx` with tensors in `test_data_set_0`.

Operators of versions that are not read are left out. Inputs that have to be known before a network runs, shapes and the like, become
constants of the model.
"""

import pathlib
import shutil
import sys
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

LATEST = 24

# Operators all inputs of which but the first have to be known.
FIXED = {"AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "CumSum", "DFT", "Dropout", "Expand", "HammingWindow", "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "Reshape", "Resize", "STFT", "Shape", "Slice", "Split", "Squeeze", "Tile", "TopK", "Trilu", "Unsqueeze", "Upsample"}

# Operators all inputs of which have to be known.
KNOWN = {"BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"}


def lower(model):
    """Makes a model one of the latest version that is read; false where it cannot be."""
    opsets = [opset for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    if not opsets:
        return False
    version = opsets[0].version
    if version > LATEST:
        for node in model.graph.node:
            if not onnx.defs.has(node.op_type, max_inclusive_version=version, domain=node.domain):
                return False
            if onnx.defs.get_schema(node.op_type, version, node.domain).since_version > LATEST:
                return False
        opsets[0].version = LATEST
    return True


def fix(model, inputs):
    """Moves inputs into the model; the tensors that are left."""
    operators = {node.op_type for node in model.graph.node}
    if not operators & FIXED and not any(operator.startswith("Reduce") for operator in operators):
        return inputs
    left = []
    for index, (tensor, info) in enumerate(zip(inputs, list(model.graph.input))):
        is_first = index == 0 and not operators & KNOWN
        if is_first or not isinstance(tensor, (numpy.ndarray, numpy.generic)):
            left.append(tensor)
            continue
        model.graph.initializer.append(numpy_helper.from_array(numpy.asarray(tensor), info.name))
        model.graph.input.remove(info)
    return left


def write(folder, model, inputs, outputs):
    """Writes a model and its tensors; false where some are none."""
    named = [("input", inputs, model.graph.input), ("output", outputs, model.graph.output)]
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for kind, tensors, infos in named:
        for index, (tensor, info) in enumerate(zip(tensors, infos)):
            if not isinstance(tensor, onnx.TensorProto):
                if not isinstance(tensor, (numpy.ndarray, numpy.generic)):
                    return False
                tensor = numpy_helper.from_array(numpy.asarray(tensor), info.name)
            (data / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())
    return True


def main(target):
    shutil.rmtree(target, ignore_errors=True)
    data = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for name in ["light", "pytorch-converted", "pytorch-operator", "simple"]:
        shutil.copytree(data / name, target / name)

    warnings.simplefilter("ignore")
    for case in collect_testcases(None):
        if lower(case.model):
            inputs, outputs = case.data_sets[0]
            folder = target / "node" / case.name
            if not write(folder, case.model, fix(case.model, list(inputs)), outputs):
                shutil.rmtree(folder)


main(pathlib.Path(sys.argv[1]))
