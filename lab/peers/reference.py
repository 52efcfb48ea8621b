"""Random operands of a workload and the right answer, by numpy."""

import functools
import math

import numpy as np

# Products of more multiply-adds than this are compared by some of their rows.
FULL_MACS = 2**34
SAMPLED_ROWS = 256


def operands_of(w):
    """Operands in plain layouts, by their names, and the shape of the output."""
    rng = np.random.default_rng(0)
    made = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in w["operands"].items()}
    return {**made, "output_shape": tuple(w["output_shape"])}


def compared(w):
    """Which elements of the output are compared: all of them, or of a large product some rows at random."""
    if w["op"] == "matmul" and w["b"] * w["m"] * w["n"] * w["k"] > FULL_MACS and w["m"] > SAMPLED_ROWS:
        return ..., np.sort(np.random.default_rng(1).choice(w["m"], SAMPLED_ROWS, replace=False)), slice(None)
    return ...


def reference(w, operands, chosen):
    """Those elements of the output: contractions in f32 sums of numpy's own order, all else in f64."""
    if w["op"] in OPERATORS:
        return OPERATORS[w["op"]](w, **{name: operands[name].astype(np.float64) for name in w["operands"]})
    x = operands["input"]
    if w["op"] == "conv2d":
        y = convolution(w, x, operands["weight"], operands["output_shape"])
        bias_shape = (1, -1, 1, 1)
    else:
        y, bias_shape = x[chosen] @ operands["weight"], (1, 1, -1)
    if w["bias"]:
        y = y + operands["bias"].reshape(bias_shape)
    if w["add"]:
        y = y + operands["residual"][chosen]
    return np.maximum(y, 0) if w["relu"] else y


def log_softmax(x, axis):
    below = x - x.max(axis, keepdims=True)
    return below - np.log(np.exp(below).sum(axis, keepdims=True))


def layer_norm(w, input, scale, shift):
    centred = input - input.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + w["eps"]) * scale + shift


def rms_norm(w, input, scale):
    return input / np.sqrt((input * input).mean(1, keepdims=True) + w["eps"]) * scale


def pool2d(w, input):
    """Tap by tap; what a mean reads of the padding is zero, the largest element is never there."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = w["kernel"], w["stride"], w["pad"], w["dilation"]
    oh, ow = w["output_shape"][2:]
    beyond = [max(0, (out - 1) * s + d * (k - 1) + 1 - size - p) for out, size, k, s, p, d in
              zip((oh, ow), input.shape[2:], w["kernel"], w["stride"], w["pad"], w["dilation"])]
    fill = -np.inf if w["kind"] == "max" else 0
    x = np.pad(input, ((0, 0), (0, 0), (ph, beyond[0]), (pw, beyond[1])), constant_values=fill)
    taps = [x[:, :, i * dh:i * dh + (oh - 1) * sh + 1:sh, j * dw:j * dw + (ow - 1) * sw + 1:sw]
            for i in range(kh) for j in range(kw)]
    return functools.reduce(np.maximum, taps) if w["kind"] == "max" else sum(taps) / (kh * kw)


def attention(w, query, key, value):
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[2])
    return np.exp(log_softmax(scores, 2)) @ value


def gelu(input):
    return input / 2 * (1 + np.frompyfunc(math.erf, 1, 1)(input / 2**0.5).astype(np.float64))


# What is no single contraction: a function of the workload and of its operands in f64.
OPERATORS = {
    "softmax": lambda w, input: np.exp(log_softmax(input, 1)),
    "log_softmax": lambda w, input: log_softmax(input, 1),
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "pool2d": pool2d,
    "reduce": lambda w, input: getattr(input, w["kind"])(1),
    "pointwise": lambda w, input: {"gelu": gelu}[w["kind"]](input),
    "transpose": lambda w, input: input.transpose(0, 2, 1),
    "attention": attention,
}


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
