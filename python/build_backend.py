"""Builds the wheel: the command `autotune`, then the package with maturin."""

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


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    cargo = ["cargo", "build", "--release", "--locked", "-p", "autotune-cli"]
    subprocess.run(cargo, cwd=_HERE, check=True)
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    known = json.loads(subprocess.run(metadata, cwd=_HERE, check=True, capture_output=True).stdout)
    program = _HERE / "autotune" / "bin" / "autotune"
    program.parent.mkdir(exist_ok=True)
    shutil.copy(Path(known["target_directory"]) / "release" / "autotune", program)
    # The platform tag names the C library that the wheel needs, instead of any Linux.
    settings = {"build-args": ["--compatibility", "pypi"], **(config_settings or {})}
    return maturin.build_wheel(wheel_directory, settings, metadata_directory)
