"""Sessions of ONNX Runtime with autotune's execution provider and without it, in one process, with interleaved runs on one thread.

    pip install ./python onnxruntime
    python lab/peers/provider.py --out provider resnet18.onnx det.onnx:x=1x3x320x320
"""

import argparse
import json
import pathlib
import statistics
import time

import autotune
import numpy
import onnxruntime

TYPES = {"tensor(int64)": numpy.int64, "tensor(float)": numpy.float32, "tensor(int32)": numpy.int32}


def session(path, has_provider):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if has_provider:
        autotune.add_provider(options, threads=1)
        return onnxruntime.InferenceSession(path, options, enable_fallback=0)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def tensors(session, shapes):
    """Inputs of a run: ones for integers, else numbers within -1 and 1."""
    random = numpy.random.default_rng(0)
    given = {}
    for info in session.get_inputs():
        shape = shapes.get(info.name) or [extent if isinstance(extent, int) else 1 for extent in info.shape]
        dtype = TYPES[info.type]
        is_integer = numpy.issubdtype(dtype, numpy.integer)
        given[info.name] = numpy.ones(shape, dtype) if is_integer else random.uniform(-1, 1, shape).astype(dtype)
    return given


def measured(path, shapes, rounds):
    own, other = session(path, True), session(path, False)
    inputs = tensors(other, shapes)
    pairs = list(zip(own.run(None, inputs), other.run(None, inputs)))
    error = max(numpy.abs(found - wanted).max() / numpy.abs(wanted).max() for found, wanted in pairs if wanted.dtype.kind == "f")
    secs = ([], [])
    for _ in range(rounds):
        for each, times in zip((own, other), secs):
            start = time.perf_counter()
            each.run(None, inputs)
            times.append(time.perf_counter() - start)

    parts = own.get_provider_graph_assignment_info()
    taken = [len(part.get_nodes()) for part in parts if part.ep_name == autotune.PROVIDER]
    return {
        "model": pathlib.Path(path).stem,
        "shapes": {name: list(array.shape) for name, array in inputs.items()},
        "nodes": sum(len(part.get_nodes()) for part in parts),
        "taken_nodes": sum(taken),
        "parts": len(taken),
        "max_rel_error": float(error),
        "provider_secs": statistics.median(secs[0]),
        "onnx_runtime_secs": statistics.median(secs[1]),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx[:INPUT=1x3x320x320..]")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", default="provider")
    arguments = parser.parse_args()
    rows = []
    for word in arguments.models:
        path, *given = word.split(":")
        shapes = {name: list(map(int, shape.split("x"))) for name, shape in (one.rsplit("=", 1) for one in given)}
        rows.append(measured(path, shapes, arguments.rounds))
        row = rows[-1]
        ratio = row["onnx_runtime_secs"] / row["provider_secs"]
        print(f"| {row['model']} | {row['taken_nodes']} of {row['nodes']} in {row['parts']} | {row['provider_secs'] * 1e3:.2f} "
              f"| {row['onnx_runtime_secs'] * 1e3:.2f} | {ratio:.2f} | {row['max_rel_error']:.0e} |", flush=True)
    pathlib.Path(f"{arguments.out}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
