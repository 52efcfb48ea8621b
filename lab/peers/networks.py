#!/usr/bin/env python3
"""Whole networks beside ONNX Runtime and OpenVINO: latency, load time, peak memory, bytes on disk.

    lab/peers/setup.sh                                   # once: the libraries, into target/peers-venv
    target/peers-venv/bin/python lab/peers/networks.py --db tuned.snapshot --threads 1,2 \\
        --out lab/results/networks model.onnx detector.onnx@image=1x3x640x640 ...

Every round gives every contender a turn in a process of its own, pinned to the same cores: it loads the network, runs it a few times to warm
up and then `--runs` times on the same random inputs. Times, and the times in a ratio, are medians over the rounds of the turns' medians. A
time counts only if the outputs are those of ONNX Runtime without optimisations. Weights that a file makes of a constant are drawn at random,
so that no mistake of layout can hide. The inputs of a softmax are compared, too, since a softmax hides differences if one element is far above
the others. If a file leaves shapes open, the text after `@` states them, for all contenders.

With `--int8`, ONNX Runtime's quantiser also writes each network with 8-bit tensors (QDQ, u8 tensors, i8 weights per channel, ranges of two random
inputs), which autotune, ONNX Runtime and OpenVINO run in the same rounds. A second table has their times and the largest errors of outputs,
relative to the largest element.

Bytes on disk are those of what runs the network where it is deployed: of ours, the library that `autotune compile` makes; of the others, the
model's file and, apart, the shared libraries that read it and run it on a CPU.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

WARM_UP = 3
# Parts of the names of the shared libraries that run ONNX files on a CPU.
LIBRARIES = {
    "ort": ("onnxruntime", ["capi/libonnxruntime.so"]),
    "ov_f32": ("openvino", ["libs/libopenvino.so", "libs/libopenvino_onnx_frontend", "libs/libopenvino_intel_cpu_plugin", "libs/libtbb.so"]),
}
TOLERANCE = 1e-3
# Options of the command for each contender of ours.
OWN = {"autotune": [], "autotune_bf16": ["--precision", "bf16"], "autotune_int8": []}
CONTENDERS = {
    "autotune": "autotune",
    "autotune_bf16": "autotune, bf16",
    "ort": "ONNX Runtime, all optimisations",
    "ort_extended": "ONNX Runtime, extended",
    "ov_f32": "OpenVINO, f32",
    "ov": "OpenVINO, its precision",
}
# Contenders that run the quantised network.
QUANTISED = {
    "autotune_int8": "autotune, int8",
    "ort_int8": "ONNX Runtime, int8",
    "ov_f32_int8": "OpenVINO, int8 and f32",
    "ov_int8": "OpenVINO, int8",
}
# Least opset of quantisation per channel.
QUANTISED_OPSET = 13


def onnx_runtime(model, threads, level):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs), [output.name for output in session.get_outputs()]


def openvino(model, threads, precision):
    import openvino

    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", **precision}
    compiled = openvino.Core().compile_model(model, "CPU", config)
    request = compiled.create_infer_request()

    def run(inputs):
        request.infer(inputs, share_inputs=True)
        return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]

    return run, [output.get_any_name() for output in compiled.outputs]


LOADERS = {
    "reference": lambda model, threads: onnx_runtime(model, threads, "ORT_DISABLE_ALL"),
    "ort": lambda model, threads: onnx_runtime(model, threads, "ORT_ENABLE_ALL"),
    "ort_extended": lambda model, threads: onnx_runtime(model, threads, "ORT_ENABLE_EXTENDED"),
    "ov_f32": lambda model, threads: openvino(model, threads, {"INFERENCE_PRECISION_HINT": "f32"}),
    "ov": lambda model, threads: openvino(model, threads, {}),
}


def model_of(contender, folder):
    """The file that a contender runs."""
    return pathlib.Path(folder, "int8.onnx" if contender in QUANTISED else "model.onnx")


def given(folder):
    """The files of the inputs by their names."""
    return json.loads(pathlib.Path(folder, "inputs.json").read_text())


def turn(contender, folder, threads, runs):
    """A turn of a peer, in this process: prints its figures."""
    inputs = {name: np.load(path) for name, path in given(folder).items()}
    start = time.perf_counter()
    run, names = LOADERS[contender.removesuffix("_int8")](str(model_of(contender, folder)), threads)
    load_secs = time.perf_counter() - start
    outputs = run(inputs)
    os.makedirs(pathlib.Path(folder, contender), exist_ok=True)
    for name, output in zip(names, outputs):
        np.save(pathlib.Path(folder, contender, name.replace("/", "_") + ".npy"), output)
    secs = []
    for number in range(WARM_UP + runs):
        start = time.perf_counter()
        run(inputs)
        secs.append(time.perf_counter() - start)
    figures = {"median": statistics.median(secs[WARM_UP:]), "load_secs": load_secs, "peak_bytes": peak_bytes()}
    print(json.dumps(figures))


def peak_bytes():
    """The most memory that this process had since its program began."""
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def own_turn(name, args, folder, threads_and_cores):
    """A turn of ours."""
    threads, cores = threads_and_cores
    inputs = [f"--input={name}={path}" for name, path in given(folder).items()]
    command = ["taskset", "-c", cores, args.autotune, "run", str(model_of(name, folder)), "--target", args.target, "--threads", str(threads), "--db", args.db,
               "--repeat", str(args.runs), "--output", str(pathlib.Path(folder, name)), "--json", "-", *OWN[name], *inputs]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"median": figures["latency_secs"]["median"], "load_secs": figures["load_secs"],
            "peak_bytes": figures["peak_bytes"], "untuned": figures["untuned_tasks"]}


def shapes_of(word):
    """The file of `model.onnx@image=1x3x640x640,mask=1x640`, and shapes of its inputs by name."""
    path, _, shapes = word.partition("@")
    parts = [part.rpartition("=") for part in shapes.split(",") if part]
    return path, {name: [int(extent) for extent in extents.split("x")] for name, _, extents in parts}


def random_input(random, value):
    """A tensor for an input of a model."""
    import onnx

    extents = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return random.integers(0, 2, extents)
    return random.uniform(-1, 1, extents).astype(np.float32)


def prepare(path, given_shapes, folder):
    """The model with random weights in place of constant ones, inputs of known shapes, and random tensors for these."""
    import onnx
    from onnx import numpy_helper

    model, random = onnx.load(path), np.random.default_rng(0)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(extent) for extent in shapes[node.input[0]])
            # Scales and variances are positive; sums keep their size from layer to layer.
            fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 0
            drawn = random.standard_normal(shape) * np.sqrt(2 / fan_in) if fan_in else random.uniform(0.5, 1.5, shape)
            model.graph.initializer.append(numpy_helper.from_array(drawn.astype(np.float32), node.output[0]))
        else:
            model.graph.node.append(node)
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    constants = {tensor.name for tensor in kept} | set(shapes)
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    unknown = given_shapes.keys() - {value.name for value in inputs}
    if unknown:
        sys.exit(f"{path}: no input is called {', '.join(unknown)}")
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, extent in zip(dims, given_shapes.get(value.name, [dim.dim_value for dim in dims]), strict=True):
            dim.dim_value = max(extent, 1)
    results = {value.name for value in model.graph.output}
    logits = {node.input[0] for node in model.graph.node if node.op_type == "Softmax" and node.output[0] in results}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in sorted(logits - results))
    for value in model.graph.output:
        if not value.HasField("type"):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.ir_version = max(model.ir_version, 8)
    onnx.save(model, pathlib.Path(folder, "model.onnx"))

    os.makedirs(pathlib.Path(folder, "inputs"), exist_ok=True)
    names = {}
    for number, value in enumerate(model.graph.input):
        names[value.name] = str(pathlib.Path(folder, "inputs", f"{number}.npy"))
        np.save(names[value.name], random_input(random, value))
    pathlib.Path(folder, "inputs.json").write_text(json.dumps(names))


def quantise(folder):
    """Writes the model with 8-bit tensors. Runs in a process of its own, since the quantiser has a module of the name of one here."""
    sys.path[:] = [path for path in sys.path if pathlib.Path(path).resolve() != pathlib.Path(__file__).parent.resolve()]
    import onnx
    import onnx.version_converter
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quant_pre_process, quantize_static

    class RandomInputs(CalibrationDataReader):
        def __init__(self, model):
            random = np.random.default_rng(1)
            self.feeds = iter([{value.name: random_input(random, value) for value in model.graph.input} for _ in range(2)])

        def get_next(self):
            return next(self.feeds, None)

    path, prepared = pathlib.Path(folder, "model.onnx"), pathlib.Path(folder, "prepared.onnx")
    model = onnx.load(path)
    if model.opset_import[0].version < QUANTISED_OPSET:
        onnx.save(onnx.version_converter.convert_version(model, QUANTISED_OPSET), prepared)
        path = prepared
    quant_pre_process(path, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, pathlib.Path(folder, "int8.onnx"), RandomInputs(model), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    prepared.unlink()


def bytes_on_disk(args, folder, threads):
    """What runs the network where it is deployed: by contender, bytes of the network and of libraries beside it."""
    library = pathlib.Path(folder, "library", "network.so")
    library.parent.mkdir(exist_ok=True)
    command = [args.autotune, "compile", str(pathlib.Path(folder, "model.onnx")), "-o", str(library), "--target", args.target, "--threads", str(threads), "--db", args.db]
    subprocess.run(command, check=True, capture_output=True)
    sizes = {"autotune": [library.stat().st_size, 0]}
    for contender, (package, parts) in LIBRARIES.items():
        root = pathlib.Path(importlib.util.find_spec(package).origin).parent
        files = {path.resolve() for part in parts for path in root.glob(part + "*")}
        sizes[contender] = [pathlib.Path(folder, "model.onnx").stat().st_size, sum(path.stat().st_size for path in files)]
    return sizes


def error_of(folder, contender):
    """The largest error of a contender's outputs, relative to the largest element of each output."""
    error = 0.0
    for path in pathlib.Path(folder, "reference").glob("*.npy"):
        wanted, found = np.load(path), np.load(pathlib.Path(folder, contender, path.name))
        if wanted.shape != found.shape or not np.isfinite(found).all():
            return float("inf")
        error = max(error, float(np.abs(wanted - found).max() / (np.abs(wanted).max() or 1.0)))
    return error


