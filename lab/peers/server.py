"""One peer library, driven by JSON lines: one request a line on standard input, one answer a line on standard output.

    server.py PEER CORES     with PEER one of onednn, onnxruntime, openvino, openblas, torch, and CORES such as 0,1

The first line tells `{"name", "version"}`. Then

    {"prepare": WORKLOAD}  ->  {"how", "max_rel_error"}      builds the fastest variant, checks its output
    {"turn": SECS}         ->  {"run_secs": [..]}            runs for so long: seconds a run of each repeat

where the workload's "exact" rules Winograd out. The answer is {"absent": true} if the library has no such operator, {"error": WHY}
for anything that fails, with "lost": true where nothing will run in this process any more. One thread runs on each core.
"""

import importlib
import json
import os
import statistics
import sys
import traceback

MODULES = {"onednn": "onednn", "onnxruntime": "onnx_runtime", "openvino": "openvino_cpu", "openblas": "openblas",
           "torch": "torch_gpu"}

# A repeat takes at least this long, unless the peer says otherwise: reading the clock must cost nothing.
REPEAT_SECS = 20e-6

# For how long each variant of an operator is tried.
TRIAL_SECS = 0.08

# Largest deviation from the reference over the reference's largest magnitude; Winograd's is larger than that of sums, that of
# operands and outputs rounded to fewer bits larger still.
TOLERANCE = {"f32": 1e-3, "tf32": 2e-3, "f16": 4e-3, "bf16": 3e-2}


def main():
    peer_name, cores = sys.argv[1], [int(core) for core in sys.argv[2].split(",")]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print is not an answer

    def answer(message):
        print(json.dumps(message), file=answers, flush=True)

    # Before the libraries make their threads.
    os.sched_setaffinity(0, cores)
    threads = str(len(cores))
    os.environ.update(OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads, OMP_WAIT_POLICY="active",
                      OMP_PROC_BIND="true", OMP_PLACES=",".join(f"{{{core}}}" for core in cores))
    try:
        peer = importlib.import_module(MODULES[peer_name]).Peer(cores)
    except (Exception, SystemExit) as e:
        return answer({"error": f"{type(e).__name__}: {e}"})
    answer({"name": peer.name, "version": peer.version})
    op = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                op = None
                op, message = prepare(peer, request["prepare"])
                answer(message)
            else:
                answer({"run_secs": turn(op, request["turn"])})
        except Exception as e:
            traceback.print_exc()
            answer({"error": f"{type(e).__name__}: {e}", "lost": hasattr(peer, "is_lost") and peer.is_lost()})


def prepare(peer, workload):
    """The fastest variant of a workload that is right."""
    from reference import compared, operands_of, reference
    if workload["dtype"] not in getattr(peer, "dtypes", ("f32",)):
        return None, {"absent": True}
    operands = operands_of(workload)
    chosen = compared(workload)
    right = reference(workload, operands, chosen)
    best, why = None, []
    for name, build in peer.variants(workload, operands, workload["exact"]):
        try:
            op = build()
            if op is None:
                continue
            output = op.output().reshape(operands["output_shape"])[chosen]
            error = float(abs(output - right).max() / abs(right).max())
            if not error <= TOLERANCE[workload["dtype"]]:
                why.append(f"{name}: wrong result, relative error {error:.1e}")
                continue
            secs = statistics.median(turn(op, TRIAL_SECS))
            if best is None or secs < best[0]:
                best = (secs, op, {"how": op.how, "max_rel_error": error})
        except Exception as e:
            why.append(f"{name}: {e}")
    if best is not None:
        return best[1], best[2]
    if why:
        raise RuntimeError("; ".join(why))
    return None, {"absent": True}


def turn(op, floor_secs):
    """Seconds a run of each repeat, for `floor_secs`; the first run warms the caches and does not count."""
    op.time(1)
    run_secs = op.time(1)
    repeat_secs = getattr(op, "repeat_secs", REPEAT_SECS)
    runs = max(1, min(10_000, int(repeat_secs / max(run_secs, 1e-9)) + 1))
    repeats, elapsed = [], 0.0
    while elapsed < floor_secs or len(repeats) < 3:
        secs = op.time(runs)
        elapsed += secs
        repeats.append(secs / runs)
    return repeats


if __name__ == "__main__":
    main()
