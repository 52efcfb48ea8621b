"""oneDNN through its C API: every layout is the primitive's own choice, weights are reordered ahead of time."""

import ctypes
import glob
import os
import sys

import numpy as np

from clock import time_calls

F32, ANY, INFERENCE, CPU, RELU = 3, 1, 96, 1, 32
# Types of factors and results of convolutions and products.
DTYPES = {"f32": F32, "bf16": 2}
DIRECT, WINOGRAD, AUTO = 1, 2, 3
POOLINGS = {"max": 0x1ff, "average": 0x2ff}
REDUCTIONS = {"max": 0x2fff2, "min": 0x2fff3, "sum": 0x2fff4, "prod": 0x2fff5, "mean": 0x2fff6}
# Functions of elements.
ELTWISE = {"gelu": 0x31}
SOFTMAXES = {"softmax": 0x30000, "log_softmax": 0x30001}
USE_SCALE, USE_SHIFT = 2, 4
# Layouts of images in blocks of so many channels.
BLOCKED = {16: 78, 8: 102}
QUERY_IMPL = 8
QUERIES = {"input": 129, "weight": 131, "output": 133}
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_SCALE, ARG_SHIFT = 1, 17, 33, 41, 51, 52
ARGS = {"input": ARG_SRC, "weight": ARG_WEIGHTS, "bias": ARG_BIAS, "scale": ARG_SCALE, "shift": ARG_SHIFT,
        "output": ARG_DST}

pointer = ctypes.c_void_p
byref = ctypes.byref


class Arg(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_int), ("memory", pointer)]


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int), ("hash", ctypes.c_char_p)]


class Unsupported(Exception):
    """oneDNN has no such primitive."""


def dims(values):
    return (ctypes.c_int64 * 12)(*values)


