"""Networks that run on NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _command, _shapes
from ._autotune import NETWORKS, Session
from ._errors import OptionError
from ._reports import Profile, TuneReport
from ._shapes import Shape

_TYPES = {"f32": np.dtype(np.float32), "i64": np.dtype(np.int64), "bool": np.dtype(np.bool_)}


class Input(NamedTuple):
    """An input of a network. An extent of ``shape`` is ``None`` where several are possible."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...]


def load(
    model: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Shape] | None = None,
    values: Mapping[str, Any] | None = None,
    precision: str = "f32",
    max_error: float = 0.01,
    examples: Mapping[str, Any] | None = None,
    quantised: str = "int",
    threads: int | None = None,
    db: str | os.PathLike[str] | None = None,
    spin: bool = True,
) -> Network:
    """Loads a network that is ready to run.

    ``model`` is the path of an ONNX file, or the name of a built-in network
    (``autotune.NETWORKS``).

    ``shapes`` restricts the shapes of inputs: ``{"ids": (1, 128)}``, ``{"ids": "1x8..512"}``. An
    extent is a number, ``None`` for any, a ``range`` or a list of numbers. Other inputs have the
    shapes that the file permits. A network is made for each shape when it first occurs, within
    milliseconds.

    ``values`` are inputs with the same value in all runs, such as ``{"sr": 16000}``; runs do not
    take them.

    ``precision`` is ``"f32"``, ``"bf16"`` or ``"auto"``: the fastest whose outputs differ from f32
    by at most ``max_error`` of their largest element, on the arrays ``examples`` (by name; random
    ones for other inputs). It requires fixed shapes.

    ``quantised`` tells how 8-bit tensors of the file are computed: as ``"int"`` or ``"float"``.

    ``threads`` is the number of threads of a run, by default all cores. ``db`` is the database or
    snapshot of tuned schedules, by default the user's database. Kernels without a tuned schedule
    use predicted ones.

    ``spin=False`` lets helper threads sleep at once instead of spinning for some microseconds, which
    makes runs slower and leaves the cores to other programs.

    Raises ``FileNotFoundError``, ``ModelError``, ``ShapeError``, ``OptionError`` or
    ``DatabaseError``.
    """
    return Network(_Options(model, shapes, values, precision, max_error, examples, quantised, threads, db, spin))


