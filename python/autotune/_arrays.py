"""Conversion between arrays and the numbers of networks, which are f32."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ._errors import OptionError

_F32 = np.dtype(np.float32)

# Up to this magnitude, f32 represents every integer.
_MOST_EXACT = 1 << 24


def numbers(given: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """Returns the elements of an input as C-ordered f32, without a copy where possible."""
    array = _array(given, name)
    if array.dtype == _F32 and dtype == _F32 and array.flags.c_contiguous and array.flags.aligned:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise OptionError(f"input '{name}' is {array.dtype}, expected {dtype}")
    if dtype.kind == "i":
        _check_exact(array, name)
    elif dtype.kind == "b":
        array = array.astype(bool)
    return np.require(array, _F32, ["C", "ALIGNED"])


def typed(given: Any, name: str) -> tuple[str, np.ndarray]:
    """Returns the word of an array's element type and its elements as f32."""
    array = _array(given, name)
    kinds = {"f": ("f32", _F32), "i": ("i64", np.dtype(np.int64)), "u": ("i64", np.dtype(np.int64))}
    word, dtype = kinds.get(array.dtype.kind, ("bool", np.dtype(np.bool_)))
    return word, numbers(array, name, dtype)


def stored(array: np.ndarray, word: str) -> np.ndarray:
    """Returns an output in the element type that the model declares."""
    return array if word == "float32" else array.astype(word)


def _array(given: Any, name: str) -> np.ndarray:
    if type(given) is np.ndarray:
        return given
    try:
        # A tensor of PyTorch that requires gradients refuses to be converted.
        given = given.detach() if hasattr(given, "detach") else given
        is_dlpack = hasattr(given, "__dlpack__") and not hasattr(given, "__array__")
        array = np.from_dlpack(given) if is_dlpack else np.asarray(given)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise OptionError(f"input '{name}' cannot be converted to an array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise OptionError(f"input '{name}' has elements of type {array.dtype}, not numbers")
    return array


def _check_exact(array: np.ndarray, name: str) -> None:
    """Raises ``OptionError`` for integers that f32 cannot represent."""
    if array.size == 0 or (array.max() <= _MOST_EXACT and array.min() >= -_MOST_EXACT):
        return
    for number in array[np.abs(array.astype(np.float64)) > _MOST_EXACT].tolist():
        if int(np.float32(number)) != number:
            raise OptionError(f"input '{name}': {number} is not an exact integer of networks, which are at most 2^24")
    warnings.warn(f"input '{name}' has integers above 2^24: results may be rounded", stacklevel=4)