def measure(args, path, shapes, threads):
    """A row: for each contender its figures, or why there are none."""
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:threads])

    def peer(name, folder, runs):
        command = ["taskset", "-c", cores, sys.executable, __file__, "--turn", name, folder, str(threads), str(runs)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{path}: {CONTENDERS.get(name) or QUANTISED.get(name)} failed ({done.returncode}): {done.stderr[-200:]}", file=sys.stderr)
            return None
        return json.loads(done.stdout.splitlines()[-1])

    with tempfile.TemporaryDirectory() as temporary:
        folder = str(pathlib.Path(args.keep, pathlib.Path(path).stem)) if args.keep else temporary
        os.makedirs(folder, exist_ok=True)
        prepare(path, shapes, folder)
        peer("reference", folder, 1)
        contenders = list(CONTENDERS)
        if args.int8:
            with ProcessPoolExecutor(1) as process:
                process.submit(quantise, folder).result()
            contenders += QUANTISED
        turns = {name: [] for name in contenders}
        for number in range(args.rounds):
            names = list(contenders)
            for name in names[number % len(names):] + names[:number % len(names)]:
                is_own = name in OWN
                turns[name].append(own_turn(name, args, folder, (threads, cores)) if is_own else peer(name, folder, args.runs))
        row = {}
        for name, of in turns.items():
            # A contender that failed has no figures.
            if None in of:
                row[name] = None
                continue
            middle = {key: statistics.median(turn[key] for turn in of) for key in of[0]}
            # Contenders of another precision than f32 are shown with their error.
            middle["error"] = error_of(folder, name)
            middle["right"] = middle["error"] < TOLERANCE
            row[name] = middle
        for name, sizes in bytes_on_disk(args, folder, threads).items():
            row[name]["network_bytes"], row[name]["library_bytes"] = sizes
        return row


def size(figures):
    """`46.8`, or `46.8 + 29.4` where libraries are needed beside the network."""
    network, library = (figures[key] / 1e6 for key in ("network_bytes", "library_bytes"))
    return f"{network:.1f}" + (f" + {library:.1f}" if library else "")


def geometric(ratios):
    return f"{float(np.exp(np.mean(np.log(ratios)))):.2f} (minimum {min(ratios):.2f})"


def quantised_table(rows):
    lines = ["| network | " + " | ".join(QUANTISED.values()) + " | best peer / autotune | autotune f32 / int8 | errors (autotune bf16, OpenVINO's precision; "
             "int8: autotune, ONNX Runtime, OpenVINO) |", "|---" * (len(QUANTISED) + 4) + "|"]
    ratios = []
    for name, row in rows.items():
        cells = [f"{row[c]['median'] * 1e3:.2f}" if row[c] else "failed" for c in QUANTISED]
        own = row["autotune_int8"]["median"]
        ratios.append(min(row[c]["median"] for c in QUANTISED if c != "autotune_int8" and row[c]) / own)
        errors = [f"{row[c]['error']:.1e}" if row[c] else "-" for c in ("autotune_bf16", "ov", "autotune_int8", "ort_int8", "ov_f32_int8")]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {ratios[-1]:.2f} | {row['autotune']['median'] / own:.2f} | "
                     f"{', '.join(errors[:2])}; {', '.join(errors[2:])} |")
    return "\n".join(lines + ["", f"Geometric mean of the ratios of int8: {geometric(ratios)}.", ""])


