"""Builds the wheel of the execution provider."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parents[1] / "python"))

import wheels  # noqa: E402 - it is beside the other package

_FILES = {"onnxruntime_autotune/libautotune_ep.so": "libautotune_ep.so"}


def get_requires_for_build_wheel(config_settings=None):
    return wheels.requirements()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return wheels.write(
        _HERE,
        wheel_directory,
        packages=["ort-autotune-ep"],
        module="onnxruntime_autotune",
        files=_FILES,
        python_tag="py3-none",
    )
