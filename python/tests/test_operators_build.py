"""How the operators are built: with compilers that only pretend, and without PyTorch."""

import io
import os
import pathlib
import shutil
import subprocess
import tempfile
import types
import unittest
from unittest import mock

from pinlane import operators
from pinlane.errors import Unavailable

WORKS = """#!/bin/sh
echo "$LD_PRELOAD$LD_LIBRARY_PATH" >> "$0.calls"
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""
CHOICES = """
#include <nv/target>
int host() { NV_IF_ELSE_TARGET(NV_IS_HOST, (int x[] = {1, 2}; return x[1];), (error)) }
int device() { NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, error, int x = (1, 3); return x;) }
int both() {
  NV_IF_TARGET(NV_IS_HOST, (NV_IF_ELSE_TARGET(NV_IS_DEVICE, (error), return 4;)), (error))
}
int neither() { NV_IF_TARGET(NV_IS_DEVICE, (error)) return 5; }
int only() { NV_IF_TARGET(NV_ANY_TARGET, return 6;) }
int main() {
  return host() == 2 && device() == 3 && both() == 4 && neither() == 5 && only() == 6 ? 0 : 1;
}
"""
FAILS = """#!/bin/sh
for line in $(seq 30); do echo "error number $line"; done
exit 3
"""


class Build(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        packages = self.folder / "site-packages"
        headers = packages / "nvidia" / "cu13" / "include"
        headers.mkdir(parents=True)
        (headers / "cuda_runtime_api.h").touch()
        self.headers = headers
        self.torch = types.SimpleNamespace(
            __version__="2.15.0+cu130", __file__=str(packages / "torch" / "__init__.py"),
            version=types.SimpleNamespace(cuda="13.0"),
            _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True))
        self.compiler = self.folder / "compiler"
        environment = mock.patch.dict(os.environ, {
            "XDG_CACHE_HOME": str(self.folder / "cache"), "CXX": str(self.compiler),
            "LD_PRELOAD": "", "LD_LIBRARY_PATH": "emulated"})
        environment.start()
        self.addCleanup(environment.stop)
        output = mock.patch("sys.stderr", new_callable=io.StringIO)
        self.output = output.start()
        self.addCleanup(output.stop)

    def compile_by(self, script):
        self.compiler.write_text(script)
        self.compiler.chmod(0o755)

    def unavailable(self):
        with self.assertRaises(Unavailable) as raised:
            operators.library(self.torch)
        return str(raised.exception)

    def test_it_is_built_once_for_a_version_of_pytorch_and_of_the_sources(self):
        self.compile_by(WORKS)
        first = operators.library(self.torch)
        self.assertEqual(first.read_text(), "built\n")
        self.assertEqual(operators.library(self.torch), first)
        calls = pathlib.Path(f"{self.compiler}.calls")
        self.assertEqual(calls.read_text(), "\n", "one call, without the emulated device")
        self.assertIn("half a minute", self.output.getvalue())
        self.torch.__version__ = "2.15.1"
        self.assertNotEqual(operators.library(self.torch), first)
        self.assertEqual(calls.read_text(), "\n\n")
        sources = self.folder / "operators"
        shutil.copytree(operators.SOURCES, sources)
        (sources / "own.hpp").write_text("changed")
        with mock.patch.object(operators, "SOURCES", sources):
            operators.library(self.torch)
        self.assertEqual(calls.read_text(), "\n\n\n")

    def test_the_headers_of_cuda_12_are_in_many_packages(self):
        packages = self.headers.parent.parent
        shutil.rmtree(packages / "cu13")
        for name, header in [("cusparse", "cusparse.h"), ("cuda_runtime", "cuda_runtime_api.h")]:
            (packages / name / "include").mkdir(parents=True)
            (packages / name / "include" / header).touch()
        self.torch.version.cuda = "12.8"
        self.compile_by(WORKS)
        line = operators.command(self.torch, "a.so")
        found = [part.removeprefix(f"-isystem{packages}/") for part in line if "nvidia" in part]
        self.assertEqual(found, ["cuda_runtime/include", "cusparse/include"])

    def test_a_failure_shows_the_compilers_last_lines_and_leaves_nothing(self):
        self.compile_by(FAILS)
        text = self.unavailable()
        self.assertIn("status 3", text)
        self.assertIn("error number 30", text)
        self.assertNotIn("error number 10\n", text)
        self.assertNotIn("tested", text)
        self.torch.__version__ = "2.14.1+cu130"
        self.assertNotIn("tested", self.unavailable())
        self.torch.__version__ = "2.9.0"
        self.assertIn("tested with PyTorch 2.14 and 2.15, and this is 2.9.0", self.unavailable())
        self.assertEqual(list(self.folder.rglob("*.so")), [])
        self.compile_by(WORKS)
        self.assertTrue(operators.library(self.torch).exists())

    def test_what_is_missing_is_named(self):
        self.compile_by(WORKS)
        with mock.patch.dict(os.environ, {"PATH": "", "CXX": ""}):
            self.assertIn("apt install g++", self.unavailable())
            self.assertEqual(self.output.getvalue(), "", "nothing is announced")
        (self.headers / "cuda_runtime_api.h").unlink()
        with mock.patch.dict(os.environ, {"CUDA_HOME": str(self.folder / "toolkit")}):
            if not pathlib.Path("/usr/local/cuda/include/cuda_runtime_api.h").exists():
                text = self.unavailable()
                self.assertIn("cuda_runtime_api.h", text)
                self.assertIn(str(self.folder / "toolkit"), text)

    def test_a_cache_that_cannot_be_written_to_is_named(self):
        self.compile_by(WORKS)
        (self.folder / "file").touch()
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.folder / "file")}):
            self.assertIn("Set XDG_CACHE_HOME", self.unavailable())


@unittest.skipUnless(shutil.which("c++"), "needs a C++ compiler")
class Compat(unittest.TestCase):
    """Headers that some of PyTorch's packages need and do not bring."""

    def test_code_is_chosen_for_the_host(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "a.cpp"), pathlib.Path(folder, "a")
            source.write_text(CHOICES)
            line = ["c++", "-std=c++20", "-pedantic-errors", f"-I{operators.SOURCES / 'compat'}",
                    "-o", program, source]
            done = subprocess.run(line, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(subprocess.run([program]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
