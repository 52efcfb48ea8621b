"""The timing loop in C."""

import ctypes
import os
import pathlib

_LIBRARY = pathlib.Path(os.environ["PEERS_TIMING"])
_lib = ctypes.CDLL(str(_LIBRARY))
_lib.time_calls.restype = ctypes.c_double
_lib.time_calls.argtypes = [ctypes.c_void_p] * 7 + [ctypes.c_long]
call_sgemm = _lib.call_sgemm


def time_calls(function, args, runs, finish=(None, None)):
    """Seconds of `runs` calls of a C function with up to four arguments, then one of `finish` with its argument."""
    args = [*args, None, None, None][:4]
    secs = _lib.time_calls(*map(_pointer, (function, *args, *finish)), runs)
    if secs < 0:
        raise RuntimeError("a call failed")
    return secs


def _pointer(value):
    return value if value is None or isinstance(value, int) else ctypes.cast(value, ctypes.c_void_p)
