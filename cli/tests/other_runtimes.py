"""Runs a quantised model with one input in ONNX Runtime and, if it is installed, OpenVINO, and compares the only output with a file:
`other_runtimes.py MODEL.onnx INPUT.npy OUTPUT.npy`. Values halfway between two steps may round either way.
"""

import importlib.util
import sys

import numpy
import onnxruntime

LARGEST_DIFFERENCE = 0.02


def onnx_runtime(model, data):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without it, sums of products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: data})[0]


def open_vino(model, data):
    import openvino

    network = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return network([data])[0]


def main(model, data, wanted):
    data, wanted = numpy.load(data), numpy.load(wanted)
    runtimes = [onnx_runtime] + ([open_vino] if importlib.util.find_spec("openvino") else [])
    for runtime in runtimes:
        difference = numpy.abs(runtime(model, data) - wanted).max() / numpy.abs(wanted).max()
        print(f"{runtime.__name__}: relative difference {difference:.1e}")
        if not difference <= LARGEST_DIFFERENCE:
            sys.exit(1)


main(*sys.argv[1:])