def table(rows, threads):
    lines = [f"### {threads} thread{'s' if threads > 1 else ''}", ""]
    lines += ["| network | " + " | ".join(CONTENDERS.values()) + " | best f32 peer / autotune | OpenVINO's precision / bf16 | "
              "load s (autotune, ORT, OV) | peak MB (the same) | MB on disk (the same) |", "|---" * (len(CONTENDERS) + 6) + "|"]
    ratios, rounded = [], []
    for name, row in rows.items():
        cell = lambda c: f"{row[c]['median'] * 1e3:.2f}" + ("" if row[c]["right"] else " (*)")
        peers = [row[c]["median"] for c in ("ort", "ort_extended", "ov_f32") if row[c]["right"]]
        ratio = min(peers) / row["autotune"]["median"] if peers and row["autotune"]["right"] else float("nan")
        ratios.append(ratio)
        rounded.append(row["ov"]["median"] / row["autotune_bf16"]["median"])
        three = ("autotune", "ort", "ov_f32")
        load = ", ".join(f"{row[c]['load_secs']:.2f}" for c in three)
        peak = ", ".join(f"{row[c]['peak_bytes'] / 1e6:.0f}" for c in three)
        on_disk = ", ".join(size(row[c]) for c in three)
        lines.append(f"| {name} | " + " | ".join(cell(c) for c in CONTENDERS) + f" | {ratio:.2f} | {rounded[-1]:.2f} | {load} | {peak} | {on_disk} |")
    lines += ["", f"Geometric means of the ratios: f32 {geometric(ratios)}, bf16 {geometric(rounded)}.", ""]
    quantised = {name: row for name, row in rows.items() if "autotune_int8" in row}
    return "\n".join(lines + ([quantised_table(quantised)] if quantised else []))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="ONNX files, with shapes of their inputs where these are open: model.onnx@image=1x3x640x640")
    parser.add_argument("--autotune", default="target/release/autotune", help="the command")
    parser.add_argument("--db", required=True, help="tuning database, or the snapshot of one, which takes less time and memory to open; what it lacks runs by its predicted schedule")
    parser.add_argument("--target", default="cpu", help="ours: cpu, or cpu:avx2 without AVX-512")
    parser.add_argument("--int8", action="store_true", help="also the networks with 8-bit tensors, by ONNX Runtime's quantiser")
    parser.add_argument("--keep", help="a folder for the prepared files, which are temporary otherwise")
    parser.add_argument("--threads", default="1", help="such as 1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20, help="of each turn")
    parser.add_argument("--out", required=True, help="where .md and .json go")
    args = parser.parse_args()

    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    figures, text = {"cpu": cpu, "rounds": args.rounds, "runs": args.runs, "threads": {}}, []
    for threads in map(int, args.threads.split(",")):
        rows = {}
        for path, shapes in map(shapes_of, args.models):
            rows[pathlib.Path(path).stem] = measure(args, path, shapes, threads)
            print(f"{path}, {threads} thread(s): done", file=sys.stderr)
        figures["threads"][threads] = rows
        text.append(table(rows, threads))
    head = (f"# Whole networks\n\nMilliseconds per run with batch 1, on {cpu}, {time.strftime('%Y-%m-%d')}: medians over {args.rounds} rounds of "
            f"{args.runs} runs, with the contenders interleaved (`lab/peers/networks.py`). (*): outputs differ by more than {TOLERANCE:g} of the largest "
            f"element, as in bf16.\n\n")
    pathlib.Path(args.out + ".md").write_text(head + "\n".join(text))
    pathlib.Path(args.out + ".json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        turn(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