class Peer:
    """The library that ONEDNN_LIBRARY names, else the virtual environment's."""

    name = "oneDNN"
    dtypes = tuple(DTYPES)

    def __init__(self, cores):
        found = os.environ.get("ONEDNN_LIBRARY") or next(iter(glob.glob(f"{sys.prefix}/lib/libdnnl.so.3")), None)
        if found is None:
            raise ImportError(f"no libdnnl.so.3 under {sys.prefix}/lib")
        self.lib = ctypes.CDLL(found)
        self.lib.dnnl_version.restype = ctypes.POINTER(Version)
        v = self.lib.dnnl_version().contents
        self.version = f"{v.major}.{v.minor}.{v.patch}"
        self.engine, self.stream = pointer(), pointer()
        self.call("dnnl_engine_create", byref(self.engine), CPU, ctypes.c_size_t(0))
        self.call("dnnl_stream_create", byref(self.stream), self.engine, 1)

    def call(self, function, *args):
        status = getattr(self.lib, function)(*args)
        if status != 0:
            raise Unsupported(f"{function} returned {status}")

    def plain(self, shape, strides=None):
        """Descriptor of a tensor with these strides in elements, row-major without."""
        strides = strides or [int(np.prod(shape[i + 1:])) for i in range(len(shape))]
        md = pointer()
        self.call("dnnl_memory_desc_create_with_strides", byref(md), len(shape), dims(shape), F32, dims(strides))
        return md

    def tagged(self, shape, tag, dtype=F32):
        md = pointer()
        self.call("dnnl_memory_desc_create_with_tag", byref(md), len(shape), dims(shape), dtype, tag)
        return md

    def any(self, shape):
        """Descriptor of a tensor of the workload's type in the primitive's own layout."""
        return self.tagged(shape, ANY, self.dtype)

    def memory(self, md, array=None):
        """Memory of a descriptor: the array's own, or new."""
        handle = pointer(-1) if array is None else array.ctypes.data_as(pointer)
        mem = pointer()
        self.call("dnnl_memory_create", byref(mem), md, self.engine, handle)
        return mem

    def reorder(self, from_md, from_mem, to_md, to_mem):
        pd, primitive = pointer(), pointer()
        self.call("dnnl_reorder_primitive_desc_create", byref(pd), from_md, self.engine, to_md, self.engine, None)
        self.call("dnnl_primitive_create", byref(primitive), pd)
        args = (Arg * 2)((ARG_SRC, from_mem), (ARG_DST, to_mem))
        self.call("dnnl_primitive_execute", primitive, self.stream, 2, args)
        self.call("dnnl_stream_wait", self.stream)

    def attributes(self, workload):
        """The epilogue: a residual is what the output holds beforehand."""
        attr, ops = pointer(), pointer()
        self.call("dnnl_primitive_attr_create", byref(attr))
        self.call("dnnl_post_ops_create", byref(ops))
        if workload["add"]:
            self.call("dnnl_post_ops_append_sum", ops, ctypes.c_float(1), 0, self.dtype)
        if workload["relu"]:
            self.call("dnnl_post_ops_append_eltwise", ops, RELU, ctypes.c_float(0), ctypes.c_float(0))
        self.call("dnnl_primitive_attr_set_post_ops", attr, ops)
        return attr

    def variants(self, workload, operands, exact):
        """Every algorithm that there is, as functions that build it."""
        self.dtype = DTYPES[workload["dtype"]]
        if self.dtype != F32 and workload["op"] not in ("matmul", "conv2d"):
            return
        if workload["op"] == "matmul":
            yield "matmul", lambda: self.matmul(workload, operands)
            if workload["b"] == 1:
                yield "inner product", lambda: self.inner_product(workload, operands)
        elif workload["op"] == "conv2d":
            yield "direct", lambda: self.convolution(workload, operands, DIRECT)
            if not exact:
                yield "winograd", lambda: self.convolution(workload, operands, WINOGRAD)
                yield "auto", lambda: self.convolution(workload, operands, AUTO)
        elif workload["op"] == "pool2d":
            for layout, md in self.layouts(operands["input"].shape):
                yield layout, lambda md=md, layout=layout: self.pooling(workload, operands, md, layout)
        elif workload["op"] in OPERATORS:
            yield workload["op"], lambda: OPERATORS[workload["op"]](self, workload, operands)

    def layouts(self, shape):
        """Those in which images are between convolutions."""
        n, c, h, w = shape
        yield "plain layouts", self.plain(shape)
        yield "channels last", self.plain(shape, [c * h * w, 1, w * c, c])
        for block, tag in BLOCKED.items():
            if c % block == 0:
                yield "blocked layouts", self.tagged(shape, tag)

    def convolution(self, w, operands, algorithm):
        x, weight = operands["input"].shape, operands["weight"].shape
        if w["groups"] > 1:
            weight = (w["groups"], weight[0] // w["groups"], *weight[1:])
        y, pad = operands["output_shape"], dims([w["ph"], w["pw"]])
        bias = self.plain([w["o"]]) if w["bias"] else None
        pd = pointer()
        self.call(
            "dnnl_convolution_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, algorithm,
            self.any(x), self.any(weight), bias, self.any(y), dims([w["sh"], w["sw"]]),
            dims([w["dh"] - 1, w["dw"] - 1]), pad, pad, self.attributes(w))
        shapes = {"input": (x, None), "weight": (weight, None), "output": (y, None)}
        return Op(self, pd, operands, shapes, {"bias": bias})

    def matmul(self, w, operands):
        batch = [w["b"]] if w["b"] > 1 else []
        x, weight, y = [*batch, w["m"], w["k"]], [*batch, w["k"], w["n"]], [*batch, w["m"], w["n"]]
        bias = self.plain([1] * (len(y) - 1) + [w["n"]]) if w["bias"] else None
        pd = pointer()
        self.call("dnnl_matmul_primitive_desc_create", byref(pd), self.engine, self.any(x), self.any(weight), bias,
                  self.any(y), self.attributes(w))
        shapes = {"input": (x, None), "weight": (weight, None), "output": (y, None)}
        return Op(self, pd, operands, shapes, {"bias": bias})

    def inner_product(self, w, operands):
        x, weight, y = (w["m"], w["k"]), (w["n"], w["k"]), (w["m"], w["n"])
        bias = self.plain([w["n"]]) if w["bias"] else None
        pd = pointer()
        self.call("dnnl_inner_product_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, self.any(x),
                  self.any(weight), bias, self.any(y), self.attributes(w))
        shapes = {"input": (x, None), "weight": (weight, [1, w["n"]]), "output": (y, None)}
        return Op(self, pd, operands, shapes, {"bias": bias})

    def pooling(self, w, operands, x_md, layout):
        x, y = operands["input"].shape, operands["output_shape"]
        # What windows reach beyond the image behind it.
        beyond = [(out - 1) * stride + dilation * (kernel - 1) + 1 - extent - pad for out, stride, dilation, kernel, extent, pad
                  in zip(y[2:], w["stride"], w["dilation"], w["kernel"], x[2:], w["pad"])]
        pd = pointer()
        self.call(
            "dnnl_pooling_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, POOLINGS[w["kind"]], x_md,
            self.any(y), dims(w["stride"]), dims(w["kernel"]), dims([d - 1 for d in w["dilation"]]), dims(w["pad"]),
            dims(beyond), None)
        op = Op(self, pd, operands, {"input": (x, None), "output": (y, None)})
        op.how += f", {layout}"
        return op

    def softmax(self, w, operands):
        shape = operands["output_shape"]
        md, pd = self.plain(shape), pointer()
        self.call("dnnl_softmax_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, SOFTMAXES[w["op"]],
                  md, md, 1, None)
        return Op(self, pd, operands, {"input": (shape, None), "output": (shape, None)})

    def pointwise(self, w, operands):
        shape = operands["output_shape"]
        md, pd = self.plain(shape), pointer()
        self.call("dnnl_eltwise_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, ELTWISE[w["kind"]], md,
                  md, ctypes.c_float(0), ctypes.c_float(0), None)
        return Op(self, pd, operands, {"input": (shape, None), "output": (shape, None)})

    def layer_norm(self, w, operands):
        shape = operands["output_shape"]
        md, pd = self.plain(shape), pointer()
        self.call("dnnl_layer_normalization_forward_primitive_desc_create", byref(pd), self.engine, INFERENCE, md, md,
                  None, ctypes.c_float(w["eps"]), USE_SCALE | USE_SHIFT, None)
        row = self.plain(shape[1:])
        shapes = {"input": (shape, None), "output": (shape, None)}
        return Op(self, pd, operands, shapes, {"scale": row, "shift": row})

    def reduction(self, w, operands):
        x, y = operands["input"].shape, [*operands["output_shape"], 1]
        pd = pointer()
        self.call("dnnl_reduction_primitive_desc_create", byref(pd), self.engine, REDUCTIONS[w["kind"]], self.plain(x),
                  self.plain(y), ctypes.c_float(0), ctypes.c_float(0), None)
        return Op(self, pd, operands, {"input": (x, None), "output": (y, None)})

    def transposition(self, w, operands):
        """A change of layouts: what is stored differently has the same shape."""
        b, m, n = shape = operands["input"].shape
        pd = pointer()
        turned = [m * n, 1, m]
        self.call("dnnl_reorder_primitive_desc_create", byref(pd), self.plain(shape), self.engine,
                  self.plain(shape, turned), self.engine, None)
        return Op(self, pd, operands, {"input": (shape, None), "output": (shape, turned)})


# Of a peer, a workload and its operands, the primitive.
OPERATORS = {"softmax": Peer.softmax, "log_softmax": Peer.softmax, "layer_norm": Peer.layer_norm,
             "reduce": Peer.reduction, "pointwise": Peer.pointwise, "transpose": Peer.transposition}


class Op:
    """A primitive with its memory in the layouts that it chose; `rows` are operands in one dimension, with their layouts."""

    def __init__(self, peer, pd, operands, shapes, rows={}):
        self.peer, self.operands, self.shapes = peer, operands, shapes
        info = ctypes.c_char_p()
        peer.call("dnnl_primitive_desc_query", pd, QUERY_IMPL, 0, byref(info))
        self.how = info.value.decode()
        self.primitive = pointer()
        peer.call("dnnl_primitive_create", byref(self.primitive), pd)
        query = peer.lib.dnnl_primitive_desc_query_md
        query.restype = pointer
        self.mds = {name: pointer(query(pd, QUERIES[name], 0)) for name in shapes}
        self.mems = {name: peer.memory(md) for name, md in self.mds.items()}
        for name in shapes:
            if name != "output":
                self.put(name, operands[name])
        args = [(ARGS[name], mem) for name, mem in self.mems.items()]
        args += [(ARGS[name], peer.memory(md, operands[name])) for name, md in rows.items() if md]
        self.args = (Arg * len(args))(*args)

    def put(self, name, array):
        """Fills the memory of an operand from a row-major tensor."""
        md = self.peer.plain(*self.shapes[name])
        self.peer.reorder(md, self.peer.memory(md, array), self.mds[name], self.mems[name])

    def output(self):
        """The output of one run."""
        residual = self.operands.get("residual")
        y = np.full(self.operands["output_shape"], np.nan, np.float32) if residual is None else residual.copy()
        self.put("output", y)
        self.time(1)
        md = self.peer.plain(*self.shapes["output"])
        self.peer.reorder(self.mds["output"], self.mems["output"], md, self.peer.memory(md, y))
        return y

    def time(self, runs):
        """Seconds of so many runs."""
        lib, stream = self.peer.lib, self.peer.stream
        args = (self.primitive, stream, len(self.args), self.args)
        return time_calls(lib.dnnl_primitive_execute, args, runs, (lib.dnnl_stream_wait, stream))
