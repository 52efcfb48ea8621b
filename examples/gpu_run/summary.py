"""Puts what the steps of run.sh left in a folder together: gpu.json and gpu.md."""

import json
import pathlib
import re
import sys

STEPS = ["targets", "test_compiler", "test_device", "tune"]


def main():
    out = pathlib.Path(sys.argv[1])
    comparisons = sorted(path.stem for path in out.glob("compare_*.rc"))
    steps = [name for name in STEPS if (out / f"{name}.rc").exists()] + comparisons
    summary = {"steps": {name: int((out / f"{name}.rc").read_text()) for name in steps}}
    text = ["# On a GPU", ""]
    if (out / "targets.txt").exists():
        summary["targets"] = (out / "targets.txt").read_text()
        text += ["```text", summary["targets"].rstrip(), "```", ""]
    for name in ("test_compiler", "test_device"):
        if name in steps:
            verdict = last_line(out / f"{name}.txt", r"^test result: .*")
            summary[name] = verdict
            text += [f"{name}: {verdict}", ""]
    if "tune" in steps:
        table = [line for line in lines(out / "tune.txt") if line.startswith("|") or " a second " in line]
        text += ["## Tuning", "", *table, ""]
        if (out / "tune.json").exists() and (out / "tune.json").stat().st_size:
            summary["tuning"] = json.loads((out / "tune.json").read_text())
    summary["comparisons"] = {}
    for name in comparisons:
        dtype = name.removeprefix("compare_")
        text += [f"# Beside other libraries, {dtype}", ""]
        if (out / f"{name}.json").exists():
            summary["comparisons"][dtype] = json.loads((out / f"{name}.json").read_text())
            text += [(out / f"{name}.md").read_text()]
        else:
            text += ["not measured: " + last_line(out / f"{name}.txt", r".+"), ""]
    (out / "gpu.json").write_text(json.dumps(summary, indent=1) + "\n")
    (out / "gpu.md").write_text("\n".join(text))
    print((out / "gpu.md").read_text())


def lines(path):
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def last_line(path, pattern):
    """The last line that fits a pattern."""
    found = [line for line in lines(path) if re.match(pattern, line)]
    return found[-1] if found else "nothing was said"


if __name__ == "__main__":
    main()
