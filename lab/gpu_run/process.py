"""Runs a program within a limit, with all that it starts."""

import ctypes
import os
import signal
import subprocess
import time

# Seconds in which a program that was asked to end may do so.
GRACE_SECS = 3.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _in_a_group_of_its_own():
    """Runs in the new process: it can be ended with what it starts, and ends with this one whatever ends that."""
    os.setpgid(0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(argv, output, limit_secs, env, stdin=""):
    """Appends what the program says to a file; its exit status, None if it was ended at its limit. Whatever ends this function, nothing
    of the program goes on."""
    with open(output, "ab") as sink, subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=sink, stderr=subprocess.STDOUT, env=env,
            preexec_fn=_in_a_group_of_its_own) as child:
        try:
            child.communicate(stdin.encode(), timeout=limit_secs)
            return child.returncode
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(child)


def _end(child):
    _signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECS
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group, number):
    # A process that sleeps outside its turns must wake to end.
    for one in (number, signal.SIGCONT):
        try:
            os.killpg(group, one)
        except ProcessLookupError:
            return
