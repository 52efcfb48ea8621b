"""Random operands of a workload and the right answer, by numpy."""

import numpy as np

# Products of more multiply-adds than this are compared by some of their rows.
FULL_MACS = 2**34
SAMPLED_ROWS = 256


def operands_of(w):
    """Operands in plain layouts: input NCHW, weight OIHW, or the matrices of a batch."""
    rng = np.random.default_rng(0)
    tensor = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
    if w["op"] == "conv2d":
        size = lambda x, k, p, s, d: (x + 2 * p - d * (k - 1) - 1) // s + 1
        oh = size(w["h"], w["kh"], w["ph"], w["sh"], w["dh"])
        ow = size(w["w"], w["kw"], w["pw"], w["sw"], w["dw"])
        output = (w["n"], w["o"], oh, ow)
        made = {
            "input": tensor(w["n"], w["c"], w["h"], w["w"]),
            "weight": tensor(w["o"], w["c"] // w["groups"], w["kh"], w["kw"]),
        }
        bias = w["o"]
    else:
        output, bias = (w["b"], w["m"], w["n"]), w["n"]
        made = {"input": tensor(w["b"], w["m"], w["k"]), "weight": tensor(w["b"], w["k"], w["n"])}
    if w["bias"]:
        made["bias"] = tensor(bias)
    if w["add"]:
        made["residual"] = tensor(*output)
    return {**made, "output_shape": output}


def compared(w):
    """Which rows of the output are compared: all of them, or of a large product some at random."""
    if w["op"] == "matmul" and w["b"] * w["m"] * w["n"] * w["k"] > FULL_MACS and w["m"] > SAMPLED_ROWS:
        return np.sort(np.random.default_rng(1).choice(w["m"], SAMPLED_ROWS, replace=False))
    return slice(None)


def reference(w, operands, rows):
    """Those rows of the output, in f32 sums of numpy's own order."""
    x, weight = operands["input"], operands["weight"]
    if w["op"] == "conv2d":
        y = convolution(w, x, weight, operands["output_shape"])
        bias_shape = (1, -1, 1, 1)
    else:
        y, bias_shape = x[..., rows, :] @ weight, (1, 1, -1)
    if w["bias"]:
        y = y + operands["bias"].reshape(bias_shape)
    if w["add"]:
        y = y + operands["residual"][..., rows, :]
    return np.maximum(y, 0) if w["relu"] else y


def convolution(w, x, weight, output_shape):
    """A matrix product for each tap of the kernel."""
    n, o, oh, ow = output_shape
    groups, per_group = w["groups"], w["c"] // w["groups"]
    x = np.pad(x, ((0, 0), (0, 0), (w["ph"], w["ph"]), (w["pw"], w["pw"])))
    y = np.zeros((n, groups, o // groups, oh * ow), np.float32)
    for i in range(w["kh"]):
        for j in range(w["kw"]):
            top, left = i * w["dh"], j * w["dw"]
            rows = slice(top, top + (oh - 1) * w["sh"] + 1, w["sh"])
            columns = slice(left, left + (ow - 1) * w["sw"] + 1, w["sw"])
            data = x[:, :, rows, columns].reshape(n, groups, per_group, oh * ow)
            y += weight[:, :, i, j].reshape(groups, o // groups, per_group) @ data
    return y.reshape(output_shape)
