"""The model of random programs, and some programs. scripts/soak python runs many."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

from pinlane import dropin

from .random_programs.order import (
    HOST, Allocate, Free, Order, Race, Record, RecordStream, Synchronize, SynchronizeEvent, Uses,
    Wait, WaitStream,
)
from .random_programs.program import Program, Step
from .test_guide import missing

PYTHON = Path(__file__).resolve().parent.parent
ROW, OTHER_ROW = 0b11, 0b1100
WRITE = Uses(1, (), (("x", ROW),))


def races(*effects, generous=False, **addresses):
    order = Order(generous, addresses)
    order.apply(Allocate("x", 1, 4))
    for order.step, effect in enumerate(effects):
        order.apply(effect)
    return [(race.first, race.second) for race in order.races]


class Model(unittest.TestCase):
    def test_two_streams_race_for_the_same_bytes_if_one_writes(self):
        self.assertEqual(races(WRITE, Uses(2, (("x", ROW),))), [(0, 1)])
        self.assertEqual(races(Uses(2, (("x", ROW),)), WRITE), [(0, 1)])
        self.assertEqual(races(WRITE, Uses(2, (("x", OTHER_ROW),))), [])
        self.assertEqual(races(Uses(1, (("x", ROW),)), Uses(2, (("x", ROW),))), [])
        self.assertEqual(races(WRITE, Uses(1, (("x", ROW),))), [])

    def test_waits_order_what_was_given_before_them(self):
        read = Uses(2, (("x", ROW),))
        for wait in (WaitStream(2, 1), Synchronize(1), Synchronize()):
            self.assertEqual(races(WRITE, wait, read), [], wait)
            self.assertEqual(races(wait, WRITE, read), [(1, 2)], wait)
        for wait in (Wait(2, "e"), SynchronizeEvent("e")):
            self.assertEqual(races(WRITE, Record("e", 1), wait, read), [], wait)
            self.assertEqual(races(Record("e", 1), WRITE, wait, read), [(1, 3)], wait)
            self.assertEqual(races(WRITE, wait, Record("e", 1), read), [(0, 3)], wait)

    def test_the_host_must_wait_and_calls_come_after_what_it_did(self):
        host = Uses(HOST, (("x", ROW),))
        self.assertEqual(races(WRITE, host), [(0, 1)])
        self.assertEqual(races(WRITE, WaitStream(2, 1), host), [(0, 2)])
        self.assertEqual(races(WRITE, Synchronize(1), host), [])
        self.assertEqual(races(host, WRITE), [])

    def test_a_wait_that_is_not_certain_is_one_of_the_generous_model(self):
        maybe = Synchronize(1, certain=False)
        for generous, found in ((False, [(0, 2)]), (True, [])):
            self.assertEqual(races(WRITE, maybe, Uses(2, (("x", ROW),)), generous=generous), found)

    def test_memory_that_is_used_again_was_waited_for_if_its_streams_are_recorded(self):
        used, again = Uses(2, (("x", ROW),)), Uses(1, (), (("y", ROW),))
        steps = (used, Free("x"), Allocate("y", 1, 4), again)
        self.assertEqual(races(*steps), [], "without addresses nothing is used again")
        self.assertEqual(races(*steps, x=512, y=512), [(0, 3)])
        self.assertEqual(races(*steps, x=512, y=520), [], "y begins behind what was used")
        self.assertEqual(races(*steps, x=520, y=512), [], "y ends before it")
        self.assertEqual(races(RecordStream("x", 2), *steps, x=512, y=512), [])

    def test_a_program_without_a_wait_is_judged(self):
        steps = (Step("", (Allocate("x", 1, 4),)), Step("", (WRITE,)),
                 Step("", (WaitStream(2, 1),), wait="wait_stream"),
                 Step("", (Uses(2, (("x", ROW),)),)))
        program = Program("right", steps)
        self.assertEqual((program.waits(), program.order(False).races), ([2], []))
        self.assertEqual(program.without(2, "wrong").order(True).races, [Race(1, 2)])


@unittest.skipIf(missing(), f"needs PyTorch for CUDA, and the runtime: {missing()}")
class Programs(unittest.TestCase):
    def test_right_programs_have_no_findings_and_those_without_a_wait_have(self):
        env = dict(os.environ, PYTHONPATH=str(PYTHON), PINLANE_CUDART=str(dropin.folder()))
        command = [sys.executable, "-m", "tests.random_programs", "60", "--together", "10",
                   "--wrong", "2"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("60 right\n", done.stdout)
        self.assertIn("wrong without a wait: wait_stream\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
