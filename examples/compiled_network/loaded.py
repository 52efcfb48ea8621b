"""Loads a network that `autotune compile` made, and runs it; needs nothing but Python.

    autotune compile dqn -o dqn.so
    python3 loaded.py dqn.so
"""

import ctypes
import pathlib
import sys


class Network:
    """A library's network, with a workspace for one run at a time."""

    def __init__(self, path, name):
        self.library = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        self.name = name
        bytes_needed = self.function("workspace_bytes", ctypes.c_size_t)()
        self.memory = ctypes.create_string_buffer(bytes_needed + 63)
        self.workspace = ctypes.c_void_p(-(-ctypes.addressof(self.memory) // 64) * 64)
        self.check(self.function("init", ctypes.c_int)(self.workspace))
        self.inputs = self.tensors("input")
        self.outputs = self.tensors("output")

    def function(self, word, returns):
        function = getattr(self.library, f"{self.name}_{word}")
        function.restype = returns
        return function

    def check(self, error):
        if error:
            raise RuntimeError(self.function("error", ctypes.c_char_p)(error).decode())

    def tensors(self, side):
        """Name and shape of each."""
        names, ranks = self.function(f"{side}_name", ctypes.c_char_p), self.function(f"{side}_rank", ctypes.c_size_t)
        shapes = self.function(f"{side}_shape", ctypes.POINTER(ctypes.c_size_t))
        count = self.function(f"{side}s", ctypes.c_size_t)()
        return [(names(i).decode(), shapes(i)[: ranks(i)]) for i in map(ctypes.c_size_t, range(count))]

    def run(self, inputs):
        """Lists of numbers of all inputs, row-major, to those of all outputs."""
        arrays = [(ctypes.c_float * len(numbers))(*numbers) for numbers in inputs]
        results = [(ctypes.c_float * elements(shape))() for _, shape in self.outputs]
        pointers = [(ctypes.c_void_p * len(all))(*map(ctypes.addressof, all)) for all in (arrays, results)]
        self.check(self.function("run", ctypes.c_int)(self.workspace, *pointers, None, None))
        return [list(result) for result in results]


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def main():
    path = sys.argv[1]
    name = sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(path).stem.removeprefix("lib")
    network = Network(path, name)
    inputs = [[i % 7 / 7 for i in range(elements(shape))] for _, shape in network.inputs]
    for (name, _), numbers in zip(network.outputs, network.run(inputs)):
        for i, number in enumerate(numbers):
            print(f"{name}[{i}] = {number:.9g}")


if __name__ == "__main__":
    main()
