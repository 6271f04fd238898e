"""`pytest --pinlane-race`, by a project of its own. Skipped without pytest or the runtime."""
import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

from pinlane import dropin
from pinlane.errors import Unavailable

from .samples import folder

PYTHON = Path(__file__).resolve().parent.parent
PROJECT = """\
import ctypes, os
import pytest

@pytest.fixture(scope="module")
def memory():
    runtime = ctypes.CDLL(None)
    host, device = ctypes.c_void_p(), ctypes.c_void_p()
    runtime.cudaMallocHost(ctypes.byref(host), 4096)
    runtime.cudaMalloc(ctypes.byref(device), 4096)
    print("set up")
    yield runtime, host, device
    runtime.cudaFree(device)

@pytest.mark.parametrize("waits", [True, False])
def test_upload(memory, waits):
    runtime, host, device = memory
    print("uploads")
    runtime.cudaMemcpyAsync(device, host, 4096, 1, None)
    if waits:
        runtime.cudaDeviceSynchronize()
    ctypes.memset(host, 1, 4096)

def test_fails():
    assert 1 == 2

def test_crashes():
    os.abort()

@pytest.mark.skip
def test_is_skipped():
    pass

@pytest.mark.pinlane(runs=2, modes="lazy")
def test_runs_twice():
    assert os.environ["PINLANE_REPLAY"] in ("0:eager", "1:lazy")

@pytest.mark.pinlane(runs=0)
def test_in_the_process_of_pytest():
    assert "PINLANE_REPLAY" not in os.environ
"""


def missing():
    if importlib.util.find_spec("pytest") is None:
        return "pytest"
    try:
        dropin.folder()
    except Unavailable:
        return "the drop-in runtime"
    return ""


@unittest.skipIf(missing(), f"needs {missing()}")
class Plugin(unittest.TestCase):
    def pytest(self, *arguments, text=PROJECT, conftest=None, other=None):
        where = folder(self)
        files = {"test_project.py": text, "conftest.py": conftest, "test_other.py": other}
        for name, contents in files.items():
            if contents is not None:
                (where / name).write_text(contents)
        env = dict(os.environ, PYTHONPATH=str(PYTHON), PINLANE_CUDART=str(dropin.folder()),
                   PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        command = [sys.executable, "-m", "pytest", "-p", "pinlane.pytest_plugin", "-v",
                   "--pinlane-runs", "4", *arguments]
        done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True,
                              timeout=300)
        return done.returncode, done.stdout + done.stderr

    def test_findings_are_failures_and_all_else_is_as_always(self):
        status, text = self.pytest("--pinlane-race", "--pinlane-operators", "off")
        self.assertEqual(status, 1, text)
        for name, result in [
            ("test_upload[True]", "PASSED"), ("test_upload[False]", "FAILED"),
            ("test_fails", "FAILED"), ("test_crashes", "FAILED"), ("test_is_skipped", "SKIPPED"),
            ("test_runs_twice", "PASSED"), ("test_in_the_process_of_pytest", "PASSED"),
        ]:
            self.assertIn(f"test_project.py::{name} {result}", text)
        self.assertIn("the host overwrites a tensor before its upload is done", text)
        self.assertIn("assert 1 == 2", text)
        self.assertIn("killed by SIGABRT", text)
        self.assertIn("3 failed, 3 passed, 1 skipped", text)
        self.assertEqual(text.count("uploads\n"), 1, "captured for the failure only")

    def test_a_replay_is_one_run(self):
        status, text = self.pytest(
            "--pinlane-race", "--pinlane-operators", "off", "--pinlane-replay", "1:lazy",
            "test_project.py::test_upload")
        self.assertEqual(status, 1, text)
        self.assertIn("2 tests, 2 runs; problems in 1 of them", text)

    def test_without_the_option_nothing_changes(self):
        status, text = self.pytest("-k", "fails or skipped")
        self.assertEqual(status, 1, text)
        self.assertNotIn("pinlane:", text)

    def test_modules_that_call_cuda_are_imported_by_runs(self):
        status, text = self.pytest("--pinlane-race", "--pinlane-operators", "off", text=(
            "import ctypes\nctypes.CDLL(None).cudaFree(None)\n" + PROJECT))
        self.assertEqual(status, 1, text)
        for name, result in [
            ("test_upload[True]", "PASSED"), ("test_upload[False]", "FAILED"),
            ("test_fails", "FAILED"), ("test_crashes", "FAILED"), ("test_is_skipped", "SKIPPED"),
            ("test_runs_twice", "PASSED"),
        ]:
            self.assertIn(f"test_project.py::{name} {result}", text)
        self.assertIn("the host overwrites a tensor before its upload is done", text)
        self.assertIn("each run imports the module of its test", text)
        self.assertIn("collected 7 items", text)

    def test_what_cannot_be_collected_by_a_run_is_an_error(self):
        status, text = self.pytest("--pinlane-race", "--pinlane-operators", "off",
                                   "test_project.py", "test_other.py", text=(
            "import ctypes\nctypes.CDLL(None).cudaFree(None)\n"
            "def test_a(): pass\n"), other="assert 1 == 2\n")
        self.assertEqual(status, 2, text)
        self.assertIn("ERROR test_other.py", text)
        self.assertIn("assert 1 == 2", text)

    def test_a_conftest_that_calls_cuda_is_named_with_the_command_that_works(self):
        status, text = self.pytest(
            "--pinlane-race", "--pinlane-operators=off", "-k", "a",
            text="def test_a(): pass\n",
            conftest="import ctypes\nctypes.CDLL(None).cudaFree(None)\n")
        self.assertNotEqual(status, 0)
        self.assertIn("a conftest.py or a plugin calls CUDA when it is imported", text)
        self.assertIn("pinlane race -m pytest -p pinlane.pytest_plugin -v", text)
        self.assertNotIn("sitecustomize", text)


@unittest.skipIf(importlib.util.find_spec("pytest") is None, "needs pytest")
class Refused(unittest.TestCase):
    def test_what_cannot_run_is_an_error_of_one_line(self):
        where = folder(self)
        (where / "torch").mkdir()
        (where / "torch" / "__init__.py").touch()
        (where / "torch" / "version.py").write_text("__version__ = '2.9+cpu'\ncuda = None\n")
        env = dict(os.environ, PYTHONPATH=f"{where}{os.pathsep}{PYTHON}",
                   PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        command = [sys.executable, "-m", "pytest", "-p", "pinlane.pytest_plugin", "--pinlane-race"]
        done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertRegex(done.stderr.strip(), r"\AERROR: pinlane: torch .* CPU-only build.*\Z")
        self.assertNotIn("--no-torch", done.stderr)


if __name__ == "__main__":
    unittest.main()
