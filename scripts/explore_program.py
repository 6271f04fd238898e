"""What scripts/explore-program does: runs, and a table of what came of them."""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile


def variables(folder, program):
    env = dict(os.environ, PINLANE_CUDART_QUIET=os.environ.get("PINLANE_CUDART_QUIET", "1"))
    paths = [folder, env.get("LD_LIBRARY_PATH")]
    env["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    if os.environ.get("EXPLORE_PRELOAD", "1") != "0":
        needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True).stdout
        major = 12 if "libcudart.so.12" in needed else 13
        libraries = [f"{folder}/libcudart.so.{major}", env.get("LD_PRELOAD")]
        env["LD_PRELOAD"] = ":".join(library for library in libraries if library)
    return env


def ended(returncode):
    """How a run ended, in words."""
    if returncode is None:
        return "ran too long"
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"exit {returncode}"


def run(command, env, mode, seed, report):
    """Runs the program once; gives how it ended, and the kinds and texts of its findings."""
    env = dict(env, PINLANE_CUDART_MODE=mode, PINLANE_CUDART_SEED=str(seed))
    env["PINLANE_CUDART_REPORT"] = report
    limit = float(os.environ.get("EXPLORE_TIMEOUT", "60"))
    if os.path.exists(report):
        os.remove(report)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        status = subprocess.run(command, env=env, timeout=limit, **quiet).returncode
    except subprocess.TimeoutExpired:
        status = None
    lines = open(report).read().splitlines() if os.path.exists(report) else []
    return ended(status), [json.loads(line) for line in lines]


def main(folder, runs, command):
    env = variables(folder, command[0])
    seen = collections.OrderedDict()
    first = int(os.environ.get("EXPLORE_FIRST", "1"))
    schedules = [("eager", 0)] + [("lazy", seed) for seed in range(first, first + runs)]
    with tempfile.TemporaryDirectory() as work:
        for mode, seed in schedules:
            how, findings = run(command, env, mode, seed, f"{work}/report")
            kinds = {finding["kind"]: finding["message"] for finding in reversed(findings)}
            for name, text in [(how, ""), *sorted(kinds.items())]:
                entry = seen.setdefault(name, {"runs": {}, "first": (mode, seed), "text": text})
                entry["runs"][mode] = entry["runs"].get(mode, 0) + 1
    print(f"{'':24} {'eager':>7} {'lazy':>7}   first")
    print(f"{'runs':24} {1:7} {runs:7}")
    for name, entry in sorted(seen.items(), key=lambda item: bool(item[1]["text"])):
        mode, seed = entry["first"]
        counts = entry["runs"]
        where = mode if mode == "eager" else f"{mode} seed {seed}"
        print(f"{name:24} {counts.get('eager', 0):7} {counts.get('lazy', 0):7}   {where}")
        if entry["text"]:
            print(f"{'':24} {entry['text']}")
    return 0 if set(seen) == {"exit 0"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
