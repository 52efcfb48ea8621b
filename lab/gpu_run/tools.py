"""What a machine has: the driver's version, NVRTC, the toolkit's programs, PyTorch."""

import ctypes
import glob
import importlib.util
import os
import re
import shutil
import site
import sys
import tarfile


def driver_version():
    """The newest CUDA that the driver runs, such as (13, 0); None without a driver."""
    try:
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            return version.value // 1000, version.value % 1000 // 10
    except (OSError, AttributeError):
        pass
    return None


def packages():
    """Folders of Python's packages."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    return list(dict.fromkeys(folder for folder in folders if os.path.isdir(folder)))


def nvrtc_folders():
    """Folders of Python's packages with an NVRTC, and its major version."""
    found = {}
    for folder in (folder for package in packages() for folder in glob.glob(f"{package}/nvidia/*/lib")):
        for library in glob.glob(f"{folder}/libnvrtc.so.*"):
            major = re.fullmatch(r"libnvrtc\.so\.(\d+)", os.path.basename(library))
            if major:
                found.setdefault(os.path.realpath(folder), int(major[1]))
    return list(found.items())


def nvrtc(packed, unpack_to):
    """The folder of an NVRTC, and what to say of it: one that is named or packed is taken as it is, else the newest of Python's packages
    whose major version is not above the driver's. None leaves it to the programs, which look in toolkits, too."""
    named = os.environ.get("AUTOTUNE_NVRTC")
    if named:
        return named, f"NVRTC: {named}, as AUTOTUNE_NVRTC says"
    if os.path.exists(packed):
        with tarfile.open(packed) as archive:
            archive.extractall(unpack_to)
        return unpack_to, "NVRTC: the packed one"
    driver, found = driver_version(), nvrtc_folders()
    usable = [one for one in found if driver is None or one[1] <= driver[0]]
    if usable:
        folder, major = max(usable, key=lambda one: one[1])
        return folder, f"NVRTC {major}: {folder}"
    too_new = [f"NVRTC {major} in {folder} is too new for the driver" for folder, major in found]
    return None, "; ".join(["NVRTC: that of the loader or of a toolkit, if there is one", *too_new])


def program(name):
    """The path of one of the toolkit's programs; None where it is missing."""
    patterns = ["/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"]
    patterns += [f"{folder}/triton/backends/nvidia/bin" for folder in packages()]
    folders = [folder for pattern in patterns for folder in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def has_torch():
    return importlib.util.find_spec("torch") is not None


def python():
    """The interpreter that has what `has_torch` looks for."""
    return sys.executable
