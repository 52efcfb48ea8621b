"""What the steps found, as Markdown."""

import csv
import glob
import os
import re

from plan import METRICS, SANITIZERS, verdicts


def markdown(place):
    state = place.state
    last = state["calls"][-1]
    text = [f"# On {last['device']}", ""]
    text += ["| call | began | seconds | budget | ended | programs |", "|---|---|---|---|---|---|"]
    text += [f"| {c['call']} | {c['began']} | {c.get('seconds', '–')} | {c['budget_secs']} | {c['ended']} | {c['pack']} |"
             for c in state["calls"]]
    text += ["", *steps(state["steps"]), *failures(place), *tests(place), *sanitizers(place)]
    text += [*networks(place), *comparisons(place)]
    text += [*tunings(place), *instructions(place), *profile(place), *machine(place)]
    if state.get("left_out_of_archive"):
        text += ["## Not in the archive, which is full", "", *[f"- {name}" for name in state["left_out_of_archive"]], ""]
    return "\n".join(text)


def steps(records):
    text = ["## Steps", "", "| step | | exit | seconds | |", "|---|---|---|---|---|"]
    for step in records:
        remark = step.get("why", "")
        if step["status"] in ("failed", "timed out", "stopped"):
            remark = (step["last_lines"] or remark.splitlines() or ["nothing was said"])[-1]
        exit_status = "–" if step["exit"] is None else step["exit"]
        text.append(f"| {step['name']} | {step['status']} | {exit_status} | {step['seconds']} | {cell(remark)} |")
    return [*text, ""]


def failures(place):
    """The panics and the last words of what failed."""
    text = []
    for step in place.state["steps"]:
        if step["status"] in ("failed", "timed out", "stopped"):
            panics = re.findall(r"(?m)^.*panicked at.*\n.*$", place.output(step["name"]))[:5]
            lines = [line[:300] for panic in panics for line in panic.splitlines()] + step["last_lines"]
            text += [f"### {step['name']}", "", *fenced([*lines, *step.get("why", "").splitlines()])]
    return ["## What failed", "", *text] if text else []


def cell(text):
    return text[:160].replace("|", "\\|")


def fenced(lines):
    return ["```text", *lines, "```", ""]


def machine(place):
    said = place.output("machine").rstrip().splitlines()
    return ["## Machine", "", *fenced(said)] if said else []


def tests(place):
    text = []
    for name in ("instructions", "large variants", "generated kernels", "other device tests", "all large variants"):
        said = place.output(name)
        results = re.findall(r"(?m)^test result: .*$", said)
        failed = [test for test, verdict in verdicts(said).items() if verdict not in ("ok", "ignored")]
        if results or failed:
            told = verdicts(said).values()
            counts = results[0] if len(results) == 1 else f"{sum(verdict == 'ok' for verdict in told)} of {len(told)} that began passed"
            text.append(f"- {name}: {counts}")
            text += [f"  - not passed: {test}" for test in failed]
    return ["## Tests", "", *text, ""] if text else []


def sanitizers(place):
    text = []
    for tool in SANITIZERS:
        said = place.output(tool)
        if not said:
            continue
        summary = re.findall(r"(?m)^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", said)
        ran, failed = said.count('"max_rel_error"'), re.findall(r'(?m)^\{"error":(.*)\}$', said)
        text.append(f"- {tool}: {'; '.join(summary) or 'no summary'}; {ran} kernels ran and were right, {len(failed)} failed")
        text += [f"  - {cell(why)}" for why in failed[:5]]
    return ["## Sanitizer", "", *text, ""] if text else []


def networks(place):
    """Whole networks by us; ResNet-18 by PyTorch, beside the sum of our kernels, which were timed one by one."""
    rows = []
    for name, run in sorted(place.results("our networks").items()):
        tuned = f"{run['tuned_tasks']} of {run['tuned_tasks'] + run['untuned_tasks']} kernels tuned"
        rows.append(f"| autotune, {name} in f32, {tuned} | f32 | {run['device_secs']['median'] * 1e6:.1f} | |")
    for step in ("networks", "compiled networks"):
        for way in place.results(step).get("networks", []):
            rows.append(f"| PyTorch, {way['how']} | {way['dtype']} | {way['run_secs'] * 1e6:.1f} | {way['max_rel_error']:.1e} |")
    for dtype in ("f32", "f16"):
        tasks = place.results(f"tune {dtype} resnet18").get("tune", {}).get("tasks", [])
        best = [task["best_secs"] * task["count"] for task in tasks if task.get("best_secs")]
        if best and len(best) == len(tasks):
            rows.append(f"| autotune, ≈ sum of kernels timed one by one | {dtype} | {sum(best) * 1e6:.1f} | |")
    head = ["## Networks, ResNet-18 on one image", "", "| | type | us | relative error |", "|---|---|---|---|"]
    return [*head, *rows, ""] if rows else []


def tunings(place):
    text = []
    for step in place.finished("tune "):
        table = [line for line in place.output(step).splitlines() if line.startswith("|") or " a second " in line]
        if table:
            rows = [line for line in table if line.startswith("|")]
            text += [f"### {step}", "", *rows, "", *[line for line in table if line not in rows], ""]
    return ["## Tuning", "", *text] if text else []


def comparisons(place):
    text = []
    for step in place.finished("compare "):
        path = place.product(step, "compare.md")
        if os.path.exists(path):
            with open(path) as file:
                text += [re.sub(r"(?m)^## (.*)$", rf"### {step}: \1", file.read())]
    return ["## Tuned schedules beside PyTorch's", "", *text] if text else []


def instructions(place):
    """How often the winners' machine code has the instructions that tell what it runs on."""
    rows = []
    for path in sorted(glob.glob(os.path.join(glob.escape(place.folder("sass")), "*.sass"))):
        with open(path, errors="replace") as file:
            said = file.read()
        count = lambda *words: len(re.findall(rf"\b(?:{'|'.join(words)})\b", said))
        name = os.path.basename(path)[:-len(".sass")]
        rows.append(f"| {name} | {count('HGMMA')} | {count('HMMA')} | {count('FFMA')} | {count('LDL', 'STL')} |")
    head = ["## Machine code of the winners", "", "Instructions of each kind; LDL and STL are spills or arrays in local memory.", "",
            "| kernel | HGMMA | HMMA | FFMA | LDL, STL |", "|---|---|---|---|---|"]
    return [*head, *rows, ""] if rows else []


def profile(place):
    """Each winner's counters, from ncu's table: a line of names, a line of units, a line for each kernel."""
    path = place.product("ncu table", "winners.csv")
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as file:
        lines = [line for line in file if line.startswith('"')]
    if len(lines) < 3:
        return []
    names, units, *kernels = csv.reader(lines)
    columns = [(i, METRICS[name]) for i, name in enumerate(names) if name in METRICS]
    head = [f"{title} ({units[i]})" if units[i] not in ("", "%") else title for i, title in columns]
    text = ["## Counters of the winners", "", "| kernel | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    where = names.index("Kernel Name") if "Kernel Name" in names else 0
    text += [f"| {kernel[0]} {cell(kernel[where])} | " + " | ".join(kernel[i] for i, _ in columns) + " |" for kernel in kernels]
    return [*text, ""]
