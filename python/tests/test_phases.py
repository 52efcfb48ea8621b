"""Models with loops, branches and shapes that depend on data, compared with ONNX Runtime."""

import autotune
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnx_models import save

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def floats(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def body(name, nodes, inputs, outputs):
    return helper.make_graph(nodes, name, *[[helper.make_tensor_value_info(*info) for info in side] for side in (inputs, outputs)])


WEIGHT = floats(64, 64, seed=1) / 8
ZERO, ONE, TWO = (np.array([number], np.int64) for number in range(3))


def selected(folder):
    """The rows with a positive sum, multiplied by a matrix."""
    nodes = [
        node("ReduceSum", ["x", "one"], ["sums"], keepdims=0),
        node("Greater", ["sums", "none"], ["chosen"]),
        node("NonZero", ["chosen"], ["places"]),
        node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["taken"]),
        node("MatMul", ["taken", "w"], ["y"]),
    ]
    return save(folder, "selected", nodes, [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["m", 64])], {"one": ONE, "none": np.float32(0), "w": WEIGHT})


def cached(folder):
    """A loop whose state grows by a row in each round."""
    nodes = [
        node("Concat", ["past", "row"], ["longer"], axis=0),
        node("MatMul", ["longer", "w"], ["mixed"]),
        node("ReduceMean", ["mixed"], ["mean"], axes=[0], keepdims=1),
        node("Add", ["mean", "row"], ["next"]),
        node("ReduceSum", ["next"], ["sum"], keepdims=0),
        node("Less", ["sum", "limit"], ["goes_on"]),
        node("Identity", ["next"], ["seen"]),
    ]
    inner = body(
        "body",
        nodes,
        [("i", INT64, []), ("c", BOOL, []), ("past", FLOAT, ["p", 64]), ("row", FLOAT, [1, 64])],
        [("goes_on", BOOL, []), ("longer", FLOAT, ["q", 64]), ("next", FLOAT, [1, 64]), ("seen", FLOAT, [1, 64])],
    )
    loop = node("Loop", ["rounds", "", "first", "start"], ["all", "last", "each"], body=inner)
    return save(
        folder,
        "cached",
        [loop],
        [("first", FLOAT, ["n", 64]), ("start", FLOAT, [1, 64])],
        [("all", FLOAT, ["m", 64]), ("last", FLOAT, [1, 64]), ("each", FLOAT, ["r", 1, 64])],
        {"rounds": np.int64(14), "limit": np.float32(7), "w": WEIGHT},
    )


def branched(folder):
    """A product for a positive sum, else the places of all elements that are not zero."""
    then = body("then", [node("MatMul", ["x", "w"], ["product"])], [], [("product", FLOAT, ["a", "b"])])
    places = [node("NonZero", ["x"], ["places"]), node("Cast", ["places"], ["numbers"], to=FLOAT)]
    other = body("other", places, [], [("numbers", FLOAT, ["c", "d"])])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "none"], ["is_positive"]),
        node("If", ["is_positive"], ["chosen"], then_branch=then, else_branch=other),
        node("Neg", ["chosen"], ["y"]),
    ]
    return save(folder, "branched", nodes, [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["e", "f"])], {"none": np.float32(0), "w": WEIGHT})


def scanned(folder):
    """A scan over the middle axis, from the last slice to the first."""
    nodes = [node("Add", ["state", "slice"], ["sum"]), node("Tanh", ["sum"], ["next"]), node("MatMul", ["next", "w"], ["out"])]
    inner = body("body", nodes, [("state", FLOAT, [2, 64]), ("slice", FLOAT, [2, 64])], [("next", FLOAT, [2, 64]), ("out", FLOAT, [2, 64])])
    attributes = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [1], "scan_output_directions": [1]}
    scan = node("Scan", ["first", "x"], ["last", "y"], body=inner, **attributes)
    return save(folder, "scanned", [scan], [("first", FLOAT, [2, 64]), ("x", FLOAT, [2, "n", 64])], [("last", FLOAT, [2, 64]), ("y", FLOAT, [2, "m", 64])], {"w": WEIGHT})


