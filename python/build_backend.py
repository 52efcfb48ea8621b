"""Builds the wheel of the package: its native library, which has the execution provider, and the command."""

from pathlib import Path

import wheels

_HERE = Path(__file__).parent

# Files that cargo builds, by their place in the wheel.
_FILES = {
    "autotune/_autotune.abi3.so": "lib_autotune.so",
    "autotune/bin/autotune": "autotune",
}


def get_requires_for_build_wheel(config_settings=None):
    return wheels.requirements()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    packages = ["autotune-python", "autotune-cli"]
    return wheels.write(
        _HERE, wheel_directory, packages=packages, module="autotune", files=_FILES, python_tag="cp310-abi3"
    )
