"""The temporary folder in which a call works, and the three files that it leaves.

    steps/NAME/     a step's output.txt and what else it made
    db/             the tuning database
    cache/          the device's measured ceilings
    log.jsonl       the database as JSON Lines
    run.json        the state: calls and steps

All of it travels in the archive, the database's own files too: a record that a later call finds there was measured by an earlier one, and
is no claim, as one from an imported log would be.
"""

import contextlib
import glob
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import traceback

import report

ARCHIVE = "gpu_run.tar.gz"
ARCHIVE_BYTES = 15 << 20

# What the archive never does without.
KEPT = ("run.json", "db/")


class Place:
    def __init__(self, packed, out):
        self._packed, self.out = packed, out
        self.root = tempfile.mkdtemp(prefix="gpu_run-")
        self.state = {"calls": [], "steps": []}
        for folder in ("steps", "cache", "tmp", "nvrtc", "peers"):
            os.mkdir(self.path(folder))
        os.makedirs(out, exist_ok=True)
        for left in glob.glob(os.path.join(glob.escape(out), ".gpu_run.*.part")):
            os.remove(left)

    def remove(self):
        """Workers of a program that was ended may write for a moment longer, and make folders again."""
        absent = 0
        for _ in range(150):
            shutil.rmtree(self.root, ignore_errors=True)
            absent = 0 if os.path.exists(self.root) else absent + 1
            if absent == 2:
                return
            time.sleep(0.2)

    def restore(self, archive):
        """Takes over what an earlier call left."""
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                if not member.isfile() or member.name.startswith("/") or ".." in member.name.split("/"):
                    raise ValueError(f"it holds '{member.name}'")
            packed.extractall(self.root)
        with open(self.path("run.json")) as file:
            self.state = json.load(file)

    def path(self, *names):
        return os.path.join(self.root, *names)

    def packed(self, name):
        return os.path.join(self._packed, name)

    def bin(self, name):
        return self.packed(f"bin/{name}")

    @property
    def db(self):
        return self.path("db")

    @property
    def peers(self):
        return self.path("peers")

    def folder(self, step):
        """A step's folder, made when it is first asked for."""
        folder = self.path("steps", re.sub(r"[^A-Za-z0-9._-]", "_", step))
        os.makedirs(folder, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def instead_of(self, step):
        """A new folder for a step; the one that it had comes back unless the function that is given is called."""
        folder, old, kept = self.folder(step), self.path("old"), []
        os.rename(folder, old)
        try:
            yield lambda: kept.append(True)
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(old, folder)
            shutil.rmtree(old, ignore_errors=True)

    def product(self, step, name):
        return os.path.join(self.folder(step), name)

    def output(self, step):
        """What a step said."""
        try:
            with open(self.product(step, "output.txt"), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def status(self, step):
        """How a step ended; empty where it was not begun."""
        return next((one["status"] for one in self.state["steps"] if one["name"] == step), "")

    def put(self, record):
        """A step's record, instead of the one it had; that a step is left out now does not undo what it did before."""
        steps = self.state["steps"]
        for i, old in enumerate(steps):
            if old["name"] == record["name"]:
                steps[i] = old if record["status"] == "left out" else record
                return
        steps.append(record)

    def records(self):
        """How many records the database has."""
        try:
            with open(self.path("log.jsonl"), "rb") as file:
                return sum(1 for _ in file)
        except FileNotFoundError:
            return 0

    def finished(self, prefix):
        """The names of the steps that ran."""
        return [step["name"] for step in self.state["steps"] if step["name"].startswith(prefix) and step["status"] != "left out"]

    def save(self):
        """Writes the three files, each at once: one that is read is whole, whatever ended this program. The JSON comes last: what it tells
        is in the others."""
        archive, left_out = self.archive()
        self.state["left_out_of_archive"] = left_out
        self.write(ARCHIVE, archive)
        try:
            text = report.markdown(self)
        except Exception:  # a table that cannot be made shall not cost what was measured
            text = "# Not made\n\n```text\n" + traceback.format_exc() + "```\n"
        self.write("gpu_run.md", text.encode())
        results = {step["name"]: self.results(step["name"]) for step in self.state["steps"]}
        summary = {**self.state, "results": {name: result for name, result in results.items() if result}}
        self.write("gpu_run.json", (json.dumps(summary, indent=1) + "\n").encode())

    def results(self, step):
        """The JSON files that a step made."""
        found = {}
        for path in glob.glob(os.path.join(glob.escape(self.folder(step)), "*.json")):
            try:
                with open(path) as file:
                    found[os.path.basename(path)[:-len(".json")]] = json.load(file)
            except ValueError:
                pass  # made by a program that was ended while it wrote
        return found

    def write(self, name, content):
        part = os.path.join(self.out, f".{name}.part")
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, os.path.join(self.out, name))

    def archive(self):
        """The archive's bytes, and the names of what did not fit: the biggest files go first."""
        with open(self.path("run.json"), "w") as file:
            json.dump(self.state, file)
        names = ["run.json"]
        for top in ("log.jsonl", "db", "cache", "steps"):
            files = [self.path(top)] if os.path.isfile(self.path(top)) else glob.glob(f"{self.path(top)}/**", recursive=True)
            names += [os.path.relpath(path, self.root) for path in files if os.path.isfile(path)]
        left_out = []
        while True:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as packed:
                for name in names:
                    packed.add(self.path(name), arcname=name)
            removable = [name for name in names if not name.startswith(KEPT)]
            if len(buffer.getvalue()) <= ARCHIVE_BYTES or not removable:
                return buffer.getvalue(), left_out
            biggest = max(removable, key=lambda name: os.path.getsize(self.path(name)))
            names.remove(biggest)
            left_out.append(biggest)
