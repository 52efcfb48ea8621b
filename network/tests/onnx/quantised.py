"""Writes small networks that `onnxruntime.quantization` has quantised into a folder, as `NAME/model.onnx` with inputs and outputs in
`test_data_set_0`, and the network before as `NAME/float.onnx`: as QuantizeLinear and DequantizeLinear around operators, as operators on quantised tensors, and
with ranges at run time; by tensor and by channel. Outputs are those of ONNX Runtime without optimisations.
"""

import logging
import pathlib
import shutil
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

TYPES = [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8), (QuantType.QUInt8, QuantType.QUInt8)]
random = numpy.random.default_rng(1)


class Network:
    """Nodes and weights of a network from x to y."""

    def __init__(self, name):
        self.name, self.nodes, self.weights = name, [], []

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def weight(self, name, *shape):
        return self.constant(name, (random.standard_normal(shape) * 0.3).astype(numpy.float32))

    def add(self, operator, inputs, output, **attributes):
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def conv(self, x, output, o, i, kernel, **attributes):
        weights = [self.weight(output + "_w", o, i, kernel, kernel), self.weight(output + "_b", o)]
        return self.add("Conv", [x, *weights], output, kernel_shape=[kernel, kernel], **attributes)

    def model(self, shape):
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def images():
    """Convolutions of all kinds, with residuals, poolings, concatenations and activations between them."""
    net, around = Network("images"), [1, 1, 1, 1]
    net.conv("x", "c1", 16, 3, 3, strides=[2, 2], pads=around)
    net.add("Relu", ["c1"], "r1")
    net.add("MaxPool", ["r1"], "p1", kernel_shape=[3, 3], strides=[2, 2], pads=around)
    net.add("Relu", [net.conv("p1", "c2", 16, 16, 3, pads=around)], "r2")
    net.add("Add", [net.conv("r2", "c3", 16, 16, 3, pads=[0, 1, 2, 1]), "p1"], "a3")
    net.conv(net.add("Relu", ["a3"], "r3"), "c4", 24, 16, 1)
    bounds = [net.constant(name, numpy.float32(bound)) for name, bound in [("lo", 0), ("hi", 6)]]
    net.add("Clip", ["c4", *bounds], "r4")
    net.conv("r4", "c5", 24, 1, 3, group=24, pads=around)
    net.conv("c5", "c6", 8, 24, 1)
    net.conv(net.add("HardSwish", ["c5"], "r5"), "c7", 8, 24, 1)
    net.conv(net.add("Concat", ["c6", "c7"], "k", axis=1), "c8", 12, 16, 5, pads=[2, 2, 2, 2], strides=[2, 2])
    net.add("GlobalAveragePool", [net.add("Relu", ["c8"], "r8")], "g")
    net.add("Flatten", ["g"], "f")
    net.add("Gemm", ["f", net.weight("fw", 10, 12), net.weight("fb", 10)], "y", transB=1)
    return net.model([1, 3, 40, 40])


def rows():
    """Products of matrices with biases, a residual and what moves elements."""
    net = Network("rows")
    net.add("MatMul", ["x", net.weight("w1", 32, 64)], "m1")
    net.add("Relu", [net.add("Add", ["m1", net.weight("b1", 64)], "a1")], "r1")
    net.add("MatMul", ["r1", net.weight("w2", 64, 32)], "m2")
    net.add("Add", [net.add("Add", ["m2", net.weight("b2", 32)], "a2"), "x"], "s")
    shape = net.constant("shape", numpy.array([1, 9, 4, 8], numpy.int64))
    net.add("Transpose", [net.add("Reshape", ["s", shape], "t0")], "y", perm=[0, 2, 1, 3])
    return net.model([1, 9, 32])


def drawn(model):
    shape = [extent.dim_value for extent in model.graph.input[0].type.tensor_type.shape.dim]
    return random.standard_normal(shape).astype(numpy.float32)


class Calibration(CalibrationDataReader):
    def __init__(self, model):
        self.left = iter([{"x": drawn(model)} for _ in range(4)])

    def get_next(self):
        return next(self.left, None)


def ways(model):
    """Names of ways to quantise a model, and functions that do it from one file to another."""
    for by in ("tensor", "channel"):
        channels = by == "channel"
        for form in (QuantFormat.QDQ, QuantFormat.QOperator):
            for data, weights in TYPES:
                settings = dict(quant_format=form, per_channel=channels, activation_type=data, weight_type=weights)
                name = f"{form.name}-{data.name}-{weights.name}-{by}".lower()
                yield name, lambda a, b, settings=settings: quantize_static(a, b, Calibration(model), **settings)
        for weights in (QuantType.QInt8, QuantType.QUInt8):
            settings = dict(per_channel=channels, weight_type=weights, op_types_to_quantize=["MatMul", "Gemm"])
            name = f"dynamic-{weights.name}-{by}".lower()
            yield name, lambda a, b, settings=settings: quantize_dynamic(a, b, **settings)


def write(folder, model, quantise):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "float.onnx")
    quantise(folder / "float.onnx", folder / "model.onnx")

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    x = drawn(model)
    for name, tensor in [("input_0", x), ("output_0", session.run(None, {"x": x})[0])]:
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(tensor).SerializeToString())


def main(target):
    logging.disable(logging.CRITICAL)
    shutil.rmtree(target, ignore_errors=True)
    for model in (images(), rows()):
        for name, quantise in ways(model):
            write(target / f"{model.graph.name}-{name}", model, quantise)


main(pathlib.Path(sys.argv[1]))
