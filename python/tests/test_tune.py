"""Tuning, profiles, libraries, snapshots and the command."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import autotune
import numpy as np
import pytest


@pytest.fixture
def db(tmp_path):
    return tmp_path / "db"


def test_a_network_is_tuned_profiled_and_compiled(layer, db, tmp_path, capfd):
    autotune.tune("matmul:m=8,n=8,k=8", trials=1, threads=1, db=db, progress=False)
    network = autotune.load(layer, threads=1, db=db, spin=False)
    x = np.ones((16, 64), np.float32)
    before = network(x)[0]
    report = network.tune(trials=2, progress=True)
    assert report["network"]["best_secs"] > 0 and "whole network" in str(report)
    assert "trials" in capfd.readouterr().err
    np.testing.assert_allclose(network(x)[0], before, rtol=1e-5, atol=1e-6)

    profile = network.profile()
    assert profile.latency_secs > 0 and len(profile.steps) >= 1
    assert "<table>" in profile._repr_html_() and "layer: " in str(profile)

    library = network.compile(tmp_path / "layer.so")
    assert ctypes.CDLL(str(library)).layer_workspace_bytes() > 0
    assert (tmp_path / "layer.h").read_text().startswith("/*")
    network.compile(tmp_path / "old.so", target="cpu:avx2")
    assert "AVX-512" not in (tmp_path / "old.h").read_text()
    with pytest.raises(autotune.CommandError, match="needs the same instructions"):
        network.compile(tmp_path / "twice.so", target="cpu:avx2,cpu:avx2")
    with pytest.raises(autotune.OptionError, match="is not a target"):
        network.compile(tmp_path / "none.so", target=["cpu"])


def test_an_operator_is_tuned_looked_up_and_put_in_a_snapshot(db, tmp_path):
    report = autotune.tune("matmul:m=32,n=64,k=32", trials=4, threads=1, db=db, progress=False)
    assert report["tasks"][0]["trials"] >= 4
    best = autotune.best("matmul:m=32,n=64,k=32", threads=1, db=db)
    assert best["workload"] == "matmul:m=32,n=64,k=32"
    snapshot = tmp_path / "tuned.snapshot"
    autotune.write_snapshot(snapshot, db=db)
    assert autotune.best("matmul:m=32,n=64,k=32", threads=1, db=snapshot)["config"] == best["config"]


def test_ctrl_c_stops_tuning_and_keeps_the_measurements(db):
    def interrupt():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not db.exists():
            time.sleep(0.05)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    # Programs in the background start with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        autotune.tune("conv2d:c=64,h=28,w=28,o=64,k=3,p=1", budget=600, threads=1, db=db, progress=False)
    helper.join()
    # The database is free, and intact.
    autotune.tune("matmul:m=8,n=8,k=8", trials=1, threads=1, db=db, progress=False)


def test_a_report_may_be_longer_than_a_pipe(tmp_path, monkeypatch):
    command = tmp_path / "autotune"
    command.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' a\necho message >&2\n")
    command.chmod(0o755)
    monkeypatch.setenv("AUTOTUNE_WORKER", str(command))
    # A command that waits for a reader would wait forever.
    signal.alarm(60)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert autotune._command.call(["report"]) == "a" * 1_000_000
    signal.alarm(0)
    # Python warns of files that were left open.
    assert [str(warning.message) for warning in told] == []


def test_the_module_is_the_command():
    ran = subprocess.run([sys.executable, "-m", "autotune", "--version"], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.strip() == f"autotune {autotune.__version__}"
    failed = subprocess.run([sys.executable, "-m", "autotune", "resnet19"], capture_output=True, text=True)
    assert failed.returncode == 2 and "unknown network 'resnet19'" in failed.stderr
