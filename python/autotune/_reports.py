"""Results of tuning and profiling."""

from __future__ import annotations

import html
from typing import Any


class TuneReport(dict):
    """Result of tuning: the object that ``autotune --json`` writes (see docs/command.md)."""

    def __str__(self) -> str:
        lines = [f"{task['workload']}: {_best(task)}" for task in self["tasks"]]
        network = self.get("network")
        if network:
            before, after = (_ms(network[key], network["timing"]) for key in ("default_secs", "best_secs"))
            lines.append(f"whole network: {after}, untuned {before}")
        return "\n".join(lines)

    __repr__ = __str__


def _best(task: dict[str, Any]) -> str:
    secs = task["best_secs"]
    return f"{task['trials']} trials" + ("" if secs is None else f", best {_ms(secs, task['timing'])}")


def _ms(secs: float, timing: str) -> str:
    # A time that was not measured in turns on a quiet machine is marked, as the command does.
    return f"{'' if timing == 'raced' else '≈ '}{secs * 1e3:.4g} ms"


class Profile(dict):
    """Times of a network's steps: the object that ``autotune bench --profile --json`` writes.

    ``steps`` is a list of dictionaries, one for each step.
    """

    @property
    def latency_secs(self) -> float:
        """Median time of a run in seconds."""
        return self["latency_secs"]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Steps in the order in which they run."""
        return self["steps"]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows())]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in self._rows()]
        return "\n".join([*lines, self._caption()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows()]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = html.escape(self._caption())
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _rows(self) -> list[list[str]]:
        rows = [["step", "us", "share", "rate", "chosen as", "workload"]]
        for step in self.steps:
            share = f"{step['share'] * 100:.1f} %"
            cells = [step["rate"] or "", step["chosen"], step["workload"] or ""]
            rows.append([step["step"], f"{step['run_secs'] * 1e6:.1f}", share, *cells])
        return rows

    def _caption(self) -> str:
        return f"{self['network']}: {_ms(self.latency_secs, self['timing'])}"
