#!/usr/bin/env python3
"""Tests, tunes and compares on a machine with a GPU and no toolchain, in two calls: see README.md.

    run.py first|second OUT [--from ARCHIVE] [--budget SECS] [--target cuda|opencl] [--small]

After every step OUT has gpu_run.json, gpu_run.md and gpu_run.tar.gz.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback

sys.dont_write_bytecode = True  # the pack stays as it is

import process
import tools
from place import Place
from plan import Command, Plan, Step

PACK = os.path.dirname(os.path.abspath(__file__))
BUDGET_SECS = {"first": 465, "second": 225}

# Kept back for ending a step and writing the files.
RESERVE_SECS = 6.0

# What a step needs at least to be begun.
LEAST_SECS = 3.0

# What exporting the log may take.
EXPORT_SECS = 20.0


def main():
    args = arguments()
    began = time.monotonic()
    place = Place(PACK, os.path.abspath(args.out))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if args.archive:
            restore(place, args.archive)
        call = Call(place, args, began)
        call.run()
    except OSError as error:
        sys.exit(f"run.py: {error}")
    finally:
        place.remove()
    with open(os.path.join(args.out, "gpu_run.md")) as file:
        print(file.read())


def restore(place, archive):
    try:
        place.restore(archive)
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        sys.exit(f"run.py: --from {archive} is no archive that this program left: {error}")


def arguments():
    parser = argparse.ArgumentParser(description="Tests, tunes and compares on this machine's GPU.")
    parser.add_argument("call", choices=BUDGET_SECS, help="what to do")
    parser.add_argument("out", metavar="OUT", help="folder for gpu_run.json, gpu_run.md and gpu_run.tar.gz")
    parser.add_argument("--from", dest="archive", metavar="ARCHIVE", help="go on from what an earlier call left")
    parser.add_argument("--budget", type=float, metavar="SECS", help="seconds for all of it [default: 465 for first, 225 for second]")
    parser.add_argument("--target", choices=["cuda", "opencl"], default="cuda", help="the device [default: cuda]")
    parser.add_argument("--small", action="store_true", help="a few small workloads, to see in a minute that everything runs")
    return parser.parse_args()


class Call:
    """One of the two."""

    def __init__(self, place, args, began):
        self.place, self.plan = place, Plan(args.target, args.small)
        self.deadline = began + (args.budget or BUDGET_SECS[args.call])
        self.began, self.name = began, args.call
        self.env = self.environment()
        self.record = {"call": args.call, "target": args.target, "began": utc(), "pack": pack_id(), "device": "unknown",
                       "budget_secs": round(self.deadline - began), "ended": "cut off"}
        place.state["calls"].append(self.record)

    def run(self):
        """Every step, whatever becomes of those before."""
        steps = self.plan.steps(self.name)
        # Read from disk while tests run: the first import takes seconds.
        warm = subprocess.Popen([tools.python(), "-c", "import torch"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) if tools.has_torch() else None
        try:
            self.do(Step("machine", 60, self.machine), is_repeated=True)
            self.record["device"] = self.device()
            for step in steps:
                self.do(step)
            self.record["ended"] = "done"
        except (KeyboardInterrupt, SystemExit):
            self.record["ended"] = "stopped by a signal"
            raise
        finally:
            if warm is not None:
                warm.kill()
                warm.wait()
            self.record["seconds"] = round(time.monotonic() - self.began, 1)
            self.place.save()

    def environment(self):
        place = self.place
        folder, self.nvrtc = tools.nvrtc(place.packed("nvrtc.tar.xz"), place.path("nvrtc"))
        with open(os.path.join(place.peers, "peers.json"), "w") as file:
            json.dump([{"peer": "torch", "python": sys.executable}], file)
        return {**os.environ, "AUTOTUNE_WORKER": place.bin("autotune"), "AUTOTUNE_CACHE": place.path("cache"),
                "AUTOTUNE_REQUIRE": "cuda,nvrtc" if self.plan.target == "cuda" else "opencl", "TMPDIR": place.path("tmp"),
                "RUST_BACKTRACE": "0", **({"AUTOTUNE_NVRTC": folder} if folder else {})}

    def machine(self, place):
        smi = shutil.which("nvidia-smi")
        python = "PyTorch is there" if tools.has_torch() else "no PyTorch, so no peer"
        about = [f"{platform.platform()}, Python {platform.python_version()}, {python}", self.nvrtc]
        targets = Command(place.bin("autotune"), "targets")
        return [Command("printf", "%s\\n", *about), targets, *([Command(smi, limit=10)] if smi else [])]

    def device(self):
        """The target's device as `autotune targets` names it."""
        found = re.search(rf"(?m)^{self.plan.target}: (.*)$", self.place.output("machine"))
        return found[1] if found else "a device that was not told"

    def is_done(self, step):
        """An earlier call of the same programs did it on the same kind of device, with success; what is compared is what is tuned now."""
        same = {"name": step.name, "status": "ok", "pack": self.record["pack"], "device": self.record["device"]}
        if step.name.startswith("compare "):
            same["records"] = self.place.records()
        return any(all(done.get(key) == value for key, value in same.items()) for done in self.place.state["steps"])

    def do(self, step, is_repeated=False):
        if not is_repeated and self.is_done(step):
            print(f"== {step.name}: done before", file=sys.stderr)
            return
        record = {"name": step.name, "call": self.name, "pack": self.record["pack"], "device": self.record["device"],
                  "began": utc(), "status": "stopped", "exit": None, "seconds": 0.0, "commands": [], "last_lines": []}
        print(f"== {step.name}", file=sys.stderr, flush=True)
        start = time.monotonic()
        try:
            self.carry_out(step, record)
        except Exception:  # whatever it is, the steps behind it shall run
            record["status"], record["why"] = "failed", traceback.format_exc(limit=-2)
        finally:
            record["seconds"] = round(time.monotonic() - start, 1)
            record["last_lines"] = [line for line in self.place.output(step.name).splitlines() if line.strip()][-8:]
            self.export_log()
            record["records"] = self.place.records()
            self.place.put(record)
            self.place.save()
        print(f"   {record['status']}, {record['seconds']} s", file=sys.stderr, flush=True)

    def carry_out(self, step, record):
        left = self.deadline - time.monotonic() - RESERVE_SECS
        if left < LEAST_SECS:
            return leave_out(record, "no time is left")
        if record["device"].startswith("none"):
            return leave_out(record, f"there is no device: {record['device']}")
        limit = min(step.limit, left)
        # What an earlier call left of the step goes when the step begins anew, and not before.
        with self.place.instead_of(step.name) as begin:
            commands = step.commands(self.place)
            if isinstance(commands, str):
                return leave_out(record, commands)
            begin()
        output = self.place.product(step.name, "output.txt")
        open(output, "w").close()
        end = time.monotonic() + limit
        record["status"], record["limit_secs"] = "ok", round(limit, 1)
        statuses = []
        for command in commands:
            self.one(command, output, end, record, statuses)
        record["exit"] = next((status for status in statuses if status != 0), 0)

    def one(self, command, output, end, record, statuses):
        """Runs a command of a step until the step's end, or until its own limit if that is sooner."""
        allowed = min(end - time.monotonic(), command.limit or float("inf"))
        record["commands"].append(" ".join(command.argv)[:500])
        if allowed <= 0:
            record["status"] = "timed out"
            return
        try:
            env = {**self.env, **command.env}
            status = process.run(command.argv, command.output or output, allowed, env, command.stdin)
        except OSError as error:
            with open(output, "a") as file:
                file.write(f"{command.argv[0]}: {error}\n")
            status = 127
        statuses.append(status)
        if status is None:
            record["status"] = "timed out"
        elif status != 0 and record["status"] == "ok":
            record["status"] = "failed"

    def export_log(self):
        """The database as JSON Lines; what was exported before stays where that takes too long."""
        if os.path.isdir(self.place.db):
            part, log = self.place.path("log.part"), self.place.path("log.jsonl")
            export = [self.place.bin("autotune"), "log", "export", part, "--db", self.place.db]
            if process.run(export, self.place.path("export.txt"), EXPORT_SECS, self.env) == 0:
                os.replace(part, log)


def leave_out(record, why):
    record["status"], record["why"] = "left out", why


def pack_id():
    """Tells apart programs: what others did is not taken for done."""
    digest = hashlib.sha256()
    for folder, _, names in sorted(os.walk(os.path.join(PACK, "bin"))):
        for name in sorted(names):
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(name.encode() + file.read())
    return digest.hexdigest()[:12]


def utc():
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


if __name__ == "__main__":
    main()
