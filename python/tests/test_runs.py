"""Runs in forked children: how they end, what they print, what is left of them."""
import gc
import os
import signal
import sys
import time
import types
import unittest
import weakref
from unittest import mock

from pinlane import imports
from pinlane.explore import Options, explore
from pinlane.problems import EXITS_DIFFER
from pinlane.program import Program
from pinlane.runs import Runs

from .samples import folder

FINDING = ('{"kind":"BadFree","message":"freed twice","replay":"%s",'
           '"site":{"file":"a.py","line":3}}\n')


def report():
    """Writes a finding, as the drop-in runtime does."""
    with open(os.environ["PINLANE_CUDART_REPORT"], "a") as file:
        file.write(FINDING % os.environ["PINLANE_REPLAY"])


class Made(unittest.TestCase):
    def run_one(self, body, schedule="0:eager", limit=20.0):
        runs = Runs(body, {"EXTRA": "1"})
        self.addCleanup(runs.close)
        return runs.one(schedule, limit)

    def test_a_run_has_its_schedule_and_its_output_and_no_input(self):
        def body(folder):
            print(os.environ["PINLANE_REPLAY"], os.environ["EXTRA"], repr(sys.stdin.read()))
            os.write(2, b"directly\n")
            (folder / "note").write_bytes(b"kept")

        ended = self.run_one(body, "3:lazy")
        self.assertEqual(ended.output, "3:lazy 1 ''\ndirectly\n")
        self.assertEqual((ended.how, ended.note), ("exit 0", b"kept"))
        self.assertTrue(ended.is_clean)

    def test_findings_of_a_run(self):
        ended = self.run_one(lambda folder: report(), "3:lazy")
        self.assertEqual([finding.schedule for finding in ended.findings], ["3:lazy"])
        self.assertFalse(ended.is_clean)

    def test_an_exception_is_told_with_its_line(self):
        ended = self.run_one(lambda folder: {}["key"])
        self.assertEqual((ended.how, ended.error), ("exit 1", "KeyError: 'key'"))
        self.assertTrue(ended.file.endswith("test_runs.py"))
        self.assertIn("Traceback", ended.output)
        self.assertNotIn("program.py", ended.output)

    def test_the_status_of_sys_exit(self):
        for code, how in (None, "exit 0"), (3, "exit 3"), ("wrong", "exit 1"):
            self.assertEqual(self.run_one(lambda folder, code=code: sys.exit(code)).how, how)

    def test_a_crash_is_told_by_its_signal_and_its_stack(self):
        ended = self.run_one(lambda folder: os.kill(os.getpid(), signal.SIGSEGV))
        self.assertEqual(ended.how, "killed by SIGSEGV")
        self.assertIn("test_runs.py", ended.stack)
        self.assertNotIn("runs.py\", line", ended.stack.replace("test_runs.py", ""))

    def test_a_run_that_hangs_is_stopped_with_what_it_has_started(self):
        def body(folder):
            if os.fork() == 0:
                time.sleep(60)
            time.sleep(60)

        began = time.monotonic()
        ended = self.run_one(body, limit=0.3)
        self.assertEqual(ended.how, "hangs")
        self.assertIn("in body", ended.stack)
        self.assertLess(time.monotonic() - began, 20)

    def test_what_runs_at_exit_runs(self):
        def body(folder):
            import atexit

            atexit.register(print, "at exit")

        self.assertEqual(self.run_one(body).output, "at exit\n")


