"""OpenVINO's CPU plugin through its C API: latency hint, f32, inputs and outputs set once."""

import ctypes
import glob
import pathlib
import tempfile

import numpy as np
import openvino as ov

import onnx_model
from clock import time_calls

pointer = ctypes.c_void_p
byref = ctypes.byref


class Peer:
    name = "OpenVINO"

    def __init__(self, cores):
        self.version = ov.__version__.split("-")[0]
        folder = pathlib.Path(ov.__file__).parent / "libs"
        self.lib = ctypes.CDLL(glob.glob(f"{folder}/libopenvino_c.so*")[0])
        self.core = pointer()
        self.call("ov_core_create", byref(self.core))
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": str(len(cores)),
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": "YES",
        }
        self.properties = [word.encode() for pair in properties.items() for word in pair]

    def call(self, function, *args):
        status = getattr(self.lib, function)(*args)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def variants(self, workload, operands, exact):
        yield "plain layouts", lambda: Op(self, workload, operands, False)
        if workload["op"] in ("conv2d", "pool2d"):
            yield "channels last", lambda: Op(self, workload, operands, True)

    def compile(self, model):
        """Compiles a model and makes a request for it."""
        compiled, request = pointer(), pointer()
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/op.xml"
            ov.save_model(model, file, compress_to_fp16=False)
            self.call("ov_core_compile_model_from_file", self.core, file.encode(), b"CPU",
                      ctypes.c_size_t(len(self.properties)), byref(compiled), *self.properties)
        self.call("ov_compiled_model_create_infer_request", compiled, byref(request))
        return request

    def view(self, request, side, index, shape):
        """The elements of the request's tensor."""
        tensor, data = pointer(), pointer()
        self.call(f"ov_infer_request_get_{side}_tensor_by_index", request, ctypes.c_size_t(index), byref(tensor))
        self.call("ov_tensor_data", tensor, byref(data))
        floats = ctypes.cast(data, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(floats, tuple(shape))


class Op:
    """A model of one operator, with its boundaries in plain layouts or with the channels last."""

    def __init__(self, peer, workload, operands, channels_last):
        self.how, self.channels_last = "channels last" if channels_last else "plain layouts", channels_last
        model = ov.Core().read_model(onnx_model.model(workload, operands).SerializeToString())
        names = [port.any_name for port in model.inputs]
        if channels_last:
            steps = ov.preprocess.PrePostProcessor(model)
            for name in names:
                steps.input(name).tensor().set_layout(ov.Layout("NHWC"))
                steps.input(name).model().set_layout(ov.Layout("NCHW"))
            steps.output().model().set_layout(ov.Layout("NCHW"))
            steps.output().tensor().set_layout(ov.Layout("NHWC"))
            model = steps.build()
        self.infer, self.request = peer.lib.ov_infer_request_infer, peer.compile(model)
        for i, name in enumerate(names):
            array = operands[name].transpose(0, 2, 3, 1) if channels_last else operands[name]
            peer.view(self.request, "input", i, array.shape)[:] = array
        n, *inner = operands["output_shape"]
        shape = (n, *inner[1:], inner[0]) if channels_last else (n, *inner)
        self.result = peer.view(self.request, "output", 0, shape)

    def output(self):
        """The output of one run."""
        self.time(1)
        return self.result.transpose(0, 3, 1, 2) if self.channels_last else self.result

    def time(self, runs):
        """Seconds of so many runs."""
        return time_calls(self.infer, [self.request], runs)
