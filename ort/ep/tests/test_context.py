"""Models with EPContext nodes: made by one session, loaded by others."""

import json
import os
import shutil
import struct

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import save
from onnxruntime.capi import _pybind_state
from sessions import PROVIDER, check, devices, layer, random, session, taken

# Sizes before the description: magic, format, size and checksum, then sizes of four sections.
HEADER = 64


def made(path, is_embedded, options=None, name="model_ctx.onnx"):
    """A session that writes a model with EPContext nodes, and that model's path."""
    context = path.parent / name
    config = {
        "ep.context_enable": "1",
        "ep.context_file_path": str(context),
        "ep.context_embed_mode": "1" if is_embedded else "0",
    }
    return session(path, options, config=config), context


def nodes(context):
    return [node for node in onnx.load(context).graph.node if node.op_type == "EPContext"]


def attributes(node):
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def contents(context):
    """Contents of the first node, and a function that returns a model with others in their place."""
    model = onnx.load(context)
    node = next(node for node in model.graph.node if node.op_type == "EPContext")
    attribute = next(attribute for attribute in node.attribute if attribute.name == "ep_cache_context")
    original = bytes(attribute.s)

    def replaced(other):
        attribute.s = other
        return model.SerializeToString()

    return original, replaced


def description(bytes_):
    size = struct.unpack_from("<Q", bytes_, 32)[0]
    return json.loads(bytes_[HEADER : HEADER + size])


def refused(model, config=None):
    with pytest.raises(Exception) as raised:
        session(model, config=config)
    return str(raised.value)


@pytest.mark.parametrize("is_embedded", [True, False])
@pytest.mark.parametrize("rows", [4, "rows"])
def test_a_loaded_model_computes_the_same_without_its_source(tmp_path, is_embedded, rows):
    database = os.environ["AUTOTUNE_TEST_DB"]
    copy = tmp_path / "db"
    shutil.copytree(database, copy)
    path = layer(tmp_path, rows=rows)
    first, context = made(path, is_embedded, {"db": str(copy)})
    wanted = {count: first.run(None, {"x": random((count, 32), count)})[0] for count in ([4] if rows == 4 else [1, 4, 9])}

    # Only the new files are left, in another folder.
    del first
    shutil.rmtree(copy)
    path.unlink()
    there = tmp_path / "there"
    there.mkdir()
    for file in tmp_path.glob("model_ctx*"):
        file.rename(there / file.name)
    context = there / context.name
    (node,) = nodes(context)
    given = attributes(node)
    assert given["source"] == PROVIDER.encode() and given["main_context"] == 1
    assert given["embed_mode"] == int(is_embedded) and given["partition_name"] and given["ep_sdk_version"]
    assert len(list(there.iterdir())) == (1 if is_embedded else 2)

    loaded = session(context)
    assert taken(loaded) in (None, [["EPContext"]])
    for count, y in wanted.items():
        np.testing.assert_array_equal(loaded.run(None, {"x": random((count, 32), count)})[0], y)


def test_the_schedules_are_those_of_the_database(tmp_path):
    _, context = made(layer(tmp_path, rows=4), True, {"db": os.environ["AUTOTUNE_TEST_DB"]})
    known = json.loads(os.environ["AUTOTUNE_TEST_CONFIGS"])
    (pinned,) = description(contents(context)[0])["pinned"]
    assert len(pinned["configs"]) == 2 and all(config in known for config in pinned["configs"])


