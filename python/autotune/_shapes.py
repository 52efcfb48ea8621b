"""Shapes of inputs as texts, such as ``1x8..512``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from ._errors import OptionError

Extent = Union[int, None, range, Sequence[int]]
Shape = Union[str, Sequence[Extent]]


def text(shape: Shape) -> str:
    """Returns the text of a shape or of a range of shapes."""
    return shape if isinstance(shape, str) else "x".join(map(_extent, shape))


def _extent(extent: Extent) -> str:
    if extent is None:
        return "?"
    if isinstance(extent, range):
        if extent.step == 1 and len(extent) > 0:
            return f"{extent[0]}..{extent[-1]}"
        extent = list(extent)
    if isinstance(extent, (list, tuple)):
        return "{" + ",".join(str(int(number)) for number in extent) + "}"
    try:
        return str(int(extent))
    except (TypeError, ValueError):
        raise OptionError(f"extent {extent!r} is not a number, None, a range or a list of numbers") from None


def extents(text: str) -> tuple[int | None, ...]:
    """Returns the extents of a range of shapes, with ``None`` where several are possible."""
    words = text.split("x") if text else []
    return tuple(int(word) if word.isdigit() else None for word in words)
