#!/usr/bin/env python3
"""Runs the workloads of this crate and those of PyTorch in turns, one workload after another.

    turns.py --program PROGRAM --json FILE [--turns N] [--only WORKLOAD ...] [--tensors COUNT]
             [--files FOLDER] [--cublas FOLDER] [--quick]

PROGRAM is what `cargo bench --bench workloads --no-run` builds. A turn is one process of each. A
figure is the median of its turns, which stand under `turns`; its reference and its spread are of
the same processes. Figures of the same name get PyTorch's under `peers`, which also stand for
themselves. Without PyTorch or a GPU only the program runs.
"""
import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from process import Missing, command, lines

HERE = Path(__file__).resolve().parent
WORKLOADS = ("kv", "embedding", "experts", "optimizer", "checkpoint")
HIGHER_IS_BETTER = {"GB/s"}
PEER_SECONDS, OUR_SECONDS = 240, 180


class Turns:
    """The figures of several runs, by their names."""

    def __init__(self):
        self.runs = {}

    def add(self, figures):
        for figure in figures:
            self.runs.setdefault(figure["name"], []).append(figure)

    def figures(self):
        for runs in self.runs.values():
            value = median(runs, "value")
            figure = {**runs[0], "value": value, "turns": [run["value"] for run in runs],
                      "spreads": [run.get("spread") for run in runs]}
            figure.pop("spread", None)
            if (reference := median(runs, "reference_value")) is not None:
                figure["reference_value"] = reference
                figure["ratio"] = value / reference if reference else None
            yield figure


def median(runs, key):
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def ours(options, workload):
    """One run of the program: the document that it wrote."""
    with tempfile.TemporaryDirectory(prefix="turns-") as folder:
        out = Path(folder) / "figures.json"
        arguments = [options.program, "--json", out, "--only", f"workload.{workload}"]
        for name in ("cublas", "commit", "date"):
            if value := getattr(options, name):
                arguments += [f"--{name}", value]
        command([*arguments, *both(options)], OUR_SECONDS)
        return json.loads(out.read_text())


def theirs(options, workload):
    """The lines of one run of PyTorch, and why they are not all, if so."""
    arguments = [sys.executable, HERE / "workloads.py", "--only", workload, *both(options)]
    try:
        return lines(command(arguments, PEER_SECONDS)), None
    except Missing as missing:
        return lines(missing.output), str(missing)


def both(options):
    """The options that both programs take."""
    for name in ("tensors", "files"):
        if value := getattr(options, name):
            yield from (f"--{name}", value)
    if options.quick:
        yield "--quick"


class Report:
    """What all runs have said so far."""

    def __init__(self):
        self.ours, self.theirs, self.document = Turns(), Turns(), {}
        self.skipped, self.missing, self.versions = {}, {}, {}
        self.failed = False

    def turn(self, options, workload):
        try:
            self.document = ours(options, workload)
            self.ours.add(self.document["figures"])
            self.skipped.update(self.document["skipped"])
        except Missing as missing:
            self.skipped[f"workload.{workload}"] = str(missing)
            self.failed = True
        said, reason = theirs(options, workload)
        self.theirs.add([line for line in said if "value" in line])
        for line in said:
            self.versions.update(line.get("version", {}))
            self.missing.update(line.get("skipped", {}))
        if reason:
            self.missing[f"torch.{workload}"] = reason

    def whole(self):
        peers = list(self.theirs.figures())
        figures = [{**figure, "peers": beside(figure["name"], peers)}
                   for figure in self.ours.figures()]
        for figure in peers:
            better = "higher" if figure["unit"] in HIGHER_IS_BETTER else "lower"
            name = f"{figure['peer']}.{figure['name']}"
            figures.append({**figure, "name": name, "better": better})
        return {**self.document, "figures": figures, "skipped": self.skipped,
                "peers": {"versions": self.versions, "skipped": self.missing}}


def beside(name, peers):
    """What the peers reach for the same, by the way that they do it."""
    ends = ("", ".busy", ".busy.loss", ".core_seconds", ".first")
    end = next(end for end in reversed(ends) if name.endswith(end))
    stem = name.removesuffix(end)
    found = {}
    for figure in peers:
        theirs = figure["name"]
        way = theirs[len(stem):len(theirs) - len(end)]
        if theirs == stem + way + end and way[:1] in ("", ".") and not way.endswith(ends[1:]):
            found[figure["peer"] + way] = figure["value"]
    return found


def show(figures):
    for figure in figures:
        if "peers" not in figure:
            continue
        others = "  ".join(f"{way} {value:.2f}" for way, value in figure["peers"].items())
        reference = figure.get("reference_value")
        reference = "-" if reference is None else f"{reference:.2f}"
        print(f"{figure['name']:<48} {figure['value']:10.2f} {figure['unit']:<6} {reference:>10}  "
              f"{others}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--quick", action="store_true")
    for name in ("tensors", "files", "cublas", "commit", "date"):
        parser.add_argument(f"--{name}")
    options = parser.parse_args()
    report = Report()
    for workload in options.only:
        for turn in range(options.turns):
            report.turn(options, workload)
            # What is there is kept, if a later one takes too long.
            options.json.write_text(json.dumps(report.whole(), indent=2) + "\n")
            print(f"{workload}: turn {turn + 1} of {options.turns}", flush=True)
    whole = report.whole()
    show(whole["figures"])
    for name, reason in {**whole["skipped"], **whole["peers"]["skipped"]}.items():
        print(f"{name}: LEFT OUT: {reason.splitlines()[-1]}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