class Network:
    """A network. Any number of threads may run it at a time.

    ``network(x)`` takes arrays in the order of ``inputs``, or by name, and returns the output, or a
    tuple of several. Arrays are NumPy arrays, or objects that NumPy or DLPack can convert, such as
    CPU tensors of PyTorch. C-ordered arrays of f32 are not copied.

    ``inputs`` describes the inputs and ``outputs`` has the names of the outputs, both in order.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]

    def __init__(self, options: _Options):
        self._options = options
        self._session = options.session()
        self._last_shapes: dict[str, tuple[int, ...]] = {}
        self.name = self._session.name
        self.outputs = tuple(self._session.output_names)
        shapes = map(_shapes.extents, self._session.shapes)
        inputs = zip(self._session.inputs, shapes)
        self.inputs = tuple(Input(name, _TYPES[word], shape) for (name, word), shape in inputs)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Runs the network on arrays in the order of ``inputs``, or by name."""
        if len(arrays) > len(self.inputs):
            raise OptionError(f"{len(arrays)} arrays, but the inputs are {self._input_names()}")
        inputs = {input.name: array for input, array in zip(self.inputs, arrays)}
        twice = inputs.keys() & named.keys()
        if twice:
            raise OptionError(f"input '{min(twice)}' is given twice")
        outputs = tuple(self.run({**inputs, **named}).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Runs the network on arrays by the names of the inputs; returns the outputs by name.

        Raises ``ShapeError`` for a shape that an input cannot have, and ``OptionError`` for an
        unknown or missing input and for elements that cannot be converted.
        """
        if not isinstance(inputs, Mapping):
            raise OptionError(f"inputs: expected a dictionary of arrays by the names {self._input_names()}")
        arrays = []
        for input in self.inputs:
            if input.name not in inputs:
                raise OptionError(f"input '{input.name}' is missing")
            arrays.append(_arrays.numbers(inputs[input.name], input.name, input.dtype))
        if len(inputs) > len(arrays):
            unknown = min(inputs.keys() - {input.name for input in self.inputs})
            raise OptionError(f"no input '{unknown}': the inputs are {self._input_names()}")

        outputs = self._session.run(arrays)
        self._last_shapes = {input.name: array.shape for input, array in zip(self.inputs, arrays)}
        return {name: _arrays.stored(array, word) for name, word, array in outputs}

    def tune(
        self,
        budget: str | float | None = None,
        *,
        trials: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        progress: bool = True,
    ) -> TuneReport:
        """Tunes the network for this machine; runs from then on use the fastest schedules.

        ``budget`` is a time, in seconds or as ``"60s"``, ``"10m"``; ``trials`` is a number of
        measurements. ``shapes`` are the shapes to tune for, where those of the inputs are open; by
        default those of the last run. Measurements are in the database: a repetition continues.
        Ctrl-C stops tuning and keeps them.
        """
        limits = _command.limits(budget, trials)
        report = _command.call_json([*self._arguments(shapes), *limits], progress)
        # A new session finds the new records; runs in progress end with the old one.
        self._session = self._options.session()
        return TuneReport(report)

    def profile(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Profile:
        """Times every step of the network on random arrays. ``shapes`` is as for :meth:`tune`."""
        spin = [] if self._options.spin else ["--spin", "off"]
        return Profile(_command.call_json(["bench", *self._arguments(shapes), "--profile", *spin]))

    def compile(
        self,
        path: str | os.PathLike[str],
        shapes: Mapping[str, Sequence[int]] | None = None,
        *,
        target: str = "cpu",
    ) -> Path:
        """Writes a shared library, with a C header next to it. ``shapes`` is as for :meth:`tune`.

        ``target`` names the processors: ``"cpu"`` for this one, ``"cpu:avx2,cpu:avx512"`` for code
        of both kinds, of which the processor chooses at run time.
        """
        path = os.path.abspath(_path("path", path))
        if not isinstance(target, str):
            raise OptionError(f"target: {target!r} is not a target such as 'cpu' or 'cpu:avx2,cpu:avx512'")
        _command.call(["compile", *self._arguments(shapes), "--target", target, "-o", path])
        return Path(path)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {dtype}{list(shape)}" for name, dtype, shape in self.inputs)
        return f"<autotune.Network '{self.name}' ({inputs}) -> ({', '.join(self.outputs)})>"

    def _input_names(self) -> str:
        return ", ".join(input.name for input in self.inputs)

    def _arguments(self, given: Mapping[str, Sequence[int]] | None) -> list[str]:
        """Returns the arguments with which the command works on this network, of fixed shapes."""
        given = given or {}
        unknown = given.keys() - {input.name for input in self.inputs}
        if unknown:
            raise OptionError(f"shapes: no input '{min(unknown)}': the inputs are {self._input_names()}")
        fixed = {}
        for input in self.inputs:
            known = self._last_shapes.get(input.name) if None in input.shape else input.shape
            shape = given.get(input.name, known)
            if shape is None:
                raise OptionError(f"the shape of input '{input.name}' is open: run the network first, or give shapes")
            fixed[input.name] = shape
        return self._options.arguments(fixed)


def _path(name: str, given: Any) -> str:
    try:
        path = os.fspath(given)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise OptionError(f"{name}: {given!r} is not a path")
    return path


class _Options:
    """Arguments of :func:`load`."""

    def __init__(self, model, shapes, values, precision, max_error, examples, quantised, threads, db, spin):
        self.subject = _path("model", model)
        self.is_file = self.subject not in NETWORKS
        if self.is_file and not os.path.isfile(self.subject):
            networks = ", ".join(NETWORKS)
            raise FileNotFoundError(f"no file '{self.subject}': expected an ONNX file or one of {networks}")
        if self.is_file:
            # Commands that start later find the file, whatever the working directory is then.
            self.subject = os.path.abspath(self.subject)
        if quantised not in ("int", "float"):
            raise OptionError(f"quantised: '{quantised}' is neither 'int' nor 'float'")
        if not isinstance(precision, str):
            raise OptionError(f"precision: {precision!r} is not one of 'f32', 'bf16', 'auto'")
        if not isinstance(max_error, (int, float)) or not max_error >= 0:
            raise OptionError(f"max_error: {max_error!r} is not a relative error such as 0.01")
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise OptionError(f"threads: {threads!r} is not a number of threads")
        if not isinstance(spin, bool):
            raise OptionError(f"spin: {spin!r} is neither True nor False")
        for name, mapping in (("shapes", shapes), ("values", values), ("examples", examples)):
            if mapping is not None and not isinstance(mapping, Mapping):
                raise OptionError(f"{name}: {mapping!r} is not a dictionary by the names of inputs")
        self.shapes = {name: _shapes.text(shape) for name, shape in (shapes or {}).items()}
        self.values = {name: np.asarray(value) for name, value in (values or {}).items()}
        self.precision, self.max_error, self.examples = precision, max_error, examples or {}
        self.quantised, self.threads, self.spin = quantised, threads, spin
        self.db = None if db is None else os.path.abspath(_path("db", db))

    def session(self) -> Session:
        """Opens the network with the schedules that are known now."""
        return Session(
            self.subject,
            is_file=self.is_file,
            shapes=self.shapes,
            values={name: _arrays.typed(value, name) for name, value in self.values.items()},
            precision=self.precision,
            max_error=self.max_error,
            examples={name: _arrays.typed(example, name) for name, example in self.examples.items()},
            is_dequantised=self.quantised == "float",
            threads=self.threads,
            db=self.db,
            spin=self.spin,
        )

    def arguments(self, shapes: Mapping[str, Sequence[int]]) -> list[str]:
        """Returns the arguments of the command for this network with some shapes."""
        words = [self.subject, "--precision", self.precision, "--quantised", self.quantised]
        if self.precision == "auto":
            words += ["--max-error", str(self.max_error)]
        if self.is_file:
            words += [word for name, shape in shapes.items() for word in ("--shape", f"{name}={_shapes.text(shape)}")]
        for name, value in self.values.items():
            if value.size != 1:
                raise OptionError(f"values: '{name}' has {value.size} elements; the command takes one number")
            words += ["--input", f"{name}={str(value.item()).lower()}"]
        return words + _command.common(self.threads, self.db)
