"""The model of random programs, and some programs. scripts/soak python runs many."""
import os
import random
import re
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
class Making(unittest.TestCase):
    """What the maker of programs knows of PyTorch."""

    def maker(self, seed=1):
        from .random_programs.make import _Maker
        return _Maker(random.Random(seed))

    def effects(self, maker, kind):
        found = [effect for step in maker.steps for effect in step.effects]
        return [effect for effect in found if isinstance(effect, kind)]

    def test_the_allocator_knows_of_copies_only_that_the_host_does_not_wait_for(self):
        for seed in range(40):
            maker = self.maker(seed)
            maker.upload()
            later = sum("non_blocking" in step.text for step in maker.steps)
            self.assertEqual(len(self.effects(maker, RecordStream)), later, maker.steps)

    def test_a_copy_in_page_locked_memory_has_the_strides_of_its_source(self):
        import torch
        from .random_programs.tensors import Tensor
        maker = self.maker()
        maker.threads = False
        maker.tensors.append(Tensor("p", HOST))
        maker.twins["p"] = torch.ones(2, 3).t()
        maker.order.apply(Allocate("p", HOST, 6))
        self.assertFalse(maker.twins["p"].is_contiguous())
        maker.pin()
        source = maker.steps[-1].text.partition(" = ")[2].removesuffix(".pin_memory()")
        made = maker.twins[maker.tensors[-1].name]
        self.assertEqual(made.stride(), eval(source, maker.twins).stride())

    def test_a_line_may_read_before_the_allocator_asks_events_for_its_result(self):
        from .random_programs.tensors import Tensor
        maker = self.maker()
        reads = (("x", ROW),)
        maker.order.apply(Allocate("x", 0, 4))
        maker.allocate(Tensor("y", 0), "torch.ones(2)", Uses(0, reads))
        early, memory, uses = maker.steps[-1].effects
        self.assertEqual((early, memory), (Uses(0, reads, certain=False), Allocate("y", 0, 2)))
        # The memory of y was that of z, of which stream 1 is done: it has read z, and written x.
        before = (Allocate("z", 0, 2), WRITE, RecordStream("z", 1), Free("z"))
        for effects, found in (((memory, uses), 0), ((early, memory, uses), 1)):
            self.assertEqual(len(races(*before, *effects, z=512, y=512)), found)

    def test_a_loop_over_batches_may_wait_for_the_streams_of_earlier_loops(self):
        maker = self.maker()
        for maker.stream in 1, 0:
            maker.load()
        waits = self.effects(maker, Synchronize)
        self.assertEqual([wait.stream for wait in waits], [1, 0, 1])
        self.assertFalse(any(wait.certain for wait in waits))

    def test_a_download_is_waited_for_if_it_blocks_or_its_memory_is_pageable(self):
        for seed in range(100):
            maker = self.maker(seed)
            maker.download()
            copy = maker.steps[-1]
            is_pinned = bool(re.search(r"\bh\d.*non_blocking", copy.text))
            waits = [effect.certain for effect in copy.effects if isinstance(effect, Synchronize)]
            self.assertEqual(waits, [] if is_pinned else [True], copy)

    def test_a_download_of_nothing_waits_for_nothing(self):
        import torch
        from .random_programs.tensors import Tensor, View
        maker, tensor = self.maker(), Tensor("x", 1)
        waits = [maker.waited(View(tensor, "x", torch.ones(rows))).certain for rows in (0, 2)]
        self.assertEqual(waits, [False, True])


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
