"""Models whose input shapes change with each run: autotune, ONNX Runtime and OpenVINO on the same sequence of random shapes, on one thread,
each in a process of its own. Times include what a runtime does when it first sees a shape; loading the model is not included.

    python lab/peers/families.py --autotune target/release/autotune --out families bert.onnx:input_ids=1x1..512 det.onnx:x=1x3x{320,640}x{320,640}
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy

TYPES = {"tensor(int64)": numpy.int64, "tensor(float)": numpy.float32, "tensor(int32)": numpy.int32}


def tensors(names, types, shapes):
    """Inputs of one run: zeros and ones for integers, else numbers within -1 and 1."""
    random = numpy.random.default_rng(0)
    numbers = [random.uniform(-1, 1, shape) for shape in shapes]
    return {name: (x > 0 if numpy.issubdtype(dtype, numpy.integer) else x).astype(dtype) for name, dtype, x in zip(names, types, numbers)}


def onnx_runtime(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def openvino(path):
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    return request.infer


def peer(kind, path, shapes):
    """Runs a peer on a sequence of shapes; prints its times and its peak memory."""
    import onnx

    inputs = onnx.load(path, load_external_data=False).graph.input
    of = {onnx.TensorProto.INT64: numpy.int64, onnx.TensorProto.FLOAT: numpy.float32}
    names = [info.name for info in inputs]
    types = [of[info.type.tensor_type.elem_type] for info in inputs]
    run = {"onnx_runtime": onnx_runtime, "openvino": openvino}[kind](path)
    secs = []
    for each in shapes:
        given = tensors(names, types, each)
        start = time.perf_counter()
        run(given)
        secs.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"secs": secs, "peak_mb": peak}))


def peers(path, shapes):
    """The times of all peers, each in a process of its own."""
    found = {}
    for kind in ["onnx_runtime", "openvino"]:
        arguments = [sys.executable, __file__, "--peer", kind, path]
        output = subprocess.run(arguments, input=json.dumps(shapes), capture_output=True, text=True, check=True).stdout
        found[kind] = json.loads(output.splitlines()[-1])
    return found


def autotune(command, database, path, shape, runs):
    arguments = [command, "run", path, "--shape", shape, "--repeat", str(runs), "--threads", "1", "--json", "-"]
    arguments += ["--db", database] if database else []
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--autotune", default="target/release/autotune")
    parser.add_argument("--db")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", default="families")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()

    rows, lines = [], ["| model | shapes | runtime | mean ms | median ms | making a network ms | peak MB | mean / autotune's |", "|---|---|---|---|---|---|---|---|"]
    for model in arguments.models:
        path, shape = model.split(":", 1)
        rounds = []
        for _ in range(arguments.rounds):
            own = autotune(arguments.autotune, arguments.db, path, shape, arguments.runs)
            found = {"autotune": {"secs": [run["secs"] for run in own["runs"]], "peak_mb": own["peak_bytes"] / 2**20}}
            found["autotune"]["new_secs"] = [run["new_secs"] for run in own["runs"] if run["new_secs"] > 0]
            found.update(peers(path, [run["shapes"] for run in own["runs"]]))
            rounds.append(found)
        # The round with the least total time: other programs only add to it.
        best = {kind: min((found[kind] for found in rounds), key=lambda one: sum(one["secs"])) for kind in rounds[0]}
        own_mean = numpy.mean(best["autotune"]["secs"])
        for kind, one in best.items():
            mean, median = numpy.mean(one["secs"]), numpy.median(one["secs"])
            new = f"{numpy.median(one['new_secs']) * 1e3:.1f}" if "new_secs" in one else ""
            name = pathlib.Path(path).stem
            lines.append(f"| {name} | {shape} | {kind} | {mean * 1e3:.2f} | {median * 1e3:.2f} | {new} | {one['peak_mb']:.0f} | {mean / own_mean:.2f} |")
        rows.append({"model": os.path.basename(path), "shape": shape, "rounds": rounds})
    pathlib.Path(arguments.out + ".json").write_text(json.dumps(rows))
    pathlib.Path(arguments.out + ".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if sys.argv[1:2] == ["--peer"]:
    peer(sys.argv[2], sys.argv[3], json.load(sys.stdin))
else:
    main()
