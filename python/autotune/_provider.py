"""The execution provider for ONNX Runtime."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _autotune

if TYPE_CHECKING:
    import onnxruntime

PROVIDER = "AutotuneExecutionProvider"


def provider_library() -> str:
    """Returns the path of the library that ONNX Runtime loads, in a process of Python."""
    return os.path.abspath(_autotune.__file__)


def add_provider(
    options: onnxruntime.SessionOptions,
    *,
    threads: int | None = None,
    db: str | os.PathLike[str] | None = None,
    snapshot: str | os.PathLike[str] | None = None,
    precision: str = "f32",
    max_error: float | None = None,
    spin: bool = True,
    tune: str | None = None,
) -> None:
    """Lets sessions of ONNX Runtime (1.23 or newer) run on autotune's kernels what these support.

    ``threads``, ``db``, ``precision``, ``max_error`` and ``spin`` are as for :func:`load`, and
    ``snapshot`` is a snapshot of tuned schedules in place of a database. ``tune`` is ``"lookup"``,
    ``"off"`` for schedules that are predicted only, or a time such as ``"60s"``, in which a new
    session tunes what the database does not know::

        options = onnxruntime.SessionOptions()
        autotune.add_provider(options)
        session = onnxruntime.InferenceSession("model.onnx", options)
    """
    import onnxruntime

    def devices() -> list[onnxruntime.OrtEpDevice]:
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]

    if not devices():
        onnxruntime.register_execution_provider_library("autotune", provider_library())
    words = {"precision": precision}
    if threads is not None:
        words["threads"] = str(threads)
    if db is not None:
        words["db"] = os.fspath(db)
    if snapshot is not None:
        words["snapshot"] = os.fspath(snapshot)
    if max_error is not None:
        words["max_error"] = str(max_error)
    if not spin:
        words["spin"] = "off"
    if tune is not None:
        words["tune"] = tune
    options.add_provider_for_devices(devices(), words)