class Explored(unittest.TestCase):
    def explore(self, body, **options):
        runs = Runs(lambda folder: body(os.environ["PINLANE_REPLAY"]), {})
        self.addCleanup(runs.close)
        return explore(runs, Options(**{"jobs": 2, **options}))

    def test_the_first_run_is_eager_and_the_others_take_turns(self):
        explored = self.explore(lambda schedule: None, runs=4, modes=("lazy", "random"))
        self.assertEqual(explored.problems, [])
        self.assertEqual(explored.schedules[0], "0:eager")
        self.assertEqual(sorted(explored.schedules[1:]), ["1:lazy", "1:random", "2:lazy"])

    def test_a_failure_under_some_schedules_is_a_problem(self):
        def body(schedule):
            assert "lazy" not in schedule, "torn"

        explored = self.explore(body, runs=3, modes=("lazy", "random"))
        (problem,) = explored.problems
        self.assertEqual((problem.kind, problem.schedules), (EXITS_DIFFER, ["1:lazy"]))

    def test_a_first_run_that_fails_is_the_last(self):
        explored = self.explore(lambda schedule: sys.exit(3), runs=5)
        self.assertEqual(explored.schedules, ["0:eager"])
        self.assertIn("first run failed", explored.notes[0])

    def test_fail_fast_stops_at_the_first_finding(self):
        explored = self.explore(lambda schedule: report(), runs=50, fail_fast=True)
        self.assertEqual(explored.schedules, ["0:eager"])
        explored = self.explore(lambda schedule: report(), runs=3)
        self.assertEqual(len(explored.problems[0].schedules), 3)

    def test_a_few_runs_that_hang_are_enough(self):
        def body(schedule):
            if schedule != "0:eager":
                time.sleep(60)

        explored = self.explore(body, runs=50, timeout=0.2, jobs=4)
        self.assertLess(len(explored.schedules), 10)
        self.assertIn("3 runs hang", explored.notes[0])

    def test_a_time_instead_of_a_number(self):
        began = time.monotonic()
        explored = self.explore(lambda schedule: None, runs=10**6, time=0.5)
        self.assertLess(time.monotonic() - began, 20)
        self.assertGreater(len(explored.schedules), 1)


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = folder(self)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run_program(self, program):
        runs = Runs(program.run, {})
        self.addCleanup(runs.close)
        return runs.one("0:eager", 20.0)

    def test_a_script_is_main_with_its_arguments_and_its_folder(self):
        self.file("beside.py", "VALUE = 7")
        script = self.file("script.py", "import sys, beside, __main__\n"
                           "print(__name__, sys.argv[1:], beside.VALUE, __main__.__file__)\n")
        ended = self.run_program(Program([script, "--a", "b"]))
        self.assertEqual(ended.output, f"__main__ ['--a', 'b'] 7 {script}\n")

    def test_an_error_of_a_script_shows_only_its_own_lines(self):
        script = self.file("script.py", "def f():\n    raise ValueError('no')\nf()\n")
        ended = self.run_program(Program([script]))
        self.assertEqual((ended.error, ended.file, ended.line), ("ValueError: no", script, 2))
        self.assertEqual(ended.output.count("File "), 2)

    def test_an_error_within_a_library_is_at_the_programs_line(self):
        script = self.file("script.py", "import json\njson.loads('{')\n")
        ended = self.run_program(Program([script]))
        self.assertEqual((ended.file, ended.line), (script, 2))

    def test_a_module(self):
        self.file("module.py", "import sys; print(__name__, sys.argv[1:])")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        ended = self.run_program(Program(["module", "x"], is_module=True))
        self.assertEqual(ended.output, "__main__ ['x']\n")
        ended = self.run_program(Program(["none_such"], is_module=True))
        self.assertNotEqual(ended.how, "exit 0")

    def test_objects_of_the_script_are_gone_at_the_end(self):
        script = self.file("script.py", "class A:\n    def __del__(self): print('gone')\na = A()\n")
        self.assertEqual(self.run_program(Program([script])).output, "gone\n")


class Imported(unittest.TestCase):
    def test_what_pytorch_has_registered_is_left_at_the_end_of_a_run(self):
        class Thing:
            pass

        library = types.ModuleType("torch.library")
        library._del_library = lambda: None
        of_torch, other = Thing(), Thing()
        ends = [weakref.finalize(of_torch, library._del_library), weakref.finalize(other, print)]
        self.addCleanup(ends[1].detach)
        self.addCleanup(gc.unfreeze)
        with mock.patch.dict(sys.modules, {"torch.library": library}):
            imports._settle()
        self.assertEqual([end.atexit for end in ends], [False, True])
        self.assertTrue(ends[0].alive, "it still runs when its object goes")


if __name__ == "__main__":
    unittest.main()
