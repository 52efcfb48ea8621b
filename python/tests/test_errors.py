"""Errors name the argument and what was expected."""

import autotune
import numpy as np
import pytest

X = np.zeros((2, 64), np.float32)


def message(kind, call):
    with pytest.raises(kind) as raised:
        call()
    text = str(raised.value)
    assert len(text.splitlines()) == 1, text
    return text


def test_files_that_are_no_models(tmp_path, unsupported):
    assert "'none.onnx'" in message(FileNotFoundError, lambda: autotune.load("none.onnx"))
    text = tmp_path / "text.onnx"
    text.write_text("not a model")
    assert "text.onnx" in message(autotune.ModelError, lambda: autotune.load(text))
    refused = message(autotune.ModelError, lambda: autotune.load(unsupported))
    assert "riddle" in refused and "Mystery" in refused
    assert str(tmp_path) in message(FileNotFoundError, lambda: autotune.load(tmp_path))


def test_shapes_outside(layer):
    network = autotune.load(layer, shapes={"x": "1..8x64"})
    assert "extent 9 of axis 0 is not 1..8" in message(autotune.ShapeError, lambda: network(np.zeros((9, 64))))
    assert "'x'" in message(autotune.ShapeError, lambda: network(np.zeros((2, 63))))
    assert "1 axes, expected 2" in message(autotune.ShapeError, lambda: network(np.zeros(64)))
    assert network(X)[0].shape == (2, 48)
    assert isinstance(autotune.ShapeError("x"), ValueError)


@pytest.mark.parametrize("shape", ["1x", (2, "wide"), (2, 63), (1, range(5, 2)), (None, None, None)])
def test_shapes_that_the_model_does_not_have(layer, shape):
    message((autotune.OptionError, autotune.ShapeError), lambda: autotune.load(layer, shapes={"x": shape})(X))


def test_inputs_that_are_missing_or_unknown(layer):
    network = autotune.load(layer)
    assert "'x' is missing" in message(autotune.OptionError, lambda: network())
    assert "no input 'z': the inputs are x" in message(autotune.OptionError, lambda: network(X, z=X))
    assert "2 arrays" in message(autotune.OptionError, lambda: network(X, X))
    assert "given twice" in message(autotune.OptionError, lambda: network(X, x=X))


def test_elements_that_do_not_convert(layer, embedding):
    network = autotune.load(layer)
    assert "complex" in message(autotune.OptionError, lambda: network(X.astype(complex)))
    assert "not numbers" in message(autotune.OptionError, lambda: network([["a"] * 64]))
    message(autotune.OptionError, lambda: network([[1.0], [2.0, 3.0]]))
    ids = autotune.load(embedding)
    assert "float64, expected int64" in message(autotune.OptionError, lambda: ids([1.5], [True]))
    assert "16777217" in message(autotune.OptionError, lambda: ids([16777217], [True]))
    assert "int64, expected bool" in message(autotune.OptionError, lambda: ids([1], [1]))


def test_options_without_a_value(layer, tmp_path):
    load = lambda **options: lambda: autotune.load(layer, **options)
    assert "unknown precision 'f64'" in message(autotune.OptionError, load(precision="f64"))
    assert "quantised" in message(autotune.OptionError, load(quantised="no"))
    assert "threads" in message(autotune.OptionError, load(threads=10_000))
    assert "no input 'z': the inputs are x" in message(autotune.OptionError, load(shapes={"z": (1,)}))
    assert "no input 'z'" in message(autotune.OptionError, load(values={"z": 1}))
    assert "fixed shapes" in message(autotune.OptionError, load(precision="auto"))
    assert "missing" in message(autotune.DatabaseError, load(db=tmp_path / "missing"))


@pytest.mark.parametrize(
    "options",
    [
        {"threads": -1},
        {"threads": "2"},
        {"precision": None},
        {"max_error": "x"},
        {"max_error": float("nan")},
        {"db": 5},
        {"spin": "off"},
        {"shapes": "x"},
        {"values": ["x"]},
    ],
)
def test_options_of_another_type(layer, options):
    (name,) = options
    assert message(autotune.OptionError, lambda: autotune.load(layer, **options)).startswith(name)


def test_arguments_of_another_type(layer):
    network = autotune.load(layer, shapes={"x": (2, 64)})
    assert "model" in message(autotune.OptionError, lambda: autotune.load(b"bytes"))
    assert "dictionary" in message(autotune.OptionError, lambda: network.run([X]))
    for budget in (-1, float("nan"), [1]):
        assert "budget" in message(autotune.OptionError, lambda: network.tune(budget))
    assert "trials" in message(autotune.OptionError, lambda: network.tune(trials=-1))


def test_commands_that_fail():
    assert "field 'k' is missing" in message(autotune.CommandError, lambda: autotune.best("matmul:m=4,n=4"))
    with pytest.raises(autotune.CommandError) as raised:
        autotune.best("matmul:m=4,n=4,k=4")
    assert "tune it first" in str(raised.value) and raised.value.exit_code == 1


def test_a_network_of_open_shapes_needs_one_to_be_tuned_for(layer):
    network = autotune.load(layer)
    assert "'x' is open" in message(autotune.OptionError, lambda: network.tune("1s"))
    assert "no input 'z'" in message(autotune.OptionError, lambda: network.profile({"z": (1, 64)}))
