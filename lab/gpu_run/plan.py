"""What the two calls run: their steps, in order, with the most seconds that each may take."""

import json
import os
import re

import tools


class Command:
    """A program to run, with environment variables of its own. What it says goes to the step's output, or to a file of its own."""

    def __init__(self, *argv, stdin="", output=None, limit=None, env=None):
        self.argv = [str(word) for word in argv]
        self.stdin, self.output, self.limit, self.env = stdin, output, limit, env or {}


class Step:
    """Commands, one after the other; all of them run whatever the others do.

    `commands(place)` lists them when the step's turn comes; text instead says why there is nothing to run.
    """

    def __init__(self, name, limit, commands):
        self.name, self.limit, self.commands = name, limit, commands


# Tests of the device in the order of what they say: each matrix instruction, the pipelines at full size, all sketches, all types.
INSTRUCTIONS = "tensor_cores::matrix_instructions_are_right"
LARGE_VARIANTS = "tensor_cores::large_variants_are_right"
GENERATED = "generated_kernels_are_right_while_others_are_built"
OTHER_TESTS = ["device::", "ceilings", "only_cuda_records_graphs", "large_outputs", "worker::", "in_process::"]

# How many of the large variants the first call takes, evenly spread; the second takes all.
FIRST_VARIANTS = 96

# A wait of a kernel that goes on for too long is an error of it, and no hang.
CHECKED = {"AUTOTUNE_CHECKED": "1"}

# Each is run untuned.
SANITIZED = ["matmul:m=72,n=88,k=80,bias", "matmul:m=200,n=136,k=160,dtype=f16", "matmul:m=136,n=264,k=320,dtype=bf16,bias",
             "matmul:m=72,n=88,k=80,dtype=tf32", "conv2d:c=16,h=14,w=14,o=32,k=3,p=1,dtype=f16",
             "conv2d:c=8,h=14,w=14,o=16,k=3,p=1,bias,act=relu", "attention:b=2,m=40,n=70,k=32,causal", "softmax:m=70,n=300"]
# What compute-sanitizer looks for: accesses beyond buffers, then races in shared memory.
SANITIZERS = ["memcheck", "racecheck"]

# What is tuned, in which type, for how many seconds, and beyond these how long ending a race may take.
FIRST_TUNED = [("resnet18", "f16", 55), ("resnet18", "f32", 55), ("matmul:m=4096,n=4096,k=4096", "f16", 12),
               ("matmul:m=8192,n=8192,k=8192", "f16", 15), ("matmul:m=4096,n=4096,k=4096", "f32", 10)]
SECOND_TUNED = [("matmul:m=4096,n=4096,k=4096", "tf32", 8), ("matmul:m=8192,n=8192,k=8192", "bf16", 12),
                ("conv2d:n=8,c=256,h=56,w=56,o=256,k=3,p=1,bias,act=relu", "f16", 10)]
TUNING_GRACE_SECS = 12

# What is compared in each type.
FIRST_COMPARED = {"f16": ["resnet18", "matmul:m=4096,n=4096,k=4096", "matmul:m=8192,n=8192,k=8192"],
                  "f32": ["resnet18", "matmul:m=4096,n=4096,k=4096"]}
SECOND_COMPARED = {"tf32": ["matmul:m=4096,n=4096,k=4096"], "bf16": ["matmul:m=8192,n=8192,k=8192"],
                   "f16": ["conv2d:n=8,c=256,h=56,w=56,o=256,k=3,p=1,bias,act=relu"]}

# Operators that are bound by memory or latency, tuned and compared in these types.
OPERATORS = ["softmax:m=4096,n=4096", "layer_norm:m=8192,n=1024", "rms_norm:m=512,n=4096", "reduce:m=4096,n=4096",
             "pointwise:m=1024,n=4096,op=gelu", "transpose:m=4096,n=4096", "pool2d:c=64,h=112,w=112,k=3,s=2,p=1",
             "attention:b=12,m=512,n=512,k=64"]
OPERATOR_DTYPES = ["f16", "f32"]
OPERATOR_TRIALS = 24

# Networks that are run as a whole, and whether every step is compared with the reference, on the host.
OUR_NETWORKS = {"resnet18": True, "mobilenet_v2": True, "squeezenet": False, "resnet50": False, "bert_base": False}

# A kernel that is written out far takes the disassembler long.
SASS_SECS = 8

SMALL = ["matmul:m=64,n=48,k=32,bias", "matmul:m=32,n=32,k=32"]

# Winners of which everything is asked: those of a ratio below this, the slowest first, and how long each may take.
SLOWER, DETAILED, DETAIL_SECS = 0.95, 5, 12

METRICS = {
    "gpu__time_duration.sum": "time",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM %",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor %",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory %",
    "lts__t_sector_hit_rate.pct": "L2 hits %",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "bank conflicts",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps %",
    "launch__registers_per_thread": "registers",
}


