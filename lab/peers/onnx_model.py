"""One operator as an ONNX model with constant weights."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


# Operands that are not the same in every run.
INPUTS = ("input", "residual", "query", "key", "value")


def tensor(name, shape):
    """An f32 input or output."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


class Steps:
    """Nodes, each of which makes one value."""

    def __init__(self, w, operands):
        inputs = [name for name in INPUTS if name in operands and (w["add"] or name != "residual")]
        self.inputs = [tensor(name, operands[name].shape) for name in inputs]
        self.constants, self.nodes = [], []
        for name in operands:
            if name not in (*INPUTS, "output_shape"):
                self.constant(name, operands[name])

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, op, *inputs, **attributes):
        made = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [made], name=f"{op}{len(self.nodes)}", **attributes))
        return made


def convolution(step, w):
    return step("Conv", "input", "weight", *(["bias"] if w["bias"] else []), kernel_shape=[w["kh"], w["kw"]],
                strides=[w["sh"], w["sw"]], pads=[w["ph"], w["pw"]] * 2, dilations=[w["dh"], w["dw"]],
                group=w["groups"])


def matmul(step, w):
    product = step("MatMul", "input", "weight")
    return step("Add", product, "bias") if w["bias"] else product


def pool2d(step, w):
    window = {"kernel_shape": w["kernel"], "strides": w["stride"], "pads": w["pad"] * 2, "ceil_mode": int(w["ceil"])}
    if w["dilation"] != [1, 1]:
        window["dilations"] = w["dilation"]
    if w["kind"] == "max":
        return step("MaxPool", "input", **window)
    return step("AveragePool", "input", count_include_pad=1, **window)


def reduce(step, w):
    return step(f"Reduce{w['kind'].capitalize()}", "input", step.constant("axes", [1]), keepdims=0)


def rms_norm(step, w):
    """In the steps in which models are exported; the libraries find them and make one operator of them."""
    square = step("Pow", "input", step.constant("two", np.float32(2)))
    mean = step("ReduceMean", square, step.constant("axes", [1]), keepdims=1)
    deviation = step("Sqrt", step("Add", mean, step.constant("eps", np.float32(w["eps"]))))
    return step("Mul", step("Div", "input", deviation), "scale")


def gelu(step, w):
    """In the steps in which models are exported; the libraries find them and make one operator of them."""
    scaled = step("Div", "input", step.constant("root", np.float32(2**0.5)))
    sum = step("Add", step("Erf", scaled), step.constant("one", np.float32(1)))
    return step("Mul", step("Mul", "input", sum), step.constant("half", np.float32(0.5)))


def attention(step, w):
    scores = step("MatMul", "query", step("Transpose", "key", perm=[0, 2, 1]))
    scaled = step("Mul", scores, step.constant("scale", np.float32(w["operands"]["query"][-1] ** -0.5)))
    return step("MatMul", step("Softmax", scaled, axis=2), "value")


OPERATORS = {
    "conv2d": convolution,
    "matmul": matmul,
    "softmax": lambda step, w: step("Softmax", "input", axis=1),
    "log_softmax": lambda step, w: step("LogSoftmax", "input", axis=1),
    "layer_norm": lambda step, w: step("LayerNormalization", "input", "scale", "shift", axis=1, epsilon=w["eps"]),
    "rms_norm": rms_norm,
    "pool2d": pool2d,
    "reduce": reduce,
    "pointwise": lambda step, w: {"gelu": gelu}[w["kind"]](step, w),
    "transpose": lambda step, w: step("Transpose", "input", perm=[0, 2, 1]),
    "attention": attention,
    # ONNX Runtime's own, of which every head is a batch here.
    "multi_head_attention": lambda step, w: step("MultiHeadAttention", "query", "key", "value",
                                                 domain="com.microsoft", num_heads=1),
}


def model(workload, operands):
    """Model with the inputs `input` (and `residual`) and the output `output`."""
    w, step = workload, Steps(workload, operands)
    y = OPERATORS[w["op"]](step, w)
    if w["add"]:
        y = step("Add", y, "residual")
    if w["relu"]:
        step("Relu", y)
    step.nodes[-1].output[0] = "output"
    output = tensor("output", operands["output_shape"])
    graph = helper.make_graph(step.nodes, "op", step.inputs, [output], step.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)])
    made.ir_version = 9
    onnx.checker.check_model(made)
    return made


def blocked(x, block):
    """The elements of an NCHW tensor in channel blocks (NCHW[block]c)."""
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2).copy()


def unblocked(x, shape, block):
    """Back from `blocked`."""
    n, c, h, w = shape
    return x.reshape(n, c // block, h, w, block).transpose(0, 1, 4, 2, 3).reshape(shape).copy()
