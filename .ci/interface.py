#!/usr/bin/env python3
"""Compares the public items of the crates that programs use with the lists in .ci/interface.

    .ci/interface.py                      # exits with 1 and names the items that were added, changed or removed
    UPDATE_GOLDEN=1 .ci/interface.py      # writes the lists, after an intended change

Reads what rustdoc writes as JSON (.ci/rustdoc). An item is one line: its path and its declaration without body. Derived implementations are
named by their trait; blanket ones and those that the compiler adds are left out.
A change of these lists is one that users may notice: it belongs in CHANGELOG.md.
"""

import difflib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ["autotune", "autotune_deploy", "autotune_graph", "autotune_network"]

# Forms of the JSON that this script reads.
FORMATS = range(50, 62)


class Declarations:
    """Declarations of a crate's public items, one line each."""

    def __init__(self, crate):
        self.index, self.lines, self.crate = crate["index"], set(), crate
        self.modules = set()
        root = self.index[str(crate["root"])]
        self.module(root, root["name"])

    def module(self, item, path):
        if (item["id"], path) in self.modules:
            return
        self.modules.add((item["id"], path))
        for number in item["inner"]["module"]["items"]:
            self.item(number, path)

    def item(self, number, path):
        item = self.index.get(str(number))
        if item is None:
            return
        kind, inner = next(iter(item["inner"].items()))
        if kind == "use":
            self.use(inner, path)
        elif kind == "module":
            own = f"{path}::{item['name']}"
            self.lines.add(f"{own}: mod")
            self.module(item, own)
        else:
            self.named(item, kind, inner, f"{path}::{item['name']}")

    def use(self, inner, path):
        target = self.index.get(str(inner["id"]))
        if target is None:
            # An item of another crate, whose list has its declaration.
            star = "::*" if inner["is_glob"] else f" as {inner['name']}"
            self.lines.add(f"{path}: use {inner['source']}{star}")
        elif inner["is_glob"]:
            for number in target["inner"].get("module", {}).get("items", []):
                self.item(number, path)
        else:
            kind, of_target = next(iter(target["inner"].items()))
            own = f"{path}::{inner['name']}"
            if kind == "module":
                self.lines.add(f"{own}: mod")
                self.module(target, own)
            else:
                self.named(target, kind, of_target, own)

    def named(self, item, kind, inner, path):
        add = lambda text: self.lines.add(f"{path}: {text}")
        if kind == "function":
            add(self.function(inner))
        elif kind in ("struct", "union"):
            add(kind + self.generics(inner["generics"]))
            self.fields(inner["kind"] if kind == "struct" else {"plain": inner}, path)
            self.impls(inner["impls"], path)
        elif kind == "enum":
            hidden = ", non_exhaustive" if any("non_exhaustive" in str(attribute) for attribute in item["attrs"]) else ""
            add("enum" + self.generics(inner["generics"]) + hidden)
            for variant in map(self.index.get, map(str, inner["variants"])):
                self.variant(variant, f"{path}::{variant['name']}")
            self.impls(inner["impls"], path)
        elif kind == "trait":
            add("trait" + self.generics(inner["generics"]) + self.bounds(inner["bounds"], ": "))
            for number in inner["items"]:
                self.item(number, path)
        elif kind == "type_alias":
            add(f"type{self.generics(inner['generics'])} = {self.type(inner['type'])}")
        elif kind == "assoc_type":
            value = f" = {self.type(inner['type'])}" if inner["type"] else ""
            add("type" + self.generics(inner["generics"]) + self.bounds(inner["bounds"], ": ") + value)
        elif kind in ("assoc_const", "constant"):
            add(f"const {self.type(inner['type'])}")
        elif kind == "static":
            add(f"static {self.type(inner['type'])}")
        else:
            add(kind)

    def fields(self, kind, path):
        if isinstance(kind, str):
            return
        numbers = kind.get("tuple") if "tuple" in kind else next(iter(kind.values()))["fields"]
        for number in numbers:
            field = self.index.get(str(number))
            if field:
                self.lines.add(f"{path}::{field['name']}: {self.type(field['inner']['struct_field'])}")

    def variant(self, variant, path):
        kind = variant["inner"]["variant"]["kind"]
        types = ""
        if "tuple" in kind:
            fields = [self.index.get(str(number)) for number in kind["tuple"]]
            types = "(" + ", ".join(self.type(field["inner"]["struct_field"]) if field else "_" for field in fields) + ")"
        self.lines.add(f"{path}: variant{types}")
        if "struct" in kind:
            self.fields(kind, path)

    def impls(self, numbers, path):
        for item in map(self.index.get, map(str, numbers)):
            inner = item["inner"]["impl"]
            if inner["is_synthetic"] or inner["blanket_impl"]:
                continue
            if inner["trait"] and any("automatically_derived" in str(attribute) for attribute in item["attrs"]):
                # Compilers add a trait of their own.
                if not inner["trait"]["path"].endswith("StructuralPartialEq"):
                    self.lines.add(f"{path}: derive {self.path(inner['trait'])}")
            elif inner["trait"]:
                header = f"impl{self.generics(inner['generics'])} {self.path(inner['trait'])}"
                self.lines.add(f"{path}: {header} for {self.type(inner['for'])}")
            else:
                for number in inner["items"]:
                    self.item(number, path)

    def function(self, inner):
        signature, header = inner["sig"], inner["header"]
        words = [word for word in ("const", "async", "unsafe") if header.get(f"is_{word}")]
        arguments = []
        for name, argument in signature["inputs"]:
            text = self.type(argument)
            arguments.append({"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}.get(text, text) if name == "self" else text)
        output = f" -> {self.type(signature['output'])}" if signature["output"] else ""
        names, bounds = self.parameters(inner["generics"])
        return " ".join([*words, "fn"]) + names + f"({', '.join(arguments)}){output}" + bounds

    def generics(self, generics):
        return "".join(self.parameters(generics))

    def parameters(self, generics):
        """Returns the parameters of an item, and what holds for them beside."""
        names, bounds = [], []
        for parameter in generics["params"]:
            kind, inner = next(iter(parameter["kind"].items()))
            if kind == "lifetime":
                names.append(parameter["name"] + self.join(inner["outlives"], ": ", " + "))
            elif kind == "const":
                names.append(f"const {parameter['name']}: {self.type(inner['type'])}")
            elif not inner["is_synthetic"]:
                default = f" = {self.type(inner['default'])}" if inner["default"] else ""
                names.append(parameter["name"] + self.bounds(inner["bounds"], ": ") + default)
        for predicate in generics["where_predicates"]:
            kind, inner = next(iter(predicate.items()))
            if kind == "bound_predicate":
                bounds.append(self.type(inner["type"]) + self.bounds(inner["bounds"], ": "))
            elif kind == "lifetime_predicate":
                bounds.append(inner["lifetime"] + self.join(inner["outlives"], ": ", " + "))
            else:
                bounds.append(f"{self.type(inner['lhs'])} = {self.term(inner['rhs'])}")
        return self.join(names, "<", ", ", ">"), self.join(bounds, " where ", ", ")

    def bounds(self, bounds, before=""):
        texts = []
        for bound in bounds:
            kind, inner = next(iter(bound.items()))
            if kind == "trait_bound":
                modifier = {"maybe": "?", "maybe_const": "~const "}.get(inner["modifier"], "")
                texts.append(modifier + self.higher_ranked(inner["generic_params"]) + self.path(inner["trait"]))
            else:
                texts.append(str(inner) if kind == "outlives" else kind)
        return self.join(texts, before, " + ")

    def higher_ranked(self, parameters):
        return self.join([parameter["name"] for parameter in parameters], "for<", ", ", "> ")

    def type(self, given):
        kind, inner = next(iter(given.items())) if isinstance(given, dict) else (given, None)
        if kind == "resolved_path":
            return self.path(inner)
        if kind in ("generic", "primitive"):
            return inner
        if kind == "tuple":
            return f"({', '.join(map(self.type, inner))})"
        if kind == "slice":
            return f"[{self.type(inner)}]"
        if kind == "array":
            return f"[{self.type(inner['type'])}; {inner['len']}]"
        if kind == "impl_trait":
            return "impl " + self.bounds(inner)
        if kind == "dyn_trait":
            traits = [self.higher_ranked(each["generic_params"]) + self.path(each["trait"]) for each in inner["traits"]]
            return "dyn " + " + ".join(traits + ([inner["lifetime"]] if inner["lifetime"] else []))
        if kind == "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(inner['type'])}"
        if kind == "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{self.type(inner['type'])}"
        if kind == "qualified_path":
            of = f" as {self.path(inner['trait'])}" if inner["trait"] and inner["trait"]["path"] else ""
            return f"<{self.type(inner['self_type'])}{of}>::{inner['name']}{self.arguments(inner['args'])}"
        if kind == "function_pointer":
            unsafe = "unsafe " if inner["header"]["is_unsafe"] else ""
            arguments = ", ".join(self.type(argument) for _, argument in inner["sig"]["inputs"])
            output = f" -> {self.type(inner['sig']['output'])}" if inner["sig"]["output"] else ""
            return f"{unsafe}fn({arguments}){output}"
        return "_" if kind == "infer" else kind

    def path(self, path):
        # How much of a path is written differs: its last part is in all.
        return path["path"].split("::")[-1] + self.arguments(path["args"])

    def arguments(self, given):
        if not given or not isinstance(given, dict):
            return ""
        kind, inner = next(iter(given.items()))
        if kind == "parenthesized":
            output = f" -> {self.type(inner['output'])}" if inner["output"] else ""
            return f"({', '.join(map(self.type, inner['inputs']))}){output}"
        texts = []
        for argument in inner["args"]:
            kind, value = next(iter(argument.items())) if isinstance(argument, dict) else (argument, "_")
            texts.append({"type": self.type, "const": lambda value: value["expr"]}.get(kind, str)(value))
        for constraint in inner["constraints"]:
            kind, value = next(iter(constraint["binding"].items()))
            equal = f" = {self.term(value)}" if kind == "equality" else self.bounds(value, ": ")
            texts.append(constraint["name"] + equal)
        return self.join(texts, "<", ", ", ">")

    def term(self, term):
        return self.type(term["type"]) if "type" in term else term["constant"]["expr"]

    @staticmethod
    def join(texts, before, between, after=""):
        return before + between.join(texts) + after if texts else ""


def target_folder():
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    return pathlib.Path(json.loads(subprocess.run(metadata, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)["target_directory"])


def main():
    subprocess.run([ROOT / ".ci/doc", "--quiet"], check=True)
    folder, is_written = target_folder() / "doc", os.environ.get("UPDATE_GOLDEN") == "1"
    differences, count = [], 0
    for name in CRATES:
        crate = json.loads((folder / f"{name}.json").read_text())
        if crate["format_version"] not in FORMATS:
            return print(f"skipped: rustdoc writes form {crate['format_version']} of its JSON, which this script does not read")
        lines = sorted(Declarations(crate).lines)
        count += len(lines)
        golden = ROOT / ".ci/interface" / f"{name}.txt"
        if is_written:
            golden.parent.mkdir(exist_ok=True)
            golden.write_text("\n".join(lines) + "\n")
        known = golden.read_text().splitlines() if golden.exists() else []
        changed = [line for line in difflib.unified_diff(known, lines, lineterm="", n=0) if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        differences += [f"{name}: {line}" for line in changed]
    if differences:
        print("\n".join(differences), "\nthe public interface differs: UPDATE_GOLDEN=1 .ci/interface.py writes it again", file=sys.stderr)
        sys.exit(1)
    print(f"{count} public items of {len(CRATES)} crates are those of .ci/interface")


if __name__ == "__main__":
    main()
