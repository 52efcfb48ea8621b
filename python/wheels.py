"""Writes wheels of what cargo builds, with Python's standard library alone.

``AUTOTUNE_BUILT`` names a folder with built files, which are taken as they are; tests set it.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

# Times in wheels, so that equal contents are equal files.
_TIME = (1980, 1, 1, 0, 0, 0)


def requirements():
    """Returns the packages that this module needs."""
    return ["tomli>=2; python_version < '3.11'"]


def _metadata(folder):
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    return json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)


def _built(folder, packages):
    """Builds packages of cargo, and returns the folder of the results."""
    if given := os.environ.get("AUTOTUNE_BUILT"):
        return Path(given)
    words = [word for package in packages for word in ("-p", package)]
    subprocess.run(["cargo", "build", "--release", "--locked", *words], cwd=folder, check=True)
    return Path(_metadata(folder)["target_directory"]) / "release"


def _description(folder, project):
    """Returns the contents of the file METADATA."""
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}", f"License-Expression: {project['license']}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {package}" for package in project.get("dependencies", [])]
    lines += [f"Classifier: {classifier}" for classifier in project.get("classifiers", [])]
    text = (folder / project["readme"]).read_text(encoding="utf-8")
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", text])


def _platform():
    """Returns the platform's tag, which names this machine's C library: older ones may lack functions."""
    major, minor = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]
    return f"manylinux_{major}_{minor}_x86_64"


def write(folder, wheel_directory, *, packages, module, files, python_tag):
    """Writes the wheel of the project in ``folder``, and returns its name.

    ``packages`` are built by cargo. ``module`` is the folder of the Python files, and ``files`` has
    the built files by their place in the wheel. ``python_tag`` names versions of Python and the
    interface to it, such as ``cp310-abi3``.
    """
    folder = Path(folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = next(package["version"] for package in _metadata(folder)["packages"] if package["name"] == packages[0])
    project["version"] = version
    stem = f"{project['name'].replace('-', '_')}-{version}"
    tag = f"{python_tag}-{_platform()}"
    contents = {}
    for path in sorted((folder / module).iterdir()):
        if path.suffix in (".py", ".pyi") or path.name == "py.typed":
            contents[f"{module}/{path.name}"] = (path.read_bytes(), 0o644)

    built = _built(folder, packages)
    with tempfile.TemporaryDirectory() as scratch:
        for place, name in files.items():
            copy = Path(shutil.copy(built / name, scratch))
            if shutil.which("strip"):
                subprocess.run(["strip", copy], check=True)
            contents[place] = (copy.read_bytes(), 0o755)

    info = f"{stem}.dist-info"
    contents[f"{info}/METADATA"] = (_description(folder, project).encode(), 0o644)
    kind = f"Wheel-Version: 1.0\nGenerator: {project['name']} {version}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    contents[f"{info}/WHEEL"] = (kind.encode(), 0o644)
    if scripts := project.get("scripts"):
        lines = ["[console_scripts]", *(f"{name} = {function}" for name, function in scripts.items()), ""]
        contents[f"{info}/entry_points.txt"] = ("\n".join(lines).encode(), 0o644)
    contents[f"{info}/RECORD"] = (_record(contents, f"{info}/RECORD").encode(), 0o644)

    name = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, (bytes_, mode) in contents.items():
            entry = zipfile.ZipInfo(place, _TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            wheel.writestr(entry, bytes_)
    return name


def _record(contents, own):
    """Returns the contents of the file RECORD: hash and size of every other file."""
    lines = []
    for place, (bytes_, _) in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(bytes_).digest()).rstrip(b"=").decode()
        lines.append(f"{place},sha256={digest},{len(bytes_)}\n")
    return "".join(lines) + f"{own},,\n"