def detected(folder):
    """Boxes of a small detector without those that overlap."""
    constants = {
        "w": floats(16, 3, 3, 3, seed=2) / 4,
        "wb": floats(4, 16, 1, 1, seed=3),
        "ws": floats(5, 16, 1, 1, seed=4),
        "box": np.array([1, 4, -1], np.int64),
        "score": np.array([1, 5, -1], np.int64),
        "most": np.array([20], np.int64),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.6], np.float32),
        "one": ONE,
        "two": TWO,
    }
    nodes = [
        node("Conv", ["x", "w"], ["features"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["features"], ["f"]),
        node("Conv", ["f", "wb"], ["b"]),
        node("Conv", ["f", "ws"], ["s"]),
        node("Sigmoid", ["s"], ["shares"]),
        node("Reshape", ["b", "box"], ["columns"]),
        node("Transpose", ["columns"], ["boxes"], perm=[0, 2, 1]),
        node("Reshape", ["shares", "score"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["found"]),
        node("Gather", ["found", "two"], ["numbers"], axis=1),
        node("Squeeze", ["numbers", "one"], ["rows"]),
        node("Gather", ["boxes", "rows"], ["y"], axis=1),
    ]
    return save(folder, "detected", nodes, [("x", FLOAT, [1, 3, "h", "w"])], [("found", INT64, ["k", 3]), ("y", FLOAT, [1, "k", 4])], constants)


def masked(folder):
    """Rows of several lengths, cut at the longest."""
    nodes = [
        node("ReduceMax", ["lengths"], ["most"], keepdims=0),
        node("Range", ["start", "most", "step"], ["places"]),
        node("Unsqueeze", ["lengths", "one"], ["ends"]),
        node("Less", ["places", "ends"], ["is_inside"]),
        node("Cast", ["is_inside"], ["inside"], to=FLOAT),
        node("Unsqueeze", ["most", "zero"], ["end"]),
        node("Slice", ["x", "zero", "end", "one"], ["cut"]),
        node("Unsqueeze", ["inside", "two"], ["mask"]),
        node("Mul", ["cut", "mask"], ["y"]),
    ]
    constants = {"start": np.int64(0), "step": np.int64(1), "zero": ZERO, "one": ONE, "two": TWO}
    return save(folder, "masked", nodes, [("x", FLOAT, ["b", "n", 8]), ("lengths", INT64, ["b"])], [("y", FLOAT, ["b", "m", 8])], constants)


CASES = {
    selected: [{"x": floats(200, 64)}, {"x": floats(3, 64, seed=5)}, {"x": -np.abs(floats(9, 64))}],
    cached: [{"first": floats(rows, 64), "start": floats(1, 64, seed=rows)} for rows in (3, 0, 1)],
    branched: [{"x": floats(40, 64) + 1}, {"x": floats(40, 64) - 1}, {"x": np.zeros((2, 64), np.float32)}],
    scanned: [{"first": floats(2, 64), "x": floats(2, 15, 64)}, {"first": floats(2, 64), "x": floats(2, 1, 64)}],
    detected: [{"x": floats(1, 3, 64, 48)}, {"x": floats(1, 3, 40, 40, seed=6)}, {"x": floats(1, 3, 64, 48, seed=7)}],
    masked: [{"x": floats(3, 20, 8), "lengths": np.array([4, 11, 7])}, {"x": floats(1, 5, 8), "lengths": np.array([5])}],
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_results_equal_those_of_onnx_runtime(make, tmp_path):
    path = make(tmp_path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    network = autotune.load(path, threads=1)
    # The second round meets known shapes.
    for inputs in CASES[make] * 2:
        found = network.run(inputs)
        for array, wanted in zip(found.values(), session.run(None, inputs), strict=True):
            assert array.dtype == wanted.dtype and array.shape == wanted.shape
            if wanted.size:
                np.testing.assert_allclose(array, wanted, rtol=0, atol=2e-5 * max(1, np.abs(wanted).max()))


def test_an_error_in_a_body_names_its_node(tmp_path):
    nodes = [node("Identity", ["c"], ["d"]), node("MatMul", ["x", "x"], ["y"], name="inner")]
    info = ("x", FLOAT, ["a", "b"])
    inner = body("body", nodes, [("i", INT64, []), ("c", BOOL, []), info], [("d", BOOL, []), ("y", FLOAT, ["a", "b"])])
    loop = node("Loop", ["rounds", "", "x0"], ["z"], body=inner)
    path = save(tmp_path, "wrong", [loop], [("x0", FLOAT, ["n", "m"])], [("z", FLOAT, ["n", "m"])], {"rounds": np.int64(2)})
    with pytest.raises(autotune.ModelError, match="node 'inner'"):
        autotune.load(path).run({"x0": floats(2, 3)})
