"""The execution provider in ONNX Runtime, compared with ONNX Runtime's own kernels."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import save
from sessions import LIBRARY, PROVIDER, check, layer, random, session, taken


def test_a_whole_model_runs_on_the_provider_in_any_shape(tmp_path):
    path = layer(tmp_path)
    own = session(path, alone=True)
    assert taken(own) in (None, [["MatMul", "Relu", "MatMul"]])
    for rows in (1, 7, 64, 7):
        check(path, own, {"x": random((rows, 32), rows)})


def test_a_node_in_the_middle_is_left_to_onnx_runtime(tmp_path):
    # Strings are not among the tensors of networks.
    text = [
        helper.make_node("Cast", ["h"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["g"], to=TensorProto.FLOAT),
    ]
    path = layer(tmp_path, "text", text)
    own = session(path)
    assert taken(own) in (None, [["MatMul"], ["MatMul"]])
    check(path, own, {"x": random((5, 32))})


def test_control_flow_is_left_to_onnx_runtime(tmp_path):
    def branch(name, operator):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, ["h"], [name])], name, [], [value])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_positive"]),
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("If", ["is_positive"], ["g"], then_branch=branch("p", "Relu"), else_branch=branch("q", "Neg")),
        helper.make_node("MatMul", ["g", "b"], ["y"]),
    ]
    inputs, outputs = [("x", TensorProto.FLOAT, [3, 8])], [("y", TensorProto.FLOAT, [3, 4])]
    constants = {"a": random((8, 8), 1), "b": random((8, 4), 2), "zero": np.float32(0)}
    path = save(tmp_path, "branches", nodes, inputs, outputs, constants)
    own = session(path)
    assert taken(own) != []
    for sign in (1, -1):
        check(path, own, {"x": sign * np.abs(random((3, 8)))})


def test_elements_of_other_types_convert(tmp_path):
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["mask", "axes"], ["column"]),
        helper.make_node("Where", ["column", "rows", "zero"], ["kept"]),
        helper.make_node("MatMul", ["kept", "w"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.DOUBLE),
        helper.make_node("ArgMax", ["sums"], ["largest"], axis=1, keepdims=0),
    ]
    inputs = [("ids", TensorProto.INT32, ["n"]), ("mask", TensorProto.BOOL, ["n"])]
    outputs = [("y", TensorProto.DOUBLE, ["n", 4]), ("largest", TensorProto.INT64, ["n"])]
    constants = {"table": random((20, 8)), "axes": np.array([1]), "zero": np.float32(0), "w": random((8, 4), 3)}
    path = save(tmp_path, "types", nodes, inputs, outputs, constants)
    own = session(path)
    assert taken(own) != []
    inputs = {"ids": np.array([3, 19, 0], np.int32), "mask": np.array([True, False, True])}
    check(path, own, inputs)


def test_large_integers_and_double_precision_are_left_to_onnx_runtime(tmp_path):
    nodes = [
        helper.make_node("Add", ["ids", "step"], ["next"]),
        helper.make_node("MatMul", ["d", "m"], ["product"]),
        helper.make_node("MatMul", ["x", "a"], ["y"]),
    ]
    inputs = [("ids", TensorProto.INT64, [2]), ("d", TensorProto.DOUBLE, [1, 8]), ("x", TensorProto.FLOAT, [1, 8])]
    outputs = [("next", TensorProto.INT64, [2]), ("product", TensorProto.DOUBLE, [1, 4]), ("y", TensorProto.FLOAT, [1, 4])]
    constants = {"step": np.array([1, 1]), "m": random((8, 4), 1).astype(np.float64) / 3, "a": random((8, 4), 2)}
    path = save(tmp_path, "exact", nodes, inputs, outputs, constants)
    own = session(path)
    assert taken(own) in (None, [["MatMul"]])
    inputs = {"ids": np.array([1 << 40, 1 << 24]), "d": random((1, 8), 3).astype(np.float64) / 7, "x": random((1, 8))}
    following, product, _ = own.run(None, inputs)
    assert following.tolist() == [(1 << 40) + 1, (1 << 24) + 1]
    np.testing.assert_allclose(product, inputs["d"] @ constants["m"], rtol=1e-12)


def test_bytes_that_wrap_around_are_left_to_onnx_runtime(tmp_path):
    nodes = [helper.make_node("Add", ["q", "q"], ["sum"]), helper.make_node("MatMul", ["x", "a"], ["y"])]
    inputs = [("q", TensorProto.UINT8, [2]), ("x", TensorProto.FLOAT, [1, 8])]
    outputs = [("sum", TensorProto.UINT8, [2]), ("y", TensorProto.FLOAT, [1, 4])]
    path = save(tmp_path, "bytes", nodes, inputs, outputs, {"a": random((8, 4))})
    found = session(path).run(None, {"q": np.array([250, 3], np.uint8), "x": random((1, 8))})[0]
    assert found.tolist() == [244, 6]


def test_a_failure_names_the_node_of_the_model(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Reshape", ["h", "one"], ["y"], name="to_one_row"),
    ]
    inputs, outputs = [("x", TensorProto.FLOAT, ["rows", 64])], [("y", TensorProto.FLOAT, [1, 32])]
    path = save(tmp_path, "named", nodes, inputs, outputs, {"one": np.array([1, 32]), "a": random((64, 32))})
    own = session(path, alone=True)
    assert own.run(None, {"x": random((1, 64))})[0].shape == (1, 32)
    with pytest.raises(Exception) as raised:
        own.run(None, {"x": random((3, 64))})
    assert "to_one_row" in str(raised.value)


def test_shapes_are_computed_by_the_provider(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["rows"]),
        helper.make_node("Mul", ["rows", "two"], ["more"]),
        helper.make_node("Concat", ["more", "rest"], ["wanted"], axis=0),
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Reshape", ["h", "wanted"], ["y"]),
    ]
    inputs, outputs = [("x", TensorProto.FLOAT, ["rows", 8])], [("y", TensorProto.FLOAT, ["a", "b"])]
    constants = {"first": np.array([0]), "two": np.array([2]), "rest": np.array([-1]), "a": random((8, 4))}
    path = save(tmp_path, "shapes", nodes, inputs, outputs, constants)
    own = session(path, alone=True)
    for rows in (1, 6, 3):
        check(path, own, {"x": random((rows, 8), rows)})


def test_a_value_that_is_used_inside_and_outside_of_a_part(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
        helper.make_node("Cast", ["h"], ["text"], to=TensorProto.STRING),
    ]
    inputs = [("x", TensorProto.FLOAT, [2, 8])]
    outputs = [("y", TensorProto.FLOAT, [2, 4]), ("h", TensorProto.FLOAT, [2, 4]), ("text", TensorProto.STRING, [2, 4])]
    path = save(tmp_path, "shared", nodes, inputs, outputs, {"a": random((8, 4))})
    own = session(path)
    y, h, text = own.run(None, {"x": random((2, 8), 5)})
    np.testing.assert_allclose(h, random((2, 8), 5) @ random((8, 4)), atol=1e-5)
    np.testing.assert_array_equal(y, np.maximum(h, 0))
    assert text.shape == (2, 4)


def test_a_value_that_a_node_uses_twice(tmp_path):
    path = layer(tmp_path, "square", [helper.make_node("Mul", ["h", "h"], ["g"])])
    check(path, session(path, alone=True), {"x": random((3, 32))})


def test_sessions_and_threads_do_not_disturb_each_other(tmp_path):
    paths = [layer(tmp_path, "one"), layer(tmp_path, "two", [helper.make_node("Tanh", ["h"], ["g"])])]
    sessions = [session(path) for path in paths]
    wanted = [[own.run(None, {"x": random((rows, 32), rows)})[0] for rows in range(1, 9)] for own in sessions]
    wrong = []

    def work(first):
        for number in range(first, 64, 4):
            own, rows = number % 2, 1 + number % 8
            found = sessions[own].run(None, {"x": random((rows, 32), rows)})[0]
            if not np.array_equal(found, wanted[own][rows - 1]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "option, text",
    [
        ({"threads": "many"}, "option threads=many: expected a number"),
        ({"precision": "f64"}, "option precision=f64: expected f32, bf16 or auto"),
        ({"db": "/nowhere/at/all"}, "option db=/nowhere/at/all: "),
        ({"snapshot": "/nowhere/at/all"}, "option snapshot=/nowhere/at/all: no snapshot at"),
        ({"snapshot": __file__}, "is not a snapshot"),
        ({"db": "a", "snapshot": "b"}, "options db and snapshot exclude each other"),
        ({"precision": "auto", "max_error": "-0.1"}, "option max_error=-0.1: expected a relative error such as 0.01"),
        ({"precision": "auto", "max_error": "NaN"}, "option max_error=NaN: expected a relative error such as 0.01"),
        ({"precision": "auto", "max_error": "some"}, "option max_error=some: expected a relative error such as 0.01"),
        ({"spin": "maybe"}, "option spin=maybe: expected on, brief or off"),
        ({"max_error": "0.01"}, "option max_error: expected only with precision=auto"),
        ({"dp": "a"}, "unknown option dp: the options are threads, tune, db, snapshot, precision, max_error, spin"),
    ],
)
def test_options_without_a_meaning_are_refused(tmp_path, option, text):
    with pytest.raises(Exception) as raised:
        session(layer(tmp_path), option)
    assert text in str(raised.value)


def test_the_precision_is_an_option(tmp_path):
    path, x = layer(tmp_path), random((4, 32))
    exact = session(path).run(None, {"x": x})[0]
    rounded = session(path, {"precision": "bf16"}).run(None, {"x": x})[0]
    error = np.abs(exact - rounded).max() / np.abs(exact).max()
    assert 1e-6 < error < 0.05


def test_the_fastest_precision_keeps_the_bound_of_its_error(tmp_path):
    path, x = layer(tmp_path, rows=4), random((4, 32))
    exact = session(path).run(None, {"x": x})[0]
    # Random inputs decide: no rounding is without an error.
    strict = session(path, {"precision": "auto", "max_error": "0"}).run(None, {"x": x})[0]
    np.testing.assert_array_equal(strict, exact)
    loose = session(path, {"precision": "auto"}).run(None, {"x": x})[0]
    assert np.abs(exact - loose).max() <= 0.05 * np.abs(exact).max()


def test_the_fastest_precision_needs_fixed_shapes(tmp_path):
    with pytest.raises(Exception) as raised:
        session(layer(tmp_path), {"precision": "auto"})
    assert "the precision can only be decided for fixed shapes" in str(raised.value)


def test_helper_threads_need_not_spin(tmp_path):
    path, x = layer(tmp_path), random((64, 32))
    spinning, sleeping = (session(path, {"threads": "2", "spin": word}).run(None, {"x": x})[0] for word in ("on", "off"))
    np.testing.assert_array_equal(spinning, sleeping)


def test_the_library_is_registered_and_unregistered_often(tmp_path):
    script = f"""
