"""Builds the wheel: the command and the execution provider, then the package with maturin."""

import json
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401 - the hooks that pip calls
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

_HERE = Path(__file__).parent


_PROGRAMS = ("autotune", "libautotune_ep.so")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    packages = ["-p", "autotune-cli", "-p", "ort-autotune-ep"]
    subprocess.run(["cargo", "build", "--release", "--locked", *packages], cwd=_HERE, check=True)
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    known = json.loads(subprocess.run(metadata, cwd=_HERE, check=True, capture_output=True).stdout)
    folder = _HERE / "autotune" / "bin"
    folder.mkdir(exist_ok=True)
    for name in _PROGRAMS:
        shutil.copy(Path(known["target_directory"]) / "release" / name, folder / name)
        if shutil.which("strip"):
            subprocess.run(["strip", folder / name], check=True)

    # The platform tag names the C library that the wheel needs, instead of any Linux.
    settings = {"build-args": ["--compatibility", "pypi"], **(config_settings or {})}
    return maturin.build_wheel(wheel_directory, settings, metadata_directory)
