"""Runs a function in a child whose device has a schedule of its own."""

import json
import os
import pickle
import tempfile
import traceback

MODES = ("eager", "lazy", "random", "chunked", "pct:3")


def forked(function, replay="0:eager", **variables):
    """What the function gives, and the findings. Call it before this process uses the device."""
    report = tempfile.mktemp()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.environ.update(PINLANE_REPLAY=replay, PINLANE_CUDART_REPORT=report,
                          PINLANE_CUDART_QUIET="1", **variables)
        try:
            given = (function(), None)
        except BaseException:
            given = (None, traceback.format_exc())
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(given, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    findings = []
    if os.path.exists(report):
        with open(report) as lines:
            findings = [json.loads(line) for line in lines]
        os.remove(report)
    if status or not data:
        raise AssertionError(f"the child ended with status {status}: {findings}")
    result, error = pickle.loads(data)
    if error:
        raise AssertionError(f"{error}\n{findings}")
    return result, findings
