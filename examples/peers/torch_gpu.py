"""PyTorch on a CUDA device: cuBLAS for products, cuDNN for convolutions, tuned by its own benchmark mode.

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
        if workload["op"] not in ("matmul", "conv2d"):
            return
        dtype = workload.get("dtype", "f32")
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        kind = DTYPES[dtype]
        put = lambda name: None if name not in operands else torch.from_numpy(operands[name]).cuda().to(kind)
        x, weight, bias, residual = map(put, ("input", "weight", "bias", "residual"))
        if workload["op"] == "matmul":
            calls = products(workload, x, weight, bias, residual)
        else:
            calls = convolutions(workload, x, weight, bias, residual)
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
    """Calls of a convolution in both layouts, with what comes after it fused where cuDNN can."""
    stride, pad, dilation = [w["sh"], w["sw"]], [w["ph"], w["pw"]], [w["dh"], w["dw"]]
    for layout, order in (("NCHW", torch.contiguous_format), ("NHWC", torch.channels_last)):
        put = lambda t: None if t is None else t.contiguous(memory_format=order)
        xs, ws, zs = put(x), put(weight), put(residual)

        def plain(xs=xs, ws=ws, zs=zs):
            return after(F.conv2d(xs, ws, bias, stride, pad, dilation, w["groups"]), zs, w["relu"])

        yield f"conv2d, {layout}", plain
        if w["relu"] and bias is not None:
            if zs is None:
                fused = lambda xs=xs, ws=ws: torch.cudnn_convolution_relu(
                    xs, ws, bias, stride, pad, dilation, w["groups"])
            else:
                fused = lambda xs=xs, ws=ws, zs=zs: torch.cudnn_convolution_add_relu(
                    xs, ws, zs, 1.0, bias, stride, pad, dilation, w["groups"])
            yield f"fused conv2d, {layout}", fused


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