def test_parts_between_other_nodes_are_loaded(tmp_path):
    text = [
        helper.make_node("Cast", ["h"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["g"], to=TensorProto.FLOAT),
    ]
    path = layer(tmp_path, "text", text)
    first, context = made(path, True)
    assert len(nodes(context)) == 2
    x = {"x": random((5, 32))}
    loaded = session(context)
    np.testing.assert_array_equal(loaded.run(None, x)[0], first.run(None, x)[0])
    check(path, loaded, x)


def test_inputs_and_outputs_keep_their_order(tmp_path):
    nodes_ = [
        helper.make_node("MatMul", ["second", "a"], ["p"]),
        helper.make_node("Sub", ["p", "first"], ["left"]),
        helper.make_node("MatMul", ["left", "a"], ["right"]),
    ]
    inputs = [(name, TensorProto.FLOAT, [8, 8]) for name in ("first", "second")]
    outputs = [(name, TensorProto.FLOAT, [8, 8]) for name in ("right", "left")]
    path = save(tmp_path, "order", nodes_, inputs, outputs, {"a": random((8, 8), 1)})
    x = {"first": random((8, 8), 2), "second": random((8, 8), 3)}
    first, context = made(path, False)
    loaded = session(context)
    for found, wanted in zip(loaded.run(None, x), first.run(None, x)):
        np.testing.assert_array_equal(found, wanted)
    check(path, loaded, x)


def test_the_precision_is_that_of_the_first_session(tmp_path):
    path, x = layer(tmp_path, rows=4), {"x": random((4, 32))}
    for options in ({"precision": "bf16"}, {"precision": "auto", "max_error": "0.05"}):
        first, context = made(path, True, options, f"{options['precision']}.onnx")
        np.testing.assert_array_equal(session(context).run(None, x)[0], first.run(None, x)[0])


def test_a_loaded_model_can_be_written_again(tmp_path):
    first, context = made(layer(tmp_path), False)
    second, again = made(context, True, name="again.onnx")
    x = {"x": random((3, 32))}
    np.testing.assert_array_equal(second.run(None, x)[0], first.run(None, x)[0])
    np.testing.assert_array_equal(session(again).run(None, x)[0], first.run(None, x)[0])


def test_a_model_in_memory_finds_its_contents(tmp_path):
    first, context = made(layer(tmp_path), False)
    x, model = {"x": random((3, 32))}, context.read_bytes()
    loaded = session(model, config={"ep.context_file_path": str(context)})
    np.testing.assert_array_equal(loaded.run(None, x)[0], first.run(None, x)[0])
    assert "set ep.context_file_path" in refused(model)


def test_the_compiler_of_onnx_runtime_writes_models(tmp_path):
    path, x = layer(tmp_path, rows=4), {"x": random((4, 32))}

    def compiler(model, is_embedded):
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(devices(), {"threads": "1"})
        return onnxruntime.ModelCompiler(options, model, embed_compiled_data_into_model=is_embedded)

    for is_embedded in (True, False):
        context = tmp_path / f"{is_embedded}.onnx"
        compiler(str(path), is_embedded).compile_to_file(str(context))
        check(path, session(context), x)
    check(path, session(compiler(path.read_bytes(), True).compile_to_bytes()), x)
    with pytest.raises(Exception, match="or embed the contents with ep.context_embed_mode=1"):
        compiler(path.read_bytes(), False).compile_to_bytes()


def test_schedules_of_another_machine_are_not_used(tmp_path, capfd):
    path, x = layer(tmp_path, rows=4), {"x": random((4, 32))}
    _, context = made(path, True)
    # Another number of threads is another target.
    loaded = session(context, {"threads": "2"})
    warning = capfd.readouterr().err
    assert "its schedules are for cpu:" in warning and "threads=2: schedules are chosen again" in warning
    check(path, loaded, x)
    session(context)
    assert "schedules" not in capfd.readouterr().err


def test_damaged_contents_are_refused(tmp_path):
    _, context = made(layer(tmp_path, rows=4), True)
    original, replaced = contents(context)
    for count in (0, 7, 31, 63, len(original) // 2, len(original) - 1):
        message = refused(replaced(original[:count]))
        assert "autotune: EPContext node '" in message and "its contents are " in message
    for at in range(0, len(original), max(1, len(original) // 50)):
        flipped = bytearray(original)
        flipped[at] ^= 0x10
        message = refused(replaced(bytes(flipped)))
        assert "autotune: EPContext node '" in message and "\n" not in message.strip()
    message = refused(replaced(original[:8] + struct.pack("<Q", 2) + original[16:]))
    assert "have format 2, this version of autotune reads 1: make it again from the model" in message


def test_files_elsewhere_are_not_read(tmp_path):
    _, context = made(layer(tmp_path), False)
    _, replaced = contents(context)
    for name in (b"/etc/hostname", b"../model_ctx.bin", b"a/../../b", b""):
        (tmp_path / "wrong.onnx").write_bytes(replaced(name))
        assert "does not name a file beside the model" in refused(tmp_path / "wrong.onnx")
    (tmp_path / "wrong.onnx").write_bytes(replaced(b"missing.bin"))
    assert "missing.bin: No such file" in refused(tmp_path / "wrong.onnx")
    # Neither reading would end.
    (tmp_path / "endless.bin").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.bin")
    for name in (b"endless.bin", b"pipe.bin"):
        (tmp_path / "wrong.onnx").write_bytes(replaced(name))
        assert f"{name.decode()} is not a file" in refused(tmp_path / "wrong.onnx")


def test_nodes_of_other_providers_are_left_to_them(tmp_path):
    _, context = made(layer(tmp_path), True)
    model = onnx.load(context)
    (node,) = model.graph.node
    next(attribute for attribute in node.attribute if attribute.name == "source").s = b"OtherExecutionProvider"
    assert "autotune" not in refused(model.SerializeToString()).lower().replace("autotuneexecutionprovider", "")


def test_a_model_tells_for_which_machine_it_was_made(tmp_path):
    _, context = made(layer(tmp_path), True)
    told = {entry.key: entry.value for entry in onnx.load(context).metadata_props}
    info = told[f"ep_compatibility_info.{PROVIDER}"]
    assert info.startswith("autotune 1 ") and ":threads=1" in info
    # Later versions ask the provider.
    ask = getattr(_pybind_state, "get_model_compatibility_for_ep_devices", None)
    if ask is not None:
        others = [info.replace("autotune 1 ", "autotune 2 "), info.replace("cpu:", "cpu:Other")]
        found = [ask(devices(), text).name for text in [info, *others]]
        assert found == ["EP_SUPPORTED_OPTIMAL", "EP_UNSUPPORTED", "EP_SUPPORTED_PREFER_RECOMPILATION"]
