#!/usr/bin/env python3
"""Makes a table of the machine code of default GPU kernels. No GPU is needed.

    lab/gpu/sass.py [--check] [--program PROGRAM] [WORD..]

Prints a Markdown table of the kernels whose line `TYPE NAME` contains one of the words; by default of all. The kernels are built by NVRTC and
read by nvdisasm (AUTOTUNE_NVDISASM, else in PATH). PROGRAM is the built example `gpu_kernels`; by default cargo builds it. With --check, the exit
code is 1 if a default kernel spills more than 64 bytes, has serialised warp-group instructions, or is estimated to take more than 1.5 times as
long as the fastest schedule that a search in its space finds.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TARGET = "cuda:sm_90"
MAX_SPILL_BYTES = 64
MAX_OVER_LEAST = 1.5

# The convolutions of ResNet-18.
RESNET18 = {
    "C1": "conv2d:c=3,h=224,w=224,o=64,k=7,s=2,p=3,bias,act=relu",
    "C2": "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu",
    "C3": "conv2d:c=64,h=56,w=56,o=64,k=1,bias",
    "C4": "conv2d:c=64,h=56,w=56,o=128,k=3,s=2,p=1,bias,act=relu",
    "C5": "conv2d:c=64,h=56,w=56,o=128,k=1,s=2,bias",
    "C6": "conv2d:c=128,h=28,w=28,o=128,k=3,p=1,bias,add,act=relu",
    "C7": "conv2d:c=128,h=28,w=28,o=256,k=3,s=2,p=1,bias,act=relu",
    "C8": "conv2d:c=128,h=28,w=28,o=256,k=1,s=2,bias",
    "C9": "conv2d:c=256,h=14,w=14,o=256,k=3,p=1,bias,add,act=relu",
    "C10": "conv2d:c=256,h=14,w=14,o=512,k=3,s=2,p=1,bias,act=relu",
    "C11": "conv2d:c=256,h=14,w=14,o=512,k=1,s=2,bias",
    "C12": "conv2d:c=512,h=7,w=7,o=512,k=3,p=1,bias,add,act=relu",
}
CONTRACTIONS = RESNET18 | {
    "3x3 batch 8": "conv2d:n=8,c=256,h=56,w=56,o=256,k=3,p=1,bias,act=relu",
    "1x1 batch 8": "conv2d:n=8,c=256,h=56,w=56,o=64,k=1,bias,act=relu",
    "depthwise": "conv2d:c=96,h=56,w=56,o=96,k=3,p=1,g=96,bias,act=relu",
    "1024": "matmul:m=1024,n=1024,k=1024",
    "2048": "matmul:m=2048,n=2048,k=2048",
    "4096": "matmul:m=4096,n=4096,k=4096",
    "fc m=1": "matmul:m=1,n=1000,k=512,bias",
}
OTHERS = {
    "attention": "attention:b=12,m=4096,n=4096,k=64",
    "softmax": "softmax:m=4096,n=4096",
    "layer_norm": "layer_norm:m=4096,n=4096",
    "rms_norm": "rms_norm:m=4096,n=4096",
}
# Without the depthwise convolution, which has no tf32 kernel worth the name.
WORKLOADS = {"f16": CONTRACTIONS | OTHERS, "tf32": CONTRACTIONS, "f32": CONTRACTIONS | OTHERS}

# What other libraries reach on an H100 or H200: cuBLAS for products of 8192, FlashAttention-3, and memory in elementwise kernels.
PEAK_FLOPS = {"f16": 780e12, "tf32": 418e12, "f32": 47e12}
ATTENTION_FLOPS = {"f16": 450e12, "f32": 47e12}
MEMORY_BYTES = 3.0e12

TENSOR = ("HMMA", "IMMA", "HGMMA", "QGMMA")
THREAD = ("FFMA", "FMUL", "FADD", "HFMA2")
INTEGER = ("IADD", "VIADD", "UIADD", "IMAD", "UIMAD", "LEA", "ULEA", "LOP", "ULOP", "PLOP", "UPLOP", "SHF", "USHF", "SHL", "SHR", "ISETP", "UISETP",
           "SEL", "USEL", "IMNMX", "VIMNMX", "IABS", "PRMT", "UPRMT", "MOV", "UMOV", "R2UR", "S2R", "CS2R", "P2R", "R2P", "BMSK", "SGXT")
LOADS = ("LDS", "LDG", "LDC")
COPIES = ("LDGSTS", "LDGDEPBAR")


class Kernel:
    """Hot loop of a function: counts of its instructions."""

    def __init__(self, opcodes):
        self.length = len(opcodes)
        count = lambda names: sum(name.startswith(names) for name in opcodes)
        self.tensor, self.thread = count(TENSOR), count(THREAD)
        self.integer, self.loads = count(INTEGER), count(LOADS) - count(COPIES)
        self.matrix = self.tensor or self.thread

    def rank(self):
        return (self.tensor, self.thread)


def functions(text):
    """Opcodes of each function of a disassembly, with the positions of labels and the branches to them."""
    found, current = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.(\w+)", line) or re.match(r"\.text\.(\w+):", line)
        label = re.match(r"(\.L\w+):", line)
        # Instructions that are never executed are no work.
        code = re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d\s+)?([A-Z][\w.]*)(.*)", line)
        if section:
            current = found.setdefault(section[1], ([], {}, []))
        elif current and label:
            current[1][label[1]] = len(current[0])
        elif current and code:
            target = re.search(r"\((\.L\w+)\)", code[2])
            if code[1].startswith("BRA") and target:
                current[2].append((len(current[0]), target[1]))
            current[0].append(code[1])
    return found


def hot_loop(opcodes, labels, branches):
    """The shortest loop with at least half as many multiplications as any. In a function that has most matrix instructions outside of loops: all
    from the first to the last."""
    spans = [(labels[to], at + 1) for at, to in branches if labels.get(to, at + 1) <= at]
    names = TENSOR if any(name.startswith(TENSOR) for name in opcodes) else THREAD
    places = [at for at, name in enumerate(opcodes) if name.startswith(names)] or [0, len(opcodes) - 1]
    straight = Kernel(opcodes[places[0] : places[-1] + 1])
    loops = [loop for loop in (Kernel(opcodes[start:end]) for start, end in spans) if bool(loop.tensor) == bool(straight.tensor)]
    most = max((loop.matrix for loop in loops), default=0)
    best = min((loop for loop in loops if 2 * loop.matrix >= max(most, 1)), key=lambda loop: loop.length, default=straight)
    return straight if 2 * best.tensor < straight.tensor else best


def disassembled(nvdisasm, row):
    """The hot loop of the kernel's stage with the most multiplications."""
    # Without data flow, which newer versions do not analyse in code of older compilers.
    ended = subprocess.run([nvdisasm, "-ndf", "-c", row["cubin"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = functions(ended.stdout)
    if ended.returncode != 0 or not found:
        sys.exit(f"{nvdisasm}: {ended.stderr.strip() or 'no code'}")
    return max((hot_loop(*found[symbol]) for symbol in row["symbols"]), key=Kernel.rank)


def anchor_micros(dtype, workload, row):
    """Time in which the other libraries would do the work."""
    rates = ATTENTION_FLOPS if workload.startswith("attention") else PEAK_FLOPS
    is_contraction = workload.startswith(("conv2d", "matmul", "attention"))
    return 1e6 * max(row["flops"] / rates[dtype] if is_contraction else 0, row["bytes"] / MEMORY_BYTES)


def faults(row):
    if row["spill_bytes"] > MAX_SPILL_BYTES:
        yield f"spills {row['spill_bytes']} bytes"
    if row["is_serialized"]:
        yield "its warp-group instructions are serialised"
    if row["micros"] > MAX_OVER_LEAST * row["least_micros"]:
        yield f"is estimated at {row['micros']:.1f} us, another schedule at {row['least_micros']:.1f} us"


def built(program, folder, workloads):
    command = [program] if program else ["cargo", "run", "-q", "--release", "-p", "autotune-lab", "--example", "gpu_kernels", "--"]
    ended = subprocess.run([*command, folder, TARGET, *workloads], stdout=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        sys.exit(2)
    return [json.loads(line) for line in ended.stdout.splitlines()]


HEAD = ["kernel", "sketch", "registers", "spill B", "warps/SM", "hot loop", "matrix %", "integer %", "loads / matrix", "launches", "us", "of anchor",
        "of least"]


def line(name, row, loop, anchor):
    per = lambda part: f"{100 * part / loop.length:.0f}"
    warps = row["resident"] * row["threads"] / 32
    loads = f"{loop.loads / loop.matrix:.2f}" if loop.matrix else "-"
    cells = [name, row["config"]["sketch"], row["registers"], row["spill_bytes"], f"{warps:.0f}", loop.length, per(loop.matrix), per(loop.integer),
             loads, len(row["symbols"]), f"{row['micros']:.1f}", f"{anchor / row['micros']:.2f}", f"{row['micros'] / row['least_micros']:.2f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a default kernel has a fault")
    parser.add_argument("--program", help="the built example gpu_kernels")
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of `TYPE NAME`, such as `f16 C2`")
    arguments = parser.parse_args()
    nvdisasm = os.environ.get("AUTOTUNE_NVDISASM") or shutil.which("nvdisasm")
    if nvdisasm is None:
        print("nvdisasm is missing: name it in AUTOTUNE_NVDISASM (in Python's nvidia-cuda-nvdisasm: nvidia/cu13/bin)", file=sys.stderr)
        sys.exit(2)
    chosen = [(dtype, name, f"{text},dtype={dtype}") for dtype, texts in WORKLOADS.items() for name, text in texts.items()
              if not arguments.words or any(word in f"{dtype} {name}" for word in arguments.words)]
    if not chosen:
        parser.error("no kernel has such a name")

    found = False
    with tempfile.TemporaryDirectory() as folder:
        rows = built(arguments.program, folder, [workload for *_, workload in chosen])
        print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        for (dtype, name, workload), row in zip(chosen, rows):
            print(line(f"{dtype} {name}", row, disassembled(nvdisasm, row), anchor_micros(dtype, workload, row)))
            for fault in faults(row):
                found = True
                print(f"{dtype} {name}: the default kernel {fault}", file=sys.stderr)
    sys.exit(1 if found and arguments.check else 0)


if __name__ == "__main__":
    main()
