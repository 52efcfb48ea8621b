"""Throughput of a network in several processes at a time: autotune or ONNX Runtime, each with its default number of threads. Run it under the
limits in question, such as `taskset` or a control group with a CPU quota.

    python lab/peers/limits.py autotune 8 6 mobilenet_v2.onnx      # 8 processes for 6 seconds
"""

import multiprocessing
import sys
import time

import numpy


def network(kind, path):
    """Function that runs the network, and the shape of its only input."""
    if kind == "autotune":
        import autotune

        loaded = autotune.load(path)
        return loaded, loaded.inputs[0].shape
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    only = session.get_inputs()[0]
    return lambda x: session.run(None, {only.name: x}), only.shape


def work(kind, path, secs, start, results):
    run, shape = network(kind, path)
    x = numpy.random.default_rng(0).uniform(-1, 1, shape).astype(numpy.float32)
    run(x)
    start.wait()
    times = []
    end = time.monotonic() + secs
    while time.monotonic() < end:
        began = time.perf_counter()
        run(x)
        times.append(time.perf_counter() - began)
    results.put(sorted(times))


def main():
    kind, count, secs, path = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    multiprocessing.set_start_method("spawn")
    start, results = multiprocessing.Barrier(count), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=work, args=(kind, path, secs, start, results)) for _ in range(count)]
    for process in processes:
        process.start()
    all_times = [results.get() for _ in processes]
    for process in processes:
        process.join()
    runs = sum(map(len, all_times)) / secs
    median = sorted(times[len(times) // 2] for times in all_times)[count // 2]
    slow = max(times[len(times) * 95 // 100] for times in all_times)
    print(f"| {kind} | {count} | {runs:.0f} | {median * 1e3:.2f} | {slow * 1e3:.2f} |")


if __name__ == "__main__":
    main()
