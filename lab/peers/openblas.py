"""OpenBLAS as numpy ships it, called through CBLAS."""

import ctypes
import glob
import os
import pathlib

import numpy as np

from clock import call_sgemm, time_calls


class Arguments(ctypes.Structure):
    """`struct sgemm` of timing.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("function",)] + \
        [(name, ctypes.c_long) for name in "mnk"] + [(name, ctypes.c_void_p) for name in "abc"]


class Peer:
    name = "OpenBLAS"

    def __init__(self, cores):
        folder = pathlib.Path(np.__file__).parents[1] / "numpy.libs"
        self.lib = ctypes.CDLL(glob.glob(f"{folder}/libscipy_openblas64_*.so")[0])
        self.lib.scipy_openblas_set_num_threads64_(len(cores))
        # One of its threads on each core; they are the only ones here.
        for thread, core in zip(sorted(map(int, os.listdir("/proc/self/task"))), cores):
            os.sched_setaffinity(thread, [core])
        self.lib.scipy_openblas_get_config64_.restype = ctypes.c_char_p
        self.version = self.lib.scipy_openblas_get_config64_().decode().split()[1]
        self.lib.scipy_openblas_get_corename64_.restype = ctypes.c_char_p
        self.how = self.lib.scipy_openblas_get_corename64_().decode()

    def variants(self, workload, operands, exact):
        bare = not (workload["bias"] or workload["add"] or workload["relu"])
        if workload["op"] == "matmul" and workload["b"] == 1 and bare:
            yield "sgemm", lambda: Op(self, workload, operands)


class Op:
    def __init__(self, peer, w, operands):
        self.how, self.operands = peer.how, operands
        self.result = np.full(operands["output_shape"], np.nan, np.float32)
        arrays = (operands["input"], operands["weight"], self.result)
        function = ctypes.cast(peer.lib.scipy_cblas_sgemm64_, ctypes.c_void_p).value
        self.arguments = Arguments(function, w["m"], w["n"], w["k"], *(a.ctypes.data for a in arrays))

    def output(self):
        self.time(1)
        return self.result

    def time(self, runs):
        return time_calls(call_sgemm, [ctypes.pointer(self.arguments)], runs)
