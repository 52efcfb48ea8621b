"""The execution provider autotune for ONNX Runtime, 1.23 or newer.

The package does not import ``onnxruntime``, so that any build of it may be installed beside::

    onnxruntime.register_execution_provider_library("autotune", onnxruntime_autotune.get_library_path())
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]


def get_library_path() -> str:
    """Returns the path of the library that ONNX Runtime loads.

    Raises ``FileNotFoundError`` if the package is incomplete.
    """
    path = Path(__file__).resolve().parent / "libautotune_ep.so"
    if not path.is_file():
        raise FileNotFoundError(f"the execution provider is missing at {path}: install the package again")
    return str(path)


def get_ep_name() -> str:
    """Returns the name of the provider, as in ``OrtEpDevice.ep_name``."""
    return "AutotuneExecutionProvider"


def get_ep_names() -> list[str]:
    """Returns the names of all providers of the library."""
    return [get_ep_name()]
