#!/usr/bin/env python3
"""Plants bugs one by one and runs tests of `cargo test`: each bug must be found.

  python3 lab/planted_bugs.py [--out FILE.md] [NUMBER..]

Every bug is a replacement in one source file, and the tests are those of a package or a part of them. The file is restored after each bug,
also on Ctrl-C. Exits with 1 if a bug is not found, or if its text is not in the file exactly once.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Bug, file, text, replacement, arguments of `cargo test`.
BUGS = [
    ("numbers stored as integers are truncated", "ir/src/dtype.rs",
     "number.round_ties_even().clamp", "number.trunc().clamp", "-p autotune-ir"),
    ("outputs overwrite operands that are read later", "ir/src/verify/overwrite.rs",
     "stores.are_fit && stores.count", "stores.count", "-p autotune-network --test it in_place::"),
    ("bits of integers saturate at the lower end only", "ir/src/formula/narrow.rs",
     "let x = self.apply(Primitive::MaxBits, &[x, least]);\n        self.apply(Primitive::MinBits, &[x, most]);",
     "let _ = most;\n        self.apply(Primitive::MaxBits, &[x, least]);",
     "-p autotune-schedules --test it -- integer_maps:: operators:: dots::"),
    ("epilogues read the sums of the wrong register tile", "codegen/src/asm/nest/tiles.rs",
     "pointer.base.constant -= step", "pointer.base.constant += step", "-p autotune-codegen --lib"),
    ("the last task of a tree is left out", "codegen/src/asm/stage.rs",
     "(first + count) as i64", "(first + count - 1) as i64", "-p autotune-codegen --lib"),
    ("sums of tiles are used one product too early", "codegen/src/asm/stage.rs",
     "        self.isa.set(slot, 0);\n        self.call(first)?;\n", "        self.isa.set(slot, 0);\n", "-p autotune-codegen --lib"),
    ("low parts of weights are high parts again", "codegen/src/asm/tile_grid.rs",
     "SmallVec::from([[data, 0], [0, 0], [0, weights]])", "SmallVec::from([[data, 0], [0, 0], [0, 0 * weights]])", "-p autotune-codegen --lib"),
    ("packed bytes change places", "codegen/src/asm/x86/narrow.rs",
     "(PACK_SIGNED, [a, b]), (PACK_SIGNED, [c, d])", "(PACK_SIGNED, [a, b]), (PACK_SIGNED, [d, c])",
     "-p autotune-schedules --test it -- integer_maps:: operators:: dots::"),
    ("the last element inside the image is padding", "schedules/src/direct/lower/leaf.rs",
     "(limit as i64 - 1 - first)", "(limit as i64 - 2 - first)", "-p autotune-schedules --test it convolutions::"),
    ("a barrier after copies to shared memory is left out", "schedules/src/gpu/lower/pipeline.rs",
     "        nodes.push(Node::Barrier);\n        nodes.extend(self.multiply(&zero, chunk));",
     "        nodes.extend(self.multiply(&zero, chunk));", "-p autotune-schedules --test it gpu_"),
    ("Winograd reads one input too many", "schedules/src/winograd/matrices.rs",
     "self.stride * (self.m - 1) + self.taps", "self.stride * (self.m - 1) + self.taps + 1", "-p autotune-schedules"),
    ("layer norms add the mean", "workloads/src/workload/layer_norm.rs",
     "Expr::binary(BinaryOp::Sub, input.clone(), of_row(4))", "Expr::binary(BinaryOp::Add, input.clone(), of_row(4))",
     "-p autotune-network --test it"),
    ("windows of poolings count one element too many", "workloads/src/workload/pool2d.rs",
     "(behind.min(self.kernel[axis] as i64) - first).max(0)", "(behind.min(self.kernel[axis] as i64) - first + 1).max(0)",
     "-p autotune-workloads -p autotune-graph"),
    ("convolutions are dilated by the columns' dilation along rows", "workloads/src/workload/conv2d.rs",
     "dilation: [rows.dilation, columns.dilation]", "dilation: [columns.dilation, columns.dilation]", "-p autotune-workloads"),
    ("a barrier between stages is left out", "runtime/src/team.rs",
     "|before| before || is_divided", "|before| before && is_divided && false", "-p autotune-runtime"),
    ("the slowest record is the best", "tuning_db/src/index.rs",
     "(Some(own), Some(other)) => own < other", "(Some(own), Some(other)) => own > other", "-p autotune-db"),
    ("damaged lines of the journal are read", "tuning_db/src/journal.rs",
     "if !is_checksum(digits, rest.as_bytes()) {", "if digits.is_empty() {", "-p autotune-db"),
    ("damaged snapshots pass the check", "tuning_db/src/snapshot/check.rs",
     "!= self.header.body_checksum", "> u64::MAX - 1", "-p autotune-db"),
    ("a stale index: appended records are forgotten", "tuning_db/src/index.rs",
     "        self.lines.insert(xxh3_64(line.as_bytes()), place);\n        self.push(place, record);",
     "        self.lines.insert(xxh3_64(line.as_bytes()), place);\n        let _ = record;", "-p autotune-db"),
    ("integers are subtracted the wrong way round", "graph/src/operators/binary.rs",
     "a.wrapping_sub(b)", "b.wrapping_sub(a)", "-p autotune-graph"),
    ("factors of -1 are removed", "graph/src/rewrite/arithmetic.rs",
     "Binary::And => value == 1.0", "Binary::And => value.abs() == 1.0", "-p autotune-graph"),
    ("constants that are subtracted are added", "graph/src/rewrite/arithmetic.rs",
     "    let c = site.add(Map(Function::Op(UnaryOp::Neg)), &[c])?;\n    site.add(Binary::Add, &[x, c]).map(Some)",
     "    site.add(Binary::Add, &[x, c]).map(Some)", "-p autotune-graph"),
    ("zero points are ignored", "graph/src/operators/quantise.rs",
     ".round_ties_even() + zero[place(at)]", ".round_ties_even() + 0.0 * zero[place(at)]", "-p autotune-network --test it"),
    ("scales by channel are those of the last axis", "graph/src/operators/quantise.rs",
     "at / inner % scales", "at % (inner.min(1) * scales)", "-p autotune-network --test it"),
    ("negative axes are off by one", "graph/src/onnx/call.rs",
     "axis.checked_add_unsigned(rank as u64)", "axis.checked_add_unsigned(rank as u64 - 1)", "-p autotune-network --test it"),
    ("tensors that are live at the same step share memory", "network/src/arena.rs",
     "last < *need.steps.start()", "last <= *need.steps.start()", "-p autotune-network"),
    ("lifetimes that touch do not overlap", "network/src/arena.rs",
     "a.start() <= b.end() && b.start() <= a.end()", "a.start() < b.end() && b.start() < a.end()", "-p autotune-network"),
    ("outputs that are inputs are read from the caller", "network/src/compiled/in_place.rs",
     "        slots.remove(&output.slot);\n    }\n    for action in", "        let _ = output;\n    }\n    for action in",
     "-p autotune-network"),
    ("records of cached constants are not used for uncached ones", "deploy/src/query.rs",
     "workload.with_cold(!workload.is_cold())", "workload.with_cold(workload.is_cold())", "-p autotune --test it"),
    ("schedules are measured again", "tuner/src/search/batch.rs",
     "!self.is_full() && !self.seen.contains(&hash) && self.proposed.insert(hash)", "!self.is_full() && self.proposed.insert(hash)",
     "-p autotune"),
    ("other failures have the exit code of bad usage", "cli/src/main.rs",
     "map_or(1, Failure::exit_code)", "map_or(2, Failure::exit_code)", "-p autotune-cli --test it exit_codes::"),
    ("wrong integers pass the check", "measure/src/checks.rs",
     "|part| whole_difference(&actual[part.clone()], &expected[part])", "|part| whole_difference(&expected[part.clone()], &expected[part])",
     "-p autotune-measure"),
]


def planted(file, text, replacement):
    """Replaces the text; returns the original."""
    original = file.read_text()
    if original.count(text) != 1:
        raise SystemExit(f"{file}: {original.count(text)} times {text!r}: the list is out of date")
    file.write_text(original.replace(text, replacement))
    return original


def failed_tests(output):
    return [line.split()[1] for line in output.splitlines() if line.startswith("test ") and line.endswith("FAILED")]


def run(bug):
    """Returns the first test that fails, or None, and the seconds."""
    _, name, text, replacement, arguments = bug
    file, start = ROOT / name, time.time()
    original = planted(file, text, replacement)
    try:
        command = ["cargo", "test", *arguments.split()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    finally:
        file.write_text(original)
    found = failed_tests(done.stdout)
    if done.returncode and not found and "Running" not in done.stderr:
        raise SystemExit(f"{name}: no test ran with {replacement!r}:\n{done.stderr[-2000:]}")
    return found[0] if found else "(the test process)" if done.returncode else None, time.time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help="bugs to plant, from 1 on; all if none is named")
    parser.add_argument("--out", type=Path, help="table of the results")
    given = parser.parse_args()

    lines, missed = ["| bug | file | found by |", "|---|---|---|"], 0
    for number in given.numbers or range(1, len(BUGS) + 1):
        bug = BUGS[number - 1]
        test, secs = run(bug)
        missed += test is None
        print(f"[{number}/{len(BUGS)}] {bug[0]}: {test or 'NOT FOUND'} ({secs:.0f} s)", flush=True)
        lines.append(f"| {bug[0]} | `{bug[1]}` | {f'`{test}`' if test else 'nothing'} |")
        if given.out:
            given.out.write_text("\n".join(lines) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
