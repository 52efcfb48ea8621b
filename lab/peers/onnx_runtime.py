"""ONNX Runtime: all graph optimisations, inputs and outputs bound once, its threads spinning between runs."""

import os
import pathlib
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort

import onnx_model

# Nodes of the optimiser that change layouts.
REORDERS = ("ReorderInput", "ReorderOutput")


class Peer:
    name = "ONNX Runtime"

    def __init__(self, cores):
        self.version, self.cores = ort.__version__, cores
        os.sched_setaffinity(0, cores[:1])  # of the calling thread, which works too

    def session(self, model, level, save_to=None):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads, options.inter_op_num_threads = len(self.cores), 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        if len(self.cores) > 1:
            helpers = ";".join(str(core + 1) for core in self.cores[1:])  # it counts processors from 1
            options.add_session_config_entry("session.intra_op_thread_affinities", helpers)
        options.log_severity_level = 3
        if save_to:
            options.optimized_model_filepath = save_to
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def variants(self, workload, operands, exact):
        yield "plain layouts", lambda: self.whole(workload, operands)
        if workload["op"] == "conv2d":
            yield "blocked layouts", lambda: self.without_reorders(workload, operands)
        if workload["op"] == "pool2d" and operands["input"].shape[1] % block_len() == 0:
            yield "blocked layouts", lambda: self.blocked_pool(workload, operands)
        if workload["op"] == "attention":
            yield "one operator", lambda: self.whole({**workload, "op": "multi_head_attention"}, operands, "one operator")

    def whole(self, workload, operands, how="plain layouts"):
        """The operator with plain layouts on both sides, whatever the optimiser makes of it."""
        model = onnx_model.model(workload, operands).SerializeToString()
        inputs = {name: operands[name] for name in onnx_model.INPUTS if name in operands}
        session = self.session(model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
        return Op(session, inputs, operands["output_shape"], None, how)

    def without_reorders(self, workload, operands):
        """What the optimiser makes of it, without the nodes that change layouts at the boundaries: within a network
        those stand at its ends only. A residual is an operand of the convolution, as it is within a network."""
        model = onnx_model.model({**workload, "add": False}, operands).SerializeToString()
        with tempfile.TemporaryDirectory() as folder:
            file = str(pathlib.Path(folder) / "optimised.onnx")
            self.session(model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, file)
            optimised = onnx.load(file)
        nodes = optimised.graph.node
        if not any(node.op_type in REORDERS for node in nodes):
            return None
        inputs, block, output_block = {"input": operands["input"]}, block_len(), None
        for node in [node for node in nodes if node.op_type in REORDERS]:
            nodes.remove(node)
            if node.op_type == "ReorderInput":
                inputs["input"] = onnx_model.blocked(inputs["input"], block)
            else:
                output_block = block
            rename(nodes, node.output[0], node.input[0])
        (convolution,) = nodes
        convolution.output[0] = "output"
        if workload["add"]:
            convolution.input.extend([""] * (3 - len(convolution.input)) + ["residual"])
            optimised.graph.input.append(onnx_model.tensor("residual", operands["output_shape"]))
            inputs["residual"] = onnx_model.blocked(operands["residual"], block)
        inputs = {name: array.reshape(operands[name].shape) for name, array in inputs.items()}
        session = self.session(optimised.SerializeToString(), ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
        return Op(session, inputs, operands["output_shape"], output_block)

    def blocked_pool(self, workload, operands):
        """The kernel that a pooling between convolutions gets, on their layouts."""
        model = onnx_model.model(workload, operands)
        (pool,) = model.graph.node
        pool.domain = "com.microsoft.nchwc"
        model.opset_import.append(onnx.helper.make_opsetid(pool.domain, 1))
        session = self.session(model.SerializeToString(), ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
        shape = operands["input"].shape
        inputs = {"input": onnx_model.blocked(operands["input"], block_len()).reshape(shape)}
        return Op(session, inputs, operands["output_shape"], block_len())


def rename(nodes, old, new):
    """Makes the readers of one value read another."""
    for node in nodes:
        node.input[:] = [new if name == old else name for name in node.input]


def block_len():
    """Channels in a block of MLAS's layout on this processor."""
    return 16 if "avx512f" in pathlib.Path("/proc/cpuinfo").read_text() else 8


class Op:
    def __init__(self, session, inputs, output_shape, output_block, how="blocked layouts"):
        self.session, self.output_block, self.shape = session, output_block, output_shape
        self.binding = session.io_binding()
        self.values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}
        self.result = ort.OrtValue.ortvalue_from_numpy(np.full(output_shape, np.nan, np.float32))
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        self.binding.bind_ortvalue_output("output", self.result)
        self.how = how

    def output(self):
        self.time(1)
        y = self.result.numpy()
        return y if self.output_block is None else onnx_model.unblocked(y, self.shape, self.output_block)

    def time(self, runs):
        run, binding = self.session._sess.run_with_iobinding, self.binding._iobinding
        start = time.perf_counter()
        for _ in range(runs):
            run(binding, None)
        return time.perf_counter() - start
