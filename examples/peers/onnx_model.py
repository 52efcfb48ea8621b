"""One operator as an ONNX model with constant weights."""

import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name, shape):
    """An f32 input or output."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(workload, operands):
    """Model with the inputs `input` (and `residual`) and the output `output`."""
    w = workload
    constants = [numpy_helper.from_array(operands["weight"], "weight")]
    inputs = [tensor("input", operands["input"].shape)]
    if w["bias"]:
        constants.append(numpy_helper.from_array(operands["bias"], "bias"))
    steps = []

    def step(op, names, **attributes):
        steps.append(helper.make_node(op, names, [f"t{len(steps)}"], name=f"{op}{len(steps)}", **attributes))
        return f"t{len(steps) - 1}"

    if w["op"] == "conv2d":
        names = ["input", "weight"] + (["bias"] if w["bias"] else [])
        y = step("Conv", names, kernel_shape=[w["kh"], w["kw"]], strides=[w["sh"], w["sw"]],
                 pads=[w["ph"], w["pw"]] * 2, dilations=[w["dh"], w["dw"]], group=w["groups"])
    else:
        y = step("MatMul", ["input", "weight"])
        if w["bias"]:
            y = step("Add", [y, "bias"])
    if w["add"]:
        inputs.append(tensor("residual", operands["output_shape"]))
        y = step("Add", [y, "residual"])
    if w["relu"]:
        y = step("Relu", [y])
    steps[-1].output[0] = "output"
    graph = helper.make_graph(steps, "op", inputs, [tensor("output", operands["output_shape"])], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
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
