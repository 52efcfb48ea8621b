"""What the three calls run: their steps, in order, with the most seconds that each may take."""

import json
import os
import re
import subprocess

import tools


class Command:
    """A program to run; what it says goes to the step's output, or to a file of its own."""

    def __init__(self, *argv, stdin="", output=None, limit=None):
        self.argv = [str(word) for word in argv]
        self.stdin, self.output, self.limit = stdin, output, limit


class Step:
    """Commands, one after the other; all of them run whatever the others do.

    `commands(place)` lists them when the step's turn comes; text instead says why there is nothing to run. A step with a `weight` takes
    that part of the time that is left to those with weights: its commands are given the seconds.
    """

    def __init__(self, name, limit, commands, weight=0):
        self.name, self.limit, self.commands, self.weight = name, limit, commands, weight


# For check: each is run untuned, and with schedules drawn at random.
SANITIZED = ["matmul:m=72,n=88,k=80,bias", "matmul:m=200,n=136,k=160,dtype=f16", "matmul:m=136,n=264,k=320,dtype=bf16,bias",
             "matmul:m=72,n=88,k=80,dtype=tf32", "conv2d:c=16,h=14,w=14,o=32,k=3,p=1,dtype=f16",
             "conv2d:c=8,h=14,w=14,o=16,k=3,p=1,bias,act=relu", "attention:b=2,m=40,n=70,k=32,causal"]
SAMPLES = 3
SANITIZERS = ["memcheck", "racecheck", "synccheck"]
SQUARES = [1024, 4096, 8192]
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
        self.dtypes = ["f16", "f32", "tf32"] if target == "cuda" else ["f32"]
        if small:
            self.dtypes = ["f32"]
        self.suites = {"resnet18": ["resnet18"], "squares": ["squares"]}
        self.rounds, self.turn_ms = 11, 30
        if small:
            self.suites = {"small": ["matmul:m=64,n=48,k=32,bias", "matmul:m=32,n=32,k=32"]}
            self.rounds, self.turn_ms = 3, 1

    def steps(self, call):
        return {"check": self.check, "tune": self.tune, "compare": self.compare}[call]()

    def check(self):
        steps = [Step("compiler tests", 60, self.compiler_tests)] if self.target == "cuda" else []
        steps += [Step("device tests", 180, self.device_tests), Step("device tests, one by one", 40, self.unfinished_tests)]
        for tool in SANITIZERS:
            steps.append(Step(tool, 40, lambda place, tool=tool: self.sanitizer(place, tool)))
        suite = next(iter(self.suites))
        for dtype in self.dtypes[:2]:
            steps.append(self.comparison(f"untuned {dtype} {suite}", suite, dtype, 75, is_tuned=False))
        return steps

    def tune(self):
        steps = []
        if self.small:
            return [self.tuning(workload, "f32", 1) for workload in self.suites["small"]]
        for dtype in self.dtypes[:2]:
            steps.append(self.tuning("resnet18", dtype, 6))
        for dtype in self.dtypes:
            steps += [self.tuning(f"matmul:m={size},n={size},k={size}", dtype, 1) for size in SQUARES]
        return steps

    def compare(self):
        steps = []
        for dtype in self.dtypes:
            steps += [self.comparison(f"compare {dtype} {suite}", suite, dtype, 110, is_tuned=True) for suite in self.suites]
        return steps + [Step("sass", 30, self.sass), Step("ncu", 90, self.profile), Step("ncu table", 30, self.profile_table)]

    def compiler_tests(self, place):
        return [Command(place.bin("cuda_kernels"), *(["half_precision"] if self.small else []))]

    def device_tests(self, place):
        return [Command(place.bin("contract"), *self.test_names())]

    def test_names(self):
        return [f"{self.target}::a_bench" if self.small else f"{self.target}::"]

    def unfinished_tests(self, place):
        """Those that did not succeed beside the others: what one did to the device is no fault of the next."""
        listed = subprocess.run([place.bin("contract"), "--list", *self.test_names()], capture_output=True, text=True, timeout=10)
        names = re.findall(r"(?m)^(\S+): test$", listed.stdout)
        verdict = verdicts(place.output("device tests"))
        again = [name for name in names if verdict.get(name) != "ok"]
        return [Command(place.bin("contract"), "--exact", name, limit=15) for name in again]

    def sanitizer(self, place, tool):
        program = tools.program("compute-sanitizer")
        if program is None:
            return "compute-sanitizer is missing"
        orders = [{"workload": text, "target": self.target, **({"sample": seed} if seed else {})}
                  for text in SANITIZED[:1 if self.small else None] for seed in range(SAMPLES + 1)]
        return [Command(program, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9", "--print-limit", "20",
                        place.bin("compare_peers"), "ours", stdin=requests(orders))]

    def tuning(self, subject, dtype, weight):
        name = f"tune {dtype} {subject}"

        def commands(place, secs):
            words = ["--dtype", dtype] if dtype != "f32" else []
            return [Command(place.bin("autotune"), subject, "--target", self.target, *words, "--time-budget", f"{secs:.0f}s",
                            "--db", place.db, "--json", place.product(name, "tune.json"))]

        return Step(name, 60, commands, weight)

    def comparison(self, name, suite, dtype, limit, is_tuned):
        def commands(place):
            words = ["--with", f"dtype={dtype}"] if dtype != "f32" else []
            words += ["--db", place.db] if is_tuned else []
            code = place.product(name, "code")
            os.makedirs(code, exist_ok=True)
            return [Command(place.bin("compare_peers"), "--target", self.target, "--suite", *self.suites[suite], *words,
                            "--trials", 0, "--rounds", self.rounds, "--turn-ms", self.turn_ms,
                            "--peers", place.peers, "--server", place.packed("peers/server.py"),
                            "--out", place.product(name, "compare"), "--code", code)]

        return Step(name, limit, commands)

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
                commands.append(Command(*disassemble, os.path.join(folder, cubin), output=output))
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
