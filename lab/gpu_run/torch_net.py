#!/usr/bin/env python3
"""ResNet-18 of torchvision on a CUDA device, one image, as a CUDA graph: what the sum of our kernels is to be compared with.

    torch_net.py OUT.json eager|compiled ...

f32 (TF32 is off) with both layouts of memory, f16 with the channels last. Compiled is torch.compile, whose mode max-autotune takes minutes.
OUT.json is written after every way: [{"how", "dtype", "run_secs", "fastest_secs", "max_rel_error"}].
"""

import json
import os
import statistics
import sys

import torch
import torchvision

# Runs in a graph, replays in a repeat, repeats.
GRAPH_RUNS, REPLAYS, REPEATS = 10, 5, 11

WAYS = [("f16", torch.float16, torch.channels_last), ("f32", torch.float32, torch.contiguous_format),
        ("f32", torch.float32, torch.channels_last)]


def main():
    out, wanted = sys.argv[1], sys.argv[2:]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    image = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        right = model.double()(image.double())
    found = []
    for how in wanted:
        for dtype, kind, layout in WAYS:
            title = f"{how}, {'NHWC' if layout == torch.channels_last else 'NCHW'}"
            try:
                secs, result = timed(model, image, kind, layout, how == "compiled")
                error = float((result.double().cpu() - right).abs().max() / right.abs().max())
                found.append({"how": title, "dtype": dtype, "run_secs": statistics.median(secs), "fastest_secs": min(secs),
                              "max_rel_error": error})
                print(f"{title}, {dtype}: {statistics.median(secs) * 1e6:.1f} us, relative error {error:.1e}", flush=True)
            except Exception as error:  # one way that fails must not cost the others
                print(f"{title}, {dtype}: {type(error).__name__}: {error}", flush=True)
            with open(out + ".part", "w") as file:
                json.dump(found, file)
            os.replace(out + ".part", out)


def timed(model, image, kind, layout, is_compiled):
    """Seconds a run of each repeat, and the network's output."""
    net = model.to(kind).cuda().to(memory_format=layout)
    x = image.to(kind).cuda().contiguous(memory_format=layout)
    if is_compiled:
        net = torch.compile(net)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):  # cuDNN's benchmark mode makes its choice
            net(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        for _ in range(GRAPH_RUNS):
            result = net(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    secs = []
    for _ in range(REPEATS):
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        secs.append(start.elapsed_time(end) * 1e-3 / (REPLAYS * GRAPH_RUNS))
    return secs, result.clone()


if __name__ == "__main__":
    main()