class Plan:
    """The steps of each call, for a kind of device; a `small` one shows in a minute that everything runs."""

    def __init__(self, target, small):
        self.target, self.small = target, small
        self.rounds, self.turn_ms = (3, 1) if small else (5, 10)

    def steps(self, call):
        return {"first": self.first, "second": self.second}[call]()

    def first(self):
        if self.small:
            tests = [self.tests("generated kernels", 60, ["a_bench"])]
            tuned, compared = [(workload, "f32", 2) for workload in SMALL], {"f32": SMALL}
        else:
            tests = [self.tests("generated kernels", 60, ["--exact", GENERATED], CHECKED)]
            if self.target == "cuda":
                few = {**CHECKED, "AUTOTUNE_CASES": str(FIRST_VARIANTS)}
                tests = [self.tests("instructions", 40, ["--exact", INSTRUCTIONS], CHECKED),
                         self.tests("large variants", 60, ["--exact", LARGE_VARIANTS], few)] + tests
            tuned, compared = self.possible(FIRST_TUNED, FIRST_COMPARED)
        steps = tests + [self.tuning(*one) for one in tuned]
        steps += [self.comparison(f"compare {dtype}", dtype, 70, compared[dtype]) for dtype in compared]
        return steps + [Step("our networks", 60, self.our_networks), Step("networks", 40, self.networks)]

    def second(self):
        if self.small:
            return self.sanitizers() + [Step("ncu", 40, self.profile), Step("ncu table", 20, self.profile_table),
                    Step("sass", 20, self.sass), Step("compiled networks", 60, self.compiled_networks)]
        tests = [Step("other device tests", 90, lambda place: [
            Command(place.bin("contract"), f"{self.target}::{name}", env=CHECKED) for name in OTHER_TESTS])]
        if self.target == "cuda":
            tests.append(self.tests("all large variants", 60, ["--exact", LARGE_VARIANTS], CHECKED))
        tuned, compared = self.possible(SECOND_TUNED, SECOND_COMPARED)
        steps = tests + self.sanitizers() + [self.tuning(*one) for one in tuned]
        steps += [self.comparison(f"compare {dtype}, more", dtype, 30, compared[dtype]) for dtype in compared]
        steps += [Step("opencl", 40, self.opencl)] if self.target == "cuda" else []
        steps += [self.comparison(f"compare {dtype}, operators", dtype, 70, OPERATORS, OPERATOR_TRIALS)
                  for dtype in OPERATOR_DTYPES if dtype in self.dtypes()]
        return steps + [Step("ncu", 40, self.profile), Step("ncu table", 20, self.profile_table), Step("ncu details", 40, self.details),
                        Step("sass", 40, self.sass), Step("compiled networks", 60, self.compiled_networks)]

    def dtypes(self):
        return ["f16", "bf16", "tf32", "f32"] if self.target == "cuda" else ["f32"]

    def possible(self, tuned, compared):
        """What of it the device has types for."""
        dtypes = self.dtypes()
        return [one for one in tuned if one[1] in dtypes], {dtype: compared[dtype] for dtype in compared if dtype in dtypes}

    def tests(self, name, limit, names, env=None):
        words = [word if word.startswith("--") else f"{self.target}::{word}" for word in names]
        return Step(name, limit, lambda place: [Command(place.bin("contract"), *words, env=env)])

    def without_groups(self, place):
        """The switch that turns instructions of warp groups off where tests have shown that they fail."""
        said = [place.output(name) for name in ("instructions", "large variants") if place.status(name) in ("failed", "timed out")]
        return {"AUTOTUNE_NO_WGMMA": "1"} if any("wgmma" in text or "longer than" in text for text in said) else {}

    def sanitizers(self):
        return [Step(tool, 40, self.sanitizer(tool)) for tool in SANITIZERS]

    def sanitizer(self, tool):
        def commands(place):
            program = tools.program("compute-sanitizer")
            if program is None:
                return "compute-sanitizer is missing"
            orders = [{"workload": text, "target": self.target} for text in (SANITIZED[:1] if self.small else SANITIZED)]
            return [Command(program, "--tool", tool, "--target-processes", "application-only", "--error-exitcode", "9",
                            "--print-limit", "20", place.bin("compare_peers"), "ours", stdin=requests(orders))]

        return commands

    def tuning(self, subject, dtype, secs):
        name = f"tune {dtype} {subject}"

        def commands(place):
            words = ["--dtype", dtype] if dtype != "f32" else []
            return [Command(place.bin("autotune"), subject, "--target", self.target, *words, "--time-budget", f"{secs}s",
                            "--db", place.db, "--json", place.product(name, "tune.json"), env=self.without_groups(place))]

        return Step(name, secs + TUNING_GRACE_SECS, commands)

    def comparison(self, name, dtype, limit, suites, trials=0):
        """Tuned kernels beside PyTorch's; what the database lacks is tuned by some trials."""
        def commands(place):
            words = ["--with", f"dtype={dtype}"] if dtype != "f32" else []
            code = place.product(name, "code")
            os.makedirs(code, exist_ok=True)
            return [Command(place.bin("compare_peers"), "--target", self.target, "--suite", *suites, *words, "--db", place.db,
                            "--trials", trials, "--rounds", self.rounds, "--turn-ms", self.turn_ms,
                            "--peers", place.peers, "--server", place.packed("peers/server.py"),
                            "--out", place.product(name, "compare"), "--code", code, env=self.without_groups(place))]

        return Step(name, limit, commands)

    def our_networks(self, place):
        """Whole networks by what was tuned."""
        networks, repeat = ({"dqn": True}, 1) if self.small else (OUR_NETWORKS, 50)
        return [Command(place.bin("autotune"), "run", name, "--target", self.target, *["--check"] * is_checked, "--repeat", repeat,
                        "--db", place.db, "--json", place.product("our networks", f"{name}.json"), env=self.without_groups(place))
                for name, is_checked in networks.items()]

    def opencl(self, place):
        """The same device by its other interface."""
        words = ["--target", "opencl", "--db", place.db]
        return [Command(place.bin("autotune"), "targets"),
                Command(place.bin("autotune"), "matmul:m=512,n=512,k=512", *words, "--trials", 8),
                Command(place.bin("autotune"), "run", "dqn", *words, "--check")]

    def networks(self, place):
        """ResNet-18 by PyTorch as a CUDA graph, in f32 and f16."""
        return self.torch_networks(place, "networks", ["eager"])

    def compiled_networks(self, place):
        return self.torch_networks(place, "compiled networks", ["compiled"])

    def torch_networks(self, place, step, ways):
        if self.target != "cuda" or not tools.has_torch():
            return "there is no PyTorch for this target"
        return [Command(tools.python(), place.packed("torch_net.py"), place.product(step, "networks.json"), *ways)]

    def winners(self, place):
        """The step and the JSON of every comparison with tuned kernels."""
        for step in place.finished("compare "):
            path = place.product(step, "compare.json")
            if os.path.exists(path):
                with open(path) as file:
                    yield step, json.load(file)

    def sass(self, place):
        if self.target != "cuda":
            return "there is none for this target"
        cuobjdump, nvdisasm = tools.program("cuobjdump"), tools.program("nvdisasm")
        if cuobjdump is None and nvdisasm is None:
            return "cuobjdump and nvdisasm are missing"
        disassemble = [nvdisasm] if nvdisasm else [cuobjdump, "--dump-sass"]
        commands = []
        for step in place.finished("compare "):
            folder = place.product(step, "code")
            for cubin in sorted(os.listdir(folder)):
                output = place.product("sass", cubin.replace(".cubin", ".sass"))
                commands.append(Command(*disassemble, os.path.join(folder, cubin), output=output, limit=SASS_SECS))
        return commands or "no comparison left code"

    def profile(self, place):
        ncu = tools.program("ncu")
        if ncu is None:
            return "ncu is missing"
        orders = [{"workload": row["workload"], "target": self.target, "config": row["config"]}
                  for _, run in self.winners(place) for table in run["tables"] for row in table["comparisons"]]
        if not orders:
            return "there are no winners"
        # The clocks stay as they are; a kernel that is run for its check is enough.
        return [Command(ncu, "--clock-control", "none", "--target-processes", "all", "--kernel-name", "regex:autotune_compute",
                        "--launch-count", 2 * len(orders), "--metrics", ",".join(METRICS), "--force-overwrite",
                        "--export", place.product("ncu", "winners"), place.bin("compare_peers"), "ours", stdin=requests(orders))]

    def details(self, place):
        """All that ncu knows of some winners that are slower than PyTorch's kernels."""
        ncu = tools.program("ncu")
        if ncu is None:
            return "ncu is missing"
        behind = []
        for _, run in self.winners(place):
            for row in (row for table in run["tables"] for row in table["comparisons"]):
                ratio = min((one["ratio"] for one in row["contenders"] if one["name"] != "autotune"), default=1.0)
                behind.append((ratio, {"workload": row["workload"], "target": self.target, "config": row["config"]}))
        orders = [order for ratio, order in sorted(behind, key=lambda one: one[0]) if ratio < SLOWER][:DETAILED]
        if not orders:
            return "no winner is slower"
        return [Command(ncu, "--clock-control", "none", "--target-processes", "all", "--kernel-name", "regex:autotune_compute",
                        "--launch-count", 1, "--set", "full", "--import-source", "no", place.bin("compare_peers"), "ours",
                        stdin=requests([order]), limit=DETAIL_SECS) for order in orders]

    def profile_table(self, place):
        report = place.product("ncu", "winners.ncu-rep")
        if not os.path.exists(report):
            return "there is no profile"
        return [Command(tools.program("ncu"), "--import", report, "--csv", "--page", "raw",
                        output=place.product("ncu table", "winners.csv"))]


def requests(orders):
    return "".join(json.dumps({"prepare": order}) + "\n" for order in orders)


def verdicts(text):
    """What a test program says of each test that it began: ok, FAILED or nothing."""
    parts = re.split(r"(?m)^test (\S+) +\.\.\. ", text.split("\nfailures:\n")[0])
    verdict = lambda said: (re.findall(r"(?m)\b(ok|FAILED|ignored)$", said) or [""])[-1]
    return {name: verdict(said) for name, said in zip(parts[1::2], parts[2::2])}
