#!/usr/bin/env python3
"""Checks that every dependency has a licence that this project accepts.

    .ci/licences.py

Reads the packages of `cargo metadata`, for Linux on x86-64 with all features: those of the workspace, and the package that contains XGBoost's
sources with what it depends on. Exits with 1 and names the packages whose licence expression (SPDX) the accepted licences do not satisfy.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Licences that allow use in a program under Apache-2.0 with a notice at most. A licence that asks for more is a decision, not a line here.
ACCEPTED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def is_accepted(expression):
    """Evaluates an SPDX expression; AND binds more tightly than OR, and older packages write `/` for OR."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def disjunction():
        # Evaluates both sides: a parse must consume every token.
        holds = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            right = conjunction()
            holds = holds or right
        return holds

    def conjunction():
        holds = licence()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            right = licence()
            holds = holds and right
        return holds

    def licence():
        word = tokens.pop(0)
        if word == "(":
            holds = disjunction()
            tokens.pop(0)
            return holds
        if tokens and tokens[0] == "WITH":
            word = " ".join([word, tokens.pop(0), tokens.pop(0)])
        return word in ACCEPTED

    return disjunction() and not tokens


def self_test():
    for expression in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR GPL-2.0-only) AND Unicode-3.0"]:
        assert is_accepted(expression), expression
    for expression in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT OR ISC) AND AGPL-3.0-only", "MIT ISC"]:
        assert not is_accepted(expression), expression


# The workspace, and the packages whose C++ sources are linked.
MANIFESTS = ["Cargo.toml", "cost_model/xgboost-sys/source/Cargo.toml"]


def packages_of(manifest):
    command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path", str(ROOT / manifest)]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    # Members of the workspace itself carry its own licence.
    return [package for package in metadata["packages"] if package["source"]]


def main():
    self_test()
    packages = [package for manifest in MANIFESTS for package in packages_of(manifest)]
    refused = [package for package in packages if not is_accepted(package["license"] or "none")]
    for package in refused:
        print(f"{package['name']} {package['version']}: licence {package['license']}", file=sys.stderr)
    if refused:
        sys.exit(1)
    print(f"licences of {len(packages)} packages are accepted")


if __name__ == "__main__":
    main()
