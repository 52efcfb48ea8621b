"""Writes a transformer encoder with random weights whose batch and length are open, in the form that exporters of PyTorch write: shapes are
computed by nodes (Shape, Gather, Concat, Reshape), and a mask is an input.

    python lab/peers/encoder.py bert_base.onnx            # 12 layers, width 768
    python lab/peers/encoder.py minilm.onnx 6 384         # layers, width
"""

import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD = 64
WORDS = 30522
POSITIONS = 512


class Encoder:
    """A model under construction."""

    def __init__(self, layers, width):
        self.layers, self.width = layers, width
        self.random = numpy.random.default_rng(1)
        self.nodes, self.tensors, self.count = [], [], 0

    def node(self, operator, inputs, **attributes):
        self.count += 1
        name = f"{operator.lower()}_{self.count}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, array):
        self.count += 1
        name = f"constant_{self.count}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, numbers):
        return self.constant(numpy.array(numbers, numpy.int64))

    def scalar(self, number):
        return self.constant(numpy.array(number, numpy.float32))

    def weight(self, *shape):
        return self.constant((self.random.standard_normal(shape) * 0.02).astype(numpy.float32))

    def extent(self, x, axis):
        """An extent of a tensor, as a vector of one element."""
        extent = self.node("Gather", [self.node("Shape", [x]), self.integers(axis)], axis=0)
        return self.node("Unsqueeze", [extent, self.integers([0])])

    def linear(self, x, inner, outer):
        product = self.node("MatMul", [x, self.weight(inner, outer)])
        return self.node("Add", [self.weight(outer), product])

    def normalised(self, x):
        """A layer norm as older exporters write it."""
        mean = self.node("ReduceMean", [x], axes=[-1])
        centred = self.node("Sub", [x, mean])
        square = self.node("Pow", [centred, self.scalar(2)])
        variance = self.node("ReduceMean", [square], axes=[-1])
        deviation = self.node("Sqrt", [self.node("Add", [variance, self.scalar(1e-12)])])
        scaled = self.node("Mul", [self.node("Div", [centred, deviation]), self.constant(numpy.ones(self.width, numpy.float32))])
        return self.node("Add", [scaled, self.weight(self.width)])

    def heads(self, x):
        """Splits the last axis into heads, and makes them the second axis."""
        shape = self.node("Concat", [self.extent(x, 0), self.extent(x, 1), self.integers([self.width // HEAD]), self.integers([HEAD])], axis=0)
        return self.node("Reshape", [x, shape])

    def attention(self, x, mask):
        query, key, value = (self.heads(self.linear(x, self.width, self.width)) for _ in range(3))
        query = self.node("Transpose", [query], perm=[0, 2, 1, 3])
        key = self.node("Transpose", [key], perm=[0, 2, 3, 1])
        value = self.node("Transpose", [value], perm=[0, 2, 1, 3])
        scores = self.node("Div", [self.node("MatMul", [query, key]), self.scalar(HEAD**0.5)])
        shares = self.node("Softmax", [self.node("Add", [scores, mask])], axis=-1)
        sums = self.node("Transpose", [self.node("MatMul", [shares, value])], perm=[0, 2, 1, 3])
        shape = self.node("Concat", [self.extent(sums, 0), self.extent(sums, 1), self.integers([self.width])], axis=0)
        return self.linear(self.node("Reshape", [sums, shape]), self.width, self.width)

    def gelu(self, x):
        erf = self.node("Erf", [self.node("Div", [x, self.scalar(2**0.5)])])
        product = self.node("Mul", [x, self.node("Add", [erf, self.scalar(1)])])
        return self.node("Mul", [product, self.scalar(0.5)])

    def model(self):
        mask = self.node("Unsqueeze", ["attention_mask", self.integers([1, 2])])
        mask = self.node("Sub", [self.scalar(1), self.node("Cast", [mask], to=TensorProto.FLOAT)])
        mask = self.node("Mul", [mask, self.scalar(-10000)])
        words = self.node("Gather", [self.weight(WORDS, self.width), "input_ids"], axis=0)
        positions = self.node("Slice", [self.integers([list(range(POSITIONS))]), self.integers([0]), self.extent("input_ids", 1), self.integers([1])])
        positions = self.node("Gather", [self.weight(POSITIONS, self.width), positions], axis=0)
        x = self.normalised(self.node("Add", [words, positions]))
        for _ in range(self.layers):
            x = self.normalised(self.node("Add", [self.attention(x, mask), x]))
            inner = self.gelu(self.linear(x, self.width, 4 * self.width))
            x = self.normalised(self.node("Add", [self.linear(inner, 4 * self.width, self.width), x]))

        self.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"], name="last_hidden_state"))
        shape = ["batch", "sequence"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ["input_ids", "attention_mask"]]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape + [self.width])
        graph = helper.make_graph(self.nodes, "encoder", inputs, [output], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def main(path, layers="12", width="768"):
    onnx.save(Encoder(int(layers), int(width)).model(), path)


main(*sys.argv[1:])
