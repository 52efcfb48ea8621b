"""The command ``autotune``, which tunes, profiles and compiles in a process of its own."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._errors import CommandError, OptionError

# Time that the command has to end after Ctrl-C.
_GRACE_SECS = 10


def program() -> str:
    """Returns the path of the command: ``$AUTOTUNE_WORKER``, else the one in the package."""
    named = os.environ.get("AUTOTUNE_WORKER")
    path = Path(named) if named else Path(__file__).parent / "bin" / "autotune"
    if not path.is_file():
        raise CommandError(f"the command autotune is missing at {path}: install the package again", 1)
    return str(path)


def limits(budget: str | float | None, trials: int | None) -> list[str]:
    """Returns the options that limit tuning."""
    words = []
    if budget is not None:
        if not isinstance(budget, str) and not (isinstance(budget, (int, float)) and 0 < budget < math.inf):
            raise OptionError(f"budget: {budget!r} is neither a number of seconds nor a text such as '60s'")
        words.append(f"--time-budget={budget if isinstance(budget, str) else f'{round(budget * 1000)}ms'}")
    if trials is not None:
        if not isinstance(trials, int) or trials < 0:
            raise OptionError(f"trials: {trials!r} is not a number of measurements")
        words.append(f"--trials={trials}")
    return words


def common(threads: int | None, db: str | os.PathLike[str] | None) -> list[str]:
    """Returns the options for the number of threads and the database."""
    words = [] if threads is None else ["--threads", str(threads)]
    return words if db is None else [*words, "--db", os.fspath(db)]


def call_json(arguments: Sequence[str], progress: bool = False) -> Any:
    """Runs the command and returns the JSON object that it prints."""
    return json.loads(call([*arguments, "--json", "-"], progress))


def call(arguments: Sequence[str], progress: bool = False) -> str:
    """Runs the command and returns its standard output.

    With ``progress``, its messages go to standard error as they appear: with bars on a terminal,
    with a line that changes elsewhere, such as in a notebook. Ctrl-C stops the command, which keeps
    all measurements.
    """
    show = _Display(progress)
    last = ""
    # A pipe would be full before the messages end.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [program(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if show.is_terminal else subprocess.PIPE,
            text=True,
            # In a session of its own, the command gets Ctrl-C from here alone, and only once.
            start_new_session=True,
        )
        try:
            for line in process.stderr or ():
                last = line.strip() or last
                show(line.rstrip())
            process.wait()
        except BaseException:
            _stop(process)
            raise
        finally:
            show.end()
            if process.stderr is not None:
                process.stderr.close()
        if process.returncode == 130:
            raise KeyboardInterrupt
        if process.returncode != 0:
            message = last.removeprefix("autotune: ") or f"autotune {arguments[0]} failed: see the messages above"
            raise CommandError(message, process.returncode)
        output.seek(0)
        return output.read()


def become(arguments: Sequence[str]) -> None:
    """Replaces this process by the command."""
    os.execv(program(), ["autotune", *arguments])


def _stop(process: subprocess.Popen[str]) -> None:
    """Interrupts the command, and waits until its files are complete."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_GRACE_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Display:
    """Messages on standard error: those of the command itself on a terminal, else its lines, where
    the counter of measurements changes in place."""

    def __init__(self, progress: bool):
        self.is_terminal = progress and _is_terminal()
        self._is_shown = progress
        self._width = 0

    def __call__(self, line: str) -> None:
        if not self._is_shown:
            return
        if line.startswith("["):
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self.end()
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Ends a line that changes."""
        if self._width:
            sys.stderr.write("\n")
            self._width = 0


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        # Notebooks replace the stream by one without a file.
        return False
