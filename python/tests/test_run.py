"""Runs of networks, compared with ONNX Runtime."""

import os
import threading

import autotune
import numpy as np
import onnxruntime
import pytest


def reference(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def rows(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 64)).astype(np.float32)


def check(path, network, inputs):
    found = network.run(inputs)
    assert list(found) == list(network.outputs)
    for array, wanted in zip(found.values(), reference(path, inputs)):
        assert array.dtype == wanted.dtype and array.shape == wanted.shape
        np.testing.assert_allclose(array, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_any_shape_runs_and_equals_onnx_runtime(layer):
    network = autotune.load(layer, threads=1)
    assert network.inputs == (("x", np.dtype(np.float32), (None, 64)),)
    assert network.outputs == ("y", "largest")
    for count in [1, 7, 64, 7, 3, 200]:
        check(layer, network, {"x": rows(count, count)})
    assert repr(network) == "<autotune.Network 'layer' (x: float32[None, 64]) -> (y, largest)>"


def test_calls_take_arrays_in_order_or_by_name(layer, scaled):
    network, x = autotune.load(layer), rows(5)
    y, largest = network(x)
    assert largest.dtype == np.int64
    for other in [network(x=x)[0], network.run({"x": x})["y"]]:
        np.testing.assert_array_equal(y, other)
    np.testing.assert_array_equal(autotune.load(scaled)(np.arange(4, dtype=np.float32), 3), [0, 3, 6, 9])


def test_elements_of_other_types_convert_without_loss(embedding):
    network = autotune.load(embedding)
    ids, mask = np.array([3, 99, 0, 41]), np.array([True, False, True, True])
    check(embedding, network, {"ids": ids, "mask": mask})
    wanted = network(ids, mask)
    assert wanted.dtype == np.float64
    for others in [(ids.astype(np.uint8), mask), (ids.tolist(), mask.tolist()), (ids.astype(">i4"), mask)]:
        np.testing.assert_array_equal(network(*others), wanted)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(np.float64),
        lambda x: x.astype(">f4"),
        lambda x: x.tolist(),
        lambda x: memoryview(x),
        lambda x: np.repeat(x, 3, axis=1)[:, ::3],
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    ],
)
def test_arrays_of_any_strides_and_objects_convert(layer, change):
    network, x = autotune.load(layer), rows(6)
    given = change(x)
    wanted = network(np.ascontiguousarray(given, dtype=np.float32))[0]
    np.testing.assert_array_equal(network(given)[0], wanted)


def test_objects_with_dlpack_or_an_array_interface_convert(layer):
    class Tensor:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Described:
        def __init__(self, array):
            self.array, self.__array_interface__ = array, array.__array_interface__

    network, x = autotune.load(layer), rows(6)
    for wrapped in [Tensor(x), Described(x)]:
        np.testing.assert_array_equal(network(wrapped)[0], network(x)[0])


def test_inputs_are_not_changed_and_read_only_arrays_run(layer):
    network, x = autotune.load(layer), rows(6)
    before = x.copy()
    x.flags.writeable = False
    network(x)
    np.testing.assert_array_equal(x, before)


def test_outputs_belong_to_the_caller(layer):
    network = autotune.load(layer)
    first = network(rows(4, 1))[0]
    kept = first.copy()
    network(rows(4, 2))
    np.testing.assert_array_equal(first, kept)
    first[:] = 0


def test_values_are_constants(scaled):
    network = autotune.load(scaled, values={"scale": 0.5})
    assert [input.name for input in network.inputs] == ["x"]
    np.testing.assert_array_equal(network(np.ones(4, np.float32)), [0.5] * 4)


def test_precision_is_chosen_within_an_error(layer):
    x = rows(64)
    exact = autotune.load(layer)(x)[0]
    rounded = autotune.load(layer, precision="bf16")(x)[0]
    chosen = autotune.load(layer, precision="auto", shapes={"x": (64, 64)}, max_error=1e-9, examples={"x": x})(x)[0]
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    np.testing.assert_allclose(chosen, exact, atol=1e-6)


def test_threads_run_one_network(layer):
    network = autotune.load(layer, threads=1)
    wanted = [network(rows(1 + number % 5, number))[0] for number in range(40)]
    wrong = []

    def work(first):
        for number in range(first, 40, 4):
            if not np.array_equal(network(rows(1 + number % 5, number))[0], wanted[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("threads", [1, None])
def test_a_forked_child_runs_known_and_new_shapes(layer, threads):
    network = autotune.load(layer, threads=threads)
    wanted = [network(rows(count))[0] for count in (3, 300)]
    other = autotune.load(layer, threads=threads)
    other(rows(3))
    child = os.fork()
    if child == 0:
        # An exception must not continue pytest in the child.
        status = 1
        try:
            status = 0 if all(np.array_equal(other(rows(len(y)))[0], y) for y in wanted) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(other(rows(300))[0], wanted[1])


@pytest.mark.parametrize("threads", [1, None])
def test_a_forked_child_opens_networks(layer, threads):
    wanted = autotune.load(layer, threads=threads)(rows(9))[0]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            found = autotune.load(layer, threads=threads)(rows(9))[0]
            status = 0 if np.array_equal(found, wanted) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_built_in_networks_load_by_name():
    network = autotune.load("dqn")
    assert "dqn" in autotune.NETWORKS and network.name == "dqn"
    assert network(np.zeros(network.inputs[0].shape, np.float32)).shape[0] == 1
