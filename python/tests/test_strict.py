"""`--strict`: downloads to memory that is not pinned, and that nothing waits for.

Without it they are complete when the call returns, as on today's GPUs. CUDA does not promise that.
"""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from pinlane import dropin
from pinlane.errors import Unavailable

from .samples import folder
from .test_guide import missing as torch_missing

PYTHON = Path(__file__).resolve().parent.parent
CTYPES = """\
import ctypes, sys
runtime = ctypes.CDLL("libcudart.so.13")
memory, size = ctypes.c_void_p(), 4096
host = (ctypes.c_char * size)()
runtime.cudaMalloc(ctypes.byref(memory), size)
runtime.cudaMemset(memory, 7, size)
runtime.cudaDeviceSynchronize()
runtime.cudaMemcpyAsync(host, memory, size, 2, None)
if "waits" in sys.argv:
    runtime.cudaDeviceSynchronize()
assert host.raw == b"\\7" * size
"""
TORCH = """\
import sys, torch
x, host = torch.ones(256, device="cuda"), torch.zeros(256)
host.copy_(x, non_blocking=True)
if "waits" in sys.argv:
    torch.cuda.synchronize()
host.add_(1)
torch.cuda.synchronize()
assert host.sum().item() == 512
"""
NOTE = "--strict reports where it matters: "


def missing():
    try:
        dropin.folder()
    except Unavailable as error:
        return str(error)
    return ""


class Strict(unittest.TestCase):
    def race(self, program, options, *arguments):
        """The status, and the result as JSON."""
        where = folder(self)
        (where / "script.py").write_text(program)
        env = dict(os.environ, PYTHONPATH=str(PYTHON), PINLANE_CUDART=str(dropin.folder()))
        env.pop(dropin.FORMER, None)
        command = [sys.executable, "-m", "pinlane", "race", "--runs", "6", "--json", "result.json",
                   *options, "script.py", *arguments]
        done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True,
                              timeout=600)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads((where / "result.json").read_text())

    def check(self, program, copy, options=()):
        """Compares the runs with and without `--strict`. The line of the copy is `copy`."""
        status, result = self.race(program, options)
        self.assertEqual((status, result["problems"]), (0, []))
        self.assertIn(f"{NOTE}script.py:{copy}", " ".join(result["notes"]))

        status, result = self.race(program, ["--strict", *options])
        kinds = {problem["kind"] for problem in result["problems"]}
        self.assertEqual(status, 1)
        self.assertLessEqual({"Race", "ExitsDiffer"}, kinds)
        race = result["problems"][0]
        first, second = race["steps"]
        self.assertEqual(race["kind"], "Race")
        self.assertEqual(race["title"], "the host reads a tensor before its download is done")
        self.assertEqual(first["site"]["line"], copy)
        self.assertEqual((second["agent"], race["schedules"][0]), ("host", "0:eager"))
        self.assertIn("pageable memory (not pinned)", " ".join(race["details"]))
        self.assertIn("--strict", race["replay"])

        status, result = self.race(program, ["--strict", *options], "waits")
        self.assertEqual((status, result["problems"], result["notes"]), (0, [], []))

    @unittest.skipIf(missing(), f"needs the drop-in runtime: {missing()}")
    def test_a_download_of_the_runtime(self):
        self.check(CTYPES, 8, ["--no-torch"])

    @unittest.skipIf(torch_missing(), f"needs PyTorch for CUDA, and the runtime: {torch_missing()}")
    def test_a_download_of_pytorch(self):
        self.check(TORCH, 3)


if __name__ == "__main__":
    unittest.main()
