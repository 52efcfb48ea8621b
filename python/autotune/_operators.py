"""Single operators and the database of schedules."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _command
from ._reports import TuneReport


def tune(
    workload: str,
    budget: str | float | None = None,
    *,
    trials: int | None = None,
    target: str = "cpu",
    threads: int | None = None,
    db: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> TuneReport:
    """Tunes an operator, such as ``"matmul:m=128,n=768,k=768"``, for a device of this machine.

    ``budget``, ``trials`` and ``progress`` are as for :meth:`Network.tune`.
    """
    words = [workload, "--target", target, *_command.limits(budget, trials)]
    return TuneReport(_command.call_json([*words, *_command.common(threads, db)], progress))


def best(
    workload: str,
    *,
    target: str = "cpu",
    threads: int | None = None,
    db: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Returns the best known schedule of an operator, its time and its provenance.

    Raises ``CommandError`` if none is known.
    """
    return json.loads(_command.call(["best", workload, "--target", target, *_command.common(threads, db)]))


def write_snapshot(
    path: str | os.PathLike[str], *, target: str | None = None, db: str | os.PathLike[str] | None = None
) -> None:
    """Writes the best schedules of the database to a file, for ``load(.., db=path)``."""
    words = [] if target is None else ["--target", target]
    _command.call(["snapshot", "write", os.fspath(path), *words, *_command.common(None, db)])
