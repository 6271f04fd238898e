"""The command line: what it refuses, with what to do; and a whole run where a runtime is built."""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import types
import unittest
from pathlib import Path
from unittest import mock

import pinlane
from pinlane import command, dropin, imports, installed, source
from pinlane.errors import Unavailable

from .samples import folder

PACKAGE = Path(pinlane.__file__).resolve().parent
CTYPES = """\
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
host, memory = ctypes.c_void_p(), ctypes.c_void_p()
runtime.cudaMallocHost(ctypes.byref(host), 4096)
runtime.cudaMalloc(ctypes.byref(memory), 4096)
runtime.cudaMemcpyAsync(memory, host, 4096, 1, None)
ctypes.memset(host, 1, 4096)
print("the end")
"""


def has_runtime():
    try:
        return dropin.folder() is not None
    except Unavailable:
        return False


def fake_torch(where, version_py):
    (where / "torch").mkdir()
    (where / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (where / "torch" / "version.py").write_text(version_py)


class OtherTool(unittest.TestCase):
    def run_with(self, path):
        env = dict(os.environ, PATH=str(path), PYTHONPATH=str(PACKAGE.parent))
        command = [sys.executable, "-m", "pinlane", "doctor", "--json"]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    def test_its_commands_are_handed_over(self):
        script, program = folder(self), folder(self)
        (script / "pinlane").write_text("#!/bin/sh\nexit 5\n")
        (script / "pinlane").chmod(0o755)
        shutil.copy(shutil.which("echo"), program / "pinlane")
        ran = self.run_with(f"{script}:{program}")
        self.assertEqual((ran.returncode, ran.stdout), (0, "doctor --json\n"), ran.stderr)
        failed = self.run_with(script)
        self.assertEqual(failed.returncode, 2, failed.stderr)
        self.assertIn("cargo install --path crates/cli", failed.stderr)


class Refused(unittest.TestCase):
    def setUp(self):
        self.folder = folder(self)

    def refuse(self, *argv):
        """What the command prints when it refuses with the status of misuse."""
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = command.main(["race", *argv])
            except SystemExit as end:
                status = end.code
        self.assertEqual(status, 2, err.getvalue())
        return err.getvalue()

    def script(self, text):
        path = self.folder / "script.py"
        path.write_text(text)
        return str(path)

    def test_a_script_that_is_not_there(self):
        self.assertIn("there is no file none.py", self.refuse("none.py"))
        self.assertIn("no program is named", self.refuse())

    def test_options_that_cannot_be_read(self):
        script = self.script("pass")
        for options, text in [
            (["--mode", "slow"], "'slow' is no mode"), (["--runs", "0"], "at least 1"),
            (["--time", "-1"], "more than 0"), (["--replay", "lazy"], "a seed and a mode"),
            (["--runs", "3", "--time", "3"], "exclude each other"), (["--wrong"], "--wrong"),
        ]:
            self.assertIn(text, self.refuse(*options, script), options)

    def with_torch(self, version_py):
        fake_torch(self.folder, version_py)
        return mock.patch.object(sys, "path", [str(self.folder)])

    def test_pythons_whose_lines_are_not_known(self):
        script = self.script("pass")
        for where, name, value, what in [
            (sys, "version_info", (3, 9, 18), "CPython 3.9"),
            (sys, "version_info", (3, 99, 0), "CPython 3.99"),
            (sys, "implementation", types.SimpleNamespace(name="pypy"), "pypy 3."),
            (sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get, "free-threaded CPython 3."),
        ]:
            with mock.patch.object(where, name, value):
                text = self.refuse("--no-torch", script)
            self.assertIn(what, text)
            self.assertIn(", in a build with the GIL", text)
        for version in installed.PYTHONS:
            with mock.patch.object(sys, "version_info", version):
                installed.check_python()

    def test_torch_is_missing(self):
        with mock.patch.object(installed, "find", lambda: None):
            text = self.refuse(self.script("def f():\n    from torch import nn\n"))
        self.assertIn("PyTorch is not installed", text)
        self.assertIn("`pip install torch`", text)
        self.assertIn("--no-torch", text)

    def test_torch_is_for_the_cpu_only(self):
        with self.with_torch("__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\n"):
            text = self.refuse(self.script("import torch"))
        self.assertIn("torch 2.9.0+cpu", text)
        self.assertIn("is a CPU-only build", text)
        self.assertIn("`pip uninstall torch`, then `pip install torch`", text)

    def test_torch_is_for_other_devices(self):
        with self.with_torch("__version__ = '2.9.0'\ncuda = None\nhip = '6.4'\nxpu = None\n"):
            self.assertIn("is a build for ROCm", self.refuse(self.script("import torch")))

    def test_torch_is_too_old_or_too_new(self):
        with self.with_torch("__version__ = '2.0.1'\ncuda = '11.8'\n"):
            text = self.refuse(self.script("import torch"))
            self.assertIn("built for CUDA 11.8", text)
            self.assertIn("`pip install --upgrade torch`", text)
            version = self.folder / "torch" / "version.py"
            version.write_text("__version__ = '3.0.1'\ncuda = '14.0'\n")
            self.assertIn("or a newer pinlane", self.refuse(self.script("import torch")))

    def test_what_to_do_without_torch_is_of_the_command_that_was_given(self):
        with self.with_torch("__version__ = '2.9.0+cpu'\ncuda = None\n"):
            self.assertIn("add --no-torch", self.refuse(self.script("import torch")))
            text = io.StringIO()
            with contextlib.redirect_stderr(text):
                self.assertEqual(command.main(["env"]), 2)
            self.assertIn("add --cuda 13", text.getvalue())
            self.assertNotIn("--no-torch", text.getvalue())

    def test_torch_contains_the_runtime(self):
        with self.with_torch("__version__ = '2.9.0'\ncuda = '13.0'\n"):
            (self.folder / "torch" / "lib").mkdir()
            library = self.folder / "torch" / "lib" / "libc10_cuda.so"
            library.write_bytes(b"\x7fELF libc10.so")
            self.assertIn("linked statically", self.refuse(self.script("import torch")))
            library.write_bytes(b"\x7fELF libcudart.so.13")
            self.assertEqual(installed.required().major, "13")

    def test_torch_cannot_be_imported(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(Unavailable, "cannot be imported .*Error: .*'import torch'"):
                imports.prepare(torch=True, operators=False)

    def test_a_folder_without_the_runtime(self):
        with mock.patch.dict(os.environ, {"PINLANE_CUDART": str(self.folder)}):
            text = self.refuse("--no-torch", self.script("pass"))
        self.assertIn("has no libcudart.so.13", text)

    def test_a_block_without_the_runtime(self):
        with self.assertRaises(Unavailable) as raised:
            with pinlane.race():
                pass
        self.assertIn("pinlane race script.py", str(raised.exception))

    def test_options_end_at_the_program(self):
        asked = command.request(command.parser().parse_args(
            ["race", "--runs", "3", "--no-torch", self.script("pass"), "--runs", "9", "-m"]))
        self.assertEqual(asked.program.arguments[1:], ["--runs", "9", "-m"])
        self.assertEqual(asked.options.runs, 3)
        asked = command.request(command.parser().parse_args(
            ["race", "--no-torch", "--strict", "-m", "a.b", "--x"]))
        self.assertEqual((asked.program.arguments, asked.command),
                         (["a.b", "--x"], ["-m", "a.b", "--x"]))
        self.assertEqual(asked.given, ["--strict", "--no-torch"])


class Sources(unittest.TestCase):
    def test_the_stream_around_a_line(self):
        path = folder(self) / "a.py"
        path.write_text("with torch.cuda.stream(self.side):\n    a()\n    with x, stream(b):\n"
                        "        c()\nd()\nwith open(e):\n    f()\n")
        found = [source.stream_block(str(path), line) for line in range(1, 8)]
        self.assertEqual([block and block.stream for block in found],
                         [None, "self.side", "self.side", "b", None, None, None])

    def test_what_a_line_copies(self):
        path = folder(self) / "a.py"
        path.write_text("y = self.x.to('cpu')\ny.copy_(x[0], non_blocking=True)\nf(y)\n"
                        "many(a, b.cuda())\n")
        found = [source.copied(str(path), line) for line in range(1, 5)]
        self.assertEqual(found, ["self.x", "x[0]", None, "b"])

    def test_the_name_of_the_tensor_that_a_line_makes(self):
        path = folder(self) / "a.py"
        path.write_text("x = torch.ones(3)\nself.y = x.to('cuda')\nz = f(torch.ones(3))\n"
                        "a, b = torch.split(x, 2)\nc = x @ x\nreturned(x)\n")
        found = [source.target(str(path), line) for line in range(1, 7)]
        self.assertEqual(found, ["x", "self.y", None, None, "c", None])

    def test_whether_a_line_is_asynchronous(self):
        path = folder(self) / "a.py"
        path.write_text("x.to('cpu', non_blocking=True)\nx.to(\n    'cpu',\n"
                        "    non_blocking=flag)\nx.cpu()\nx.to('cpu', non_blocking=False)\n")
        found = [source.is_asynchronous(str(path), line) for line in (1, 2, 5, 6, 9)]
        self.assertEqual(found, [True, True, False, False, False])


@unittest.skipUnless(has_runtime(), "needs the drop-in runtime: scripts/build-cudart")
class Whole(unittest.TestCase):
    def race(self, *arguments):
        env = dict(os.environ, PYTHONPATH=str(PACKAGE.parent), PINLANE_CUDART=str(dropin.folder()))
        env.pop(dropin.FORMER, None)
        command = [sys.executable, "-m", "pinlane", "race", "--no-torch", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    def test_a_race_of_a_program_without_torch(self):
        where = folder(self)
        script = where / "script.py"
        script.write_text(CTYPES)
        done = self.race("--runs", "3", "--json", str(where / "j"), "--html", str(where / "h"),
                         str(script))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the host overwrites a tensor before its upload is done", done.stdout)
        self.assertEqual(done.stdout.count("the end\n"), 1, "the first run's output is shown once")
        self.assertEqual(json.loads((where / "j").read_text())["runs"], 3)
        self.assertIn("<!doctype html>", (where / "h").read_text())

    def test_a_block_raises_what_it_has_found(self):
        script = folder(self) / "script.py"
        block = "".join(f"    {line}\n" for line in CTYPES.splitlines())
        script.write_text(f"import pinlane\nwith pinlane.race(raises=False) as found:\n{block}"
                          f"print(len(found.problems))\nwith pinlane.race():\n{block}")
        env = {**os.environ, **dropin.preloaded("13", {}), "PYTHONPATH": str(PACKAGE.parent)}
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.stdout, "the end\n1\nthe end\n", done.stderr)
        self.assertIn("RacesFound: 1. the host overwrites a tensor", done.stderr)

    def test_a_program_without_races_and_one_that_fails(self):
        script = folder(self) / "script.py"
        script.write_text(CTYPES.replace("ctypes.memset", "runtime.cudaDeviceSynchronize();"
                                         "ctypes.memset"))
        done = self.race("--runs", "6", str(script))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("nothing found in 6 runs", done.stdout)
        script.write_text("assert False, 'always'")
        done = self.race(str(script))
        self.assertEqual(done.returncode, 1)
        self.assertIn("AssertionError: always", done.stdout)
        self.assertIn("no other schedule was run", done.stdout)


if __name__ == "__main__":
    unittest.main()
