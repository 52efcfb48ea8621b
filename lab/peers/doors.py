"""CPU time of a run through each interface: the Python package, the execution provider in ONNX Runtime, the crate `ort`, and the command; on one
thread, untuned, beside ONNX Runtime. CPU time leaves out the moments in which other programs have the core.

    pip install ./python ./ort/wheel onnxruntime
    cargo build --release -p ort-autotune --example latency
    python lab/peers/doors.py target/release/examples/latency 200 resnet18.onnx det.onnx:1x3x320x320
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import autotune
import numpy
import onnxruntime
import onnxruntime_autotune

ROUNDS = 3


def child_secs(words):
    """CPU seconds of a program."""
    usage = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    start = usage()
    subprocess.run(words, check=True, capture_output=True)
    return usage() - start


def sessions(path):
    """Sessions of ONNX Runtime with the provider and without it."""
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == onnxruntime_autotune.get_ep_name()]
    for given in (devices, []):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        if given:
            options.add_provider_for_devices(given, {"threads": "1"})
        yield onnxruntime.InferenceSession(path, options, **({} if given else {"providers": ["CPUExecutionProvider"]}))


def tensors(session, shape):
    """Inputs: ones for integers, else numbers within -1 and 1; open extents are those of a shape, or 1."""
    for info in session.get_inputs():
        is_open = any(not isinstance(extent, int) for extent in info.shape)
        extents = shape if is_open and shape else [extent if isinstance(extent, int) else 1 for extent in info.shape]
        numbers = numpy.arange(numpy.prod(extents)) * 7919 % 2001 / 1000 - 1
        is_integer = info.type == "tensor(int64)"
        yield info.name, is_open, (numpy.ones(extents, numpy.int64) if is_integer else numbers.astype(numpy.float32).reshape(extents))


def measured(latency, runs, path, shape):
    provider, other = sessions(path)
    network = autotune.load(path, threads=1)
    given = list(tensors(other, [int(extent) for extent in shape.split("x")] if shape else None))
    inputs = {name: array for name, _, array in given}
    shapes = [word for name, is_open, _ in given if is_open and shape for word in ("--shape", f"{name}={shape}")]
    command = os.path.join(os.path.dirname(autotune.__file__), "bin", "autotune")
    here = {
        "python": lambda: network.run(inputs),
        "provider": lambda: provider.run(None, inputs),
        "onnxruntime": lambda: other.run(None, inputs),
    }
    programs = {
        "run": lambda count: [command, "run", path, "--threads", "1", "--repeat", str(count), *shapes],
        "ort": lambda count: [latency, path, "1", str(count), *([shape] if shape else [])],
    }

    secs = {door: [] for door in (*here, *programs)}
    for _ in range(ROUNDS):
        for door, run in here.items():
            run()
            start = time.thread_time()
            for _ in range(runs):
                run()
            secs[door].append((time.thread_time() - start) / runs)
        for door, words in programs.items():
            # Loading counts in both.
            secs[door].append((child_secs(words(runs + 10)) - child_secs(words(10))) / runs)
    return {door: statistics.median(times) for door, times in secs.items()}


def main():
    latency, runs, *models = sys.argv[1:]
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp()
    onnxruntime.register_execution_provider_library("autotune", onnxruntime_autotune.get_library_path())
    for model in models:
        path, _, shape = model.partition(":")
        secs = measured(latency, int(runs), path, shape)
        cells = [f"{door} {own * 1e3:.4f} ({own / secs['run']:.3f})" for door, own in secs.items()]
        print(f"{os.path.basename(path)}, CPU ms (of run's): {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
