"""The findings that the guide prints (docs/guide/pytorch.md) are those of its examples.

It runs PyTorch, so it needs one for CUDA, and the drop-in runtime. PINLANE_FINDINGS=overwrite
writes the files.
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from pinlane import dropin, installed
from pinlane.errors import Unavailable

PYTHON = Path(__file__).resolve().parent.parent
EXAMPLES = PYTHON / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def missing():
    """Why these tests cannot run here; nothing if they can."""
    try:
        dropin.folder()
        installed.required()
        from pinlane import operators  # noqa: F401
    except (Unavailable, ImportError) as error:
        return str(error)
    return ""


def race(*arguments):
    """What the command prints, without what differs from machine to machine."""
    env = dict(os.environ, PYTHONPATH=str(PYTHON), PINLANE_CUDART=str(dropin.folder()))
    command = [sys.executable, "-m", "pinlane", "race", "--runs", "6", *arguments]
    done = subprocess.run(command, cwd=EXAMPLES, env=env, capture_output=True, text=True,
                          timeout=600)
    text = done.stdout.replace(f"{EXAMPLES}{os.sep}", "")
    return done.returncode, re.sub(r", [\d.]+ s\n", ", ... s\n", text), done.stderr


class Guide(unittest.TestCase):
    def test_the_guide_has_every_example_and_its_finding(self):
        guide = PYTHON.parent / "docs" / "guide" / "pytorch.md"
        if not guide.exists():
            self.skipTest("needs the source tree")
        for name in NAMES:
            for file in f"{name}.py", f"findings/{name}.txt":
                self.assertIn(f"{{{{#include ../../python/examples/{file}}}}}", guide.read_text())

    @unittest.skipIf(missing(), f"needs PyTorch for CUDA, and the runtime: {missing()}")
    def test_each_example_has_its_finding_and_none_when_it_is_mended(self):
        for name in NAMES:
            with self.subTest(name):
                status, text, errors = race(f"{name}.py")
                self.assertEqual(status, 1, errors)
                file = EXAMPLES / "findings" / f"{name}.txt"
                if os.environ.get("PINLANE_FINDINGS") == "overwrite":
                    file.write_text(text)
                self.assertEqual(text, file.read_text())
                status, text, errors = race(f"{name}.py", "fixed")
                self.assertEqual((status, errors), (0, ""), text)


if __name__ == "__main__":
    unittest.main()
