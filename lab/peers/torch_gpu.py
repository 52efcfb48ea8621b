"""PyTorch on a CUDA device: cuBLAS for products, cuDNN for convolutions, tuned by its own benchmark mode, its own kernels for the rest.

The math is that of the workload's dtype: f32 (TF32 is off), tf32 (f32 operands, TF32 on), f16 and bf16 (sums in f32). Calls are
replayed as a CUDA graph, so that the device is timed and not Python; the time is between two events of the device.
"""

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# Runs in a graph, as many as in ours: enough to hide the launch of the graph.
GRAPH_RUNS = 20


class Peer:
    name = "PyTorch"
    dtypes = tuple(DTYPES)

    def __init__(self, cores):
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no CUDA device")
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        self.version = f"{torch.__version__} (CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()})"

    def is_lost(self):
        """True if a kernel has made the device useless to this process."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def variants(self, workload, operands, exact):
        if workload["op"] not in ("matmul", "conv2d", *OPERATORS):
            return
        dtype = workload.get("dtype", "f32")
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        kind = DTYPES[dtype]
        put = lambda name: None if name not in operands else torch.from_numpy(operands[name]).cuda().to(kind)
        if workload["op"] in OPERATORS:
            given = {name: put(name) for name in workload["operands"]}
            calls = [(workload["op"], lambda: OPERATORS[workload["op"]](workload, **given))]
        else:
            x, weight, bias, residual = map(put, ("input", "weight", "bias", "residual"))
            of = products if workload["op"] == "matmul" else convolutions
            calls = of(workload, x, weight, bias, residual)
        for how, call in calls:
            yield how, lambda call=call, how=how: Op(call, how)


def products(w, x, weight, bias, residual):
    """Calls of a product, with what comes after it fused where PyTorch can."""
    x, weight = (x[0], weight[0]) if w["b"] == 1 else (x, weight)
    residual = residual[0] if residual is not None and w["b"] == 1 else residual

    def plain():
        y = torch.matmul(x, weight)
        return after(y if bias is None else y.add_(bias), residual, w["relu"])

    yield "matmul", plain
    if bias is not None and w["b"] == 1:
        yield "addmm", lambda: after(torch.addmm(bias, x, weight), residual, w["relu"])
        if w["relu"] and residual is None:
            yield "addmm with relu", lambda: torch._addmm_activation(bias, x, weight)


def convolutions(w, x, weight, bias, residual):
    """Calls of a convolution, by cuDNN's fused kernels where they have what comes after it. f32 in both layouts; smaller types with the
    channels last, as tensor cores want them."""
    stride, pad, dilation = [w["sh"], w["sw"]], [w["ph"], w["pw"]], [w["dh"], w["dw"]]
    layouts = [("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)]
    for layout, order in layouts if x.dtype == torch.float32 else layouts[1:]:
        put = lambda t: None if t is None else t.contiguous(memory_format=order)
        xs, ws, zs = put(x), put(weight), put(residual)
        if not (w["relu"] and bias is not None):
            plain = lambda xs=xs, ws=ws, zs=zs: after(F.conv2d(xs, ws, bias, stride, pad, dilation, w["groups"]), zs, w["relu"])
            yield f"conv2d, {layout}", plain
        elif zs is None:
            fused = lambda xs=xs, ws=ws: torch.cudnn_convolution_relu(xs, ws, bias, stride, pad, dilation, w["groups"])
            yield f"fused conv2d, {layout}", fused
        else:
            fused = lambda xs=xs, ws=ws, zs=zs: torch.cudnn_convolution_add_relu(
                xs, ws, zs, 1.0, bias, stride, pad, dilation, w["groups"])
            yield f"fused conv2d, {layout}", fused


def pool2d(w, input):
    if w["kind"] == "max":
        return F.max_pool2d(input, w["kernel"], w["stride"], w["pad"], w["dilation"], w["ceil"])
    return F.avg_pool2d(input, w["kernel"], w["stride"], w["pad"], w["ceil"])


# What is no contraction: a function of the workload and of its operands.
OPERATORS = {
    "softmax": lambda w, input: F.softmax(input, 1),
    "log_softmax": lambda w, input: F.log_softmax(input, 1),
    "layer_norm": lambda w, input, scale, shift: F.layer_norm(input, input.shape[1:], scale, shift, w["eps"]),
    "rms_norm": lambda w, input, scale: F.rms_norm(input, input.shape[1:], scale, w["eps"]),
    "pool2d": pool2d,
    "reduce": lambda w, input: {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}[w["kind"]](input, 1),
    "pointwise": lambda w, input: {"gelu": F.gelu}[w["kind"]](input),
    "transpose": lambda w, input: input.transpose(1, 2).contiguous(),
    "attention": lambda w, query, key, value: F.scaled_dot_product_attention(query[None], key[None], value[None])[0],
}


def after(y, residual, relu):
    """What comes after the sums."""
    if residual is not None:
        y = y.add_(residual)
    return y.relu_() if relu else y


class Op:
    # A repeat takes at least this long: the launch of the first graph must cost nothing.
    repeat_secs = 200e-6

    def __init__(self, call, how):
        self.call, self.how, self.graph = call, how, None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            for _ in range(3):  # cuDNN's benchmark mode makes its choice
                self.result = call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                for _ in range(GRAPH_RUNS):
                    self.result = call()
            self.graph = graph
        except RuntimeError:
            torch.cuda.synchronize()
            self.how += ", without a graph"

    def output(self):
        if self.graph is None:
            with torch.no_grad():
                self.result = self.call()
        else:
            self.graph.replay()
        torch.cuda.synchronize()
        return self.result.float().contiguous().cpu().numpy()

    def time(self, runs):
        """Seconds of `runs` runs, of which whole graphs are measured."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        calls = 1 if self.graph is None else GRAPH_RUNS
        repeats = max(1, -(-runs // calls))
        start.record()
        with torch.no_grad():
            for _ in range(repeats):
                self.call() if self.graph is None else self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 * runs / (repeats * calls)
