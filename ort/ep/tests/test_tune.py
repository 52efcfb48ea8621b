"""The option `tune`, with a stand-in for the command. `python/tests` has the command itself."""

import json
import os
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import save
from sessions import check, layer, random, session
from test_context import contents, description, made


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Installs a script as the command, and returns a function with the arguments of its calls."""
    calls = tmp_path / "calls"

    def install(script="true"):
        path = tmp_path / "autotune"
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {calls}\ncp "$1" {tmp_path}/model-$(wc -l < {calls}).onnx\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("AUTOTUNE_WORKER", str(path))
        return lambda: [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []

    return install


def option(arguments, name):
    return arguments[arguments.index(name) + 1]


def budget(arguments):
    (word,) = [word for word in arguments if word.startswith("--time-budget=")]
    return int(word.removeprefix("--time-budget=").removesuffix("ms"))


def refused(path, options):
    with pytest.raises(Exception) as raised:
        session(path, options)
    return str(raised.value)


def test_values_without_a_meaning_are_refused(tmp_path, command):
    command()
    path, file = layer(tmp_path, rows=4), tmp_path / "file"
    file.write_text("no database")
    wrong = "option tune=soon: expected off, lookup or a time such as 30s"
    assert wrong in refused(path, {"tune": "soon"})
    assert "option tune=0s: expected off" in refused(path, {"tune": "0s"})
    assert "options db and tune=off exclude each other" in refused(path, {"tune": "off", "db": "a"})
    assert "options snapshot and tune=30s exclude each other" in refused(path, {"tune": "30s", "snapshot": "a"})
    assert f"{file} is a file, not a database" in refused(path, {"tune": "30s", "db": str(file)})


def test_a_missing_command_is_named(tmp_path, monkeypatch):
    path = layer(tmp_path, rows=4)
    monkeypatch.delenv("AUTOTUNE_WORKER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refused(path, {"tune": "30s", "db": str(tmp_path / "db")})
    assert "option tune=30s: the command autotune, which tunes, is neither beside /" in message
    assert "libautotune_ep.so nor in PATH: build it with cargo build" in message
    monkeypatch.setenv("AUTOTUNE_WORKER", "/nowhere/autotune")
    assert "AUTOTUNE_WORKER=/nowhere/autotune is not a file" in refused(path, {"tune": "30s"})


def test_the_command_may_be_in_the_present_folder(tmp_path, monkeypatch, command):
    calls = command()
    path = layer(tmp_path, rows=4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_WORKER", "autotune")
    session(path, {"tune": "30s", "db": str(tmp_path / "db")})
    monkeypatch.delenv("AUTOTUNE_WORKER")
    # An empty part of the path is the present folder.
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    session(path, {"tune": "30s", "db": str(tmp_path / "other")})
    assert len(calls()) == 2


def test_a_part_is_tuned_before_it_is_compiled(tmp_path, command):
    # The stand-in "tunes" by a database that exists.
    database = tmp_path / "new" / "db"
    calls = command(f'rm -r "{database}"; cp -r "{os.environ["AUTOTUNE_TEST_DB"]}" "{database}"')
    path = layer(tmp_path, rows=4)
    first, context = made(path, True, {"tune": "1m30s", "db": str(database)})
    (arguments,) = calls()
    assert option(arguments, "--db") == str(database) and option(arguments, "--threads") == "1"
    assert option(arguments, "--precision") == "f32" and budget(arguments) == 90_000
    (tuned,) = tmp_path.glob("model-*.onnx")
    assert [node.op_type for node in onnx.load(tuned, load_external_data=False).graph.node] == ["MatMul", "Relu", "MatMul"]
    check(path, first, {"x": random((4, 32))})

    # Its records decide the plan, and are not measured again.
    known = json.loads(os.environ["AUTOTUNE_TEST_CONFIGS"])
    (pinned,) = description(contents(context)[0])["pinned"]
    assert len(pinned["configs"]) == 2 and all(config in known for config in pinned["configs"])
    session(path, {"tune": "1h", "db": str(database)})
    assert len(calls()) == 1
    # Measurements of other numbers of threads do not count.
    session(path, {"tune": "1h", "db": str(database), "threads": "2"})
    assert option(calls()[1], "--threads") == "2"


def test_parts_share_the_time_by_their_work(tmp_path, command):
    calls = command("sleep 1")
    text = [
        helper.make_node("Cast", ["h"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["g"], to=TensorProto.FLOAT),
    ]
    session(layer(tmp_path, "text", text, rows=4), {"tune": "100s", "db": str(tmp_path / "db")})
    first, second = [budget(arguments) for arguments in calls()]
    # The products have 32 x 24 and 24 x 16 elements in their weights. The last part has the time
    # that the first one leaves.
    assert 33_000 < first < 34_000 and 0 < second <= 99_000


def test_small_parts_are_left_out(tmp_path, command):
    calls, database = command(), tmp_path / "db"
    shutil.copytree(os.environ["AUTOTUNE_TEST_DB"], database)
    # All of the layer is measured; the product after it is less than 1 % of the work.
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["g"]),
        helper.make_node("MatMul", ["g", "b"], ["layer"]),
        helper.make_node("Cast", ["layer"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["numbers", "first"], ["row"]),
        helper.make_node("Mul", ["row", "two"], ["y"]),
    ]
    inputs, outputs = [("x", TensorProto.FLOAT, [4, 32])], [("y", TensorProto.FLOAT, [1, 16])]
    constants = {"a": random((32, 24), 1), "b": random((24, 16), 2), "first": np.array([0]), "two": np.float32(2)}
    path = save(tmp_path, "small", nodes, inputs, outputs, constants)
    check(path, session(path, {"tune": "1h", "db": str(database)}), {"x": random((4, 32))})
    assert calls() == []
    session(path, {"tune": "1h", "db": str(tmp_path / "other")})
    assert len(calls()) == 1


def test_the_fastest_precision_is_tuned_in_each(tmp_path, command):
    calls = command()
    session(layer(tmp_path, rows=4), {"tune": "10s", "db": str(tmp_path / "db"), "precision": "auto"})
    words = [option(arguments, "--precision") for arguments in calls()]
    assert words[0] == "f32" and set(words) <= {"f32", "bf16"}
    assert all(budget(arguments) == 10_000 // len(words) for arguments in calls())


def test_parts_with_open_shapes_are_not_tuned(tmp_path, command, capfd):
    calls = command()
    path, options = layer(tmp_path), {"tune": "30s", "db": str(tmp_path / "db")}
    own = session(path, options)
    assert calls() == [] and "the shape of 'x' is open: its part is not tuned" in capfd.readouterr().err
    check(path, own, {"x": random((3, 32))})


def test_a_failure_of_the_command_is_told(tmp_path, command):
    command("echo first >&2; echo autotune: it is broken >&2; exit 3")
    message = refused(layer(tmp_path, rows=4), {"tune": "30s", "db": str(tmp_path / "db")})
    assert "autotune: option tune=30s: " in message and "failed with exit status: 3: it is broken" in message


def test_another_process_that_tunes_is_not_waited_for(tmp_path, command, capfd):
    path, x = layer(tmp_path, rows=4), {"x": random((4, 32))}
    database = tmp_path / "db"
    # Another process begins to write after the first look at the database.
    calls = command(f'exec 9>>"{database}/holder"; flock 9; sleep 10 >/dev/null 2>&1 & exit 1')
    options = {"tune": "30s", "db": str(database)}
    for _ in range(2):
        check(path, session(path, options), x)
        assert ": parts are not tuned" in capfd.readouterr().err
    assert len(calls()) == 1


def test_without_look_up_schedules_are_predicted(tmp_path, monkeypatch):
    database = tmp_path / "db"
    shutil.copytree(os.environ["AUTOTUNE_TEST_DB"], database)
    monkeypatch.setenv("AUTOTUNE_DB", str(database))
    path, known = layer(tmp_path, rows=4), json.loads(os.environ["AUTOTUNE_TEST_CONFIGS"])
    for word, is_known in [("lookup", True), ("off", False)]:
        own, context = made(path, True, {"tune": word}, f"{word}.onnx")
        (pinned,) = description(contents(context)[0])["pinned"]
        assert all((config in known) == is_known for config in pinned["configs"])
        check(path, own, {"x": random((4, 32))})