import numpy, onnxruntime
for turn in range(25):
    onnxruntime.register_execution_provider_library("autotune", {LIBRARY!r})
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == {PROVIDER!r}]
    assert len(devices) == 1
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {{"threads": "1"}})
    session = onnxruntime.InferenceSession({str(layer(tmp_path))!r}, sess_options=options)
    assert session.run(None, {{"x": numpy.ones((2, 32), numpy.float32)}})[0].shape == (2, 16)
    del session, devices
    onnxruntime.unregister_execution_provider_library("autotune")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_steps_are_in_profiles(tmp_path):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    profiled, x = session(layer(tmp_path), settings=options), random((64, 32))
    wanted = session(layer(tmp_path)).run(None, {"x": x})[0]
    for _ in range(3):
        np.testing.assert_array_equal(profiled.run(None, {"x": x})[0], wanted)
    with open(profiled.end_profiling()) as file:
        events = json.load(file)
    steps = [event for event in events if event["cat"] == "Kernel"]
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 25):
        assert not steps
        return

    products = [step for step in steps if step["args"]["op_name"] == "matmul"]
    assert len(products) == 6 and all(step["args"]["workload"].startswith("matmul:m=64,") for step in products)
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    assert len(nodes) == 3
    for step in steps:
        around = [node for node in nodes if node["ts"] <= step["ts"] and step["ts"] + step["dur"] <= node["ts"] + node["dur"]]
        assert len(around) == 1 and around[0]["name"] == step["args"]["parent_name"] + "_kernel_time"
        assert (step["pid"], step["tid"]) == (around[0]["pid"], around[0]["tid"])
    # Runs after the end of a profile are as before.
    np.testing.assert_array_equal(profiled.run(None, {"x": x})[0], wanted)


def test_concurrent_runs_are_in_a_profile(tmp_path):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    path, inputs = layer(tmp_path), [{"x": random((rows, 32), rows)} for rows in (1, 5, 33, 64)]
    profiled, other = session(path, settings=options), session(path)
    wanted = [other.run(None, x)[0] for x in inputs]

    def work(number):
        for _ in range(20):
            np.testing.assert_array_equal(profiled.run(None, inputs[number])[0], wanted[number])
            np.testing.assert_array_equal(other.run(None, inputs[number])[0], wanted[number])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    with open(profiled.end_profiling()) as file:
        steps = [event for event in json.load(file) if event["cat"] == "Kernel"]
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 25):
        assert sum(step["args"]["op_name"] == "matmul" for step in steps) == 2 * 4 * 20
        assert {step["args"]["workload"].split(",")[0] for step in steps} == {f"matmul:m={rows}" for rows in (1, 5, 33, 64)}
