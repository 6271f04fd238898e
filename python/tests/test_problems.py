"""Findings of many runs, each problem once; the smallest schedule."""
import unittest

from pinlane import schedules, shrink
from pinlane.findings import Finding, read
from pinlane.problems import EXITS_DIFFER, FAILS, HANGS, Problems

from .samples import Script, ended, race, use


class Grouped(unittest.TestCase):
    def setUp(self):
        self.script = Script(self)

    def upload(self, line=5, replay="0:eager"):
        site = self.script.site
        return race(use("CopyH2D", "read", "legacy stream", site(4)),
                    use("host write", "write", "host", site(line)), replay=replay)

    def test_one_pair_of_lines_is_one_problem_whatever_the_schedule(self):
        problems = Problems()
        problems.add(ended("0:eager", self.upload(), self.upload()))
        problems.add(ended("1:lazy", self.upload(replay="1:lazy"), self.upload(line=8)))
        found = problems.list()
        self.assertEqual([problem.schedules for problem in found],
                         [["0:eager", "1:lazy"], ["1:lazy"]])
        self.assertEqual([problem.smallest for problem in found], ["0:eager", "1:lazy"])

    def test_findings_without_lines_are_told_apart_by_what_they_do(self):
        def fill(label, stream):
            return race(use("Fill", "write", f"{stream} of device 1", None, label),
                        use("CopyD2H", "read", "stream B", None), "device 0")

        problems = Problems()
        for label in "zero_", "zero_", "one_":
            finding = fill(label, "stream A")
            problems.add(ended("0:eager", finding))
        self.assertEqual(len(problems.list()), 2)

    def test_a_message_without_a_line_counts_once_whatever_its_addresses(self):
        def bad(address):
            return Finding.of({"kind": "BadFree", "message": f"0x{address:x} of 3 bytes"})

        problems = Problems()
        problems.add(ended("0:eager", bad(0x7F00), bad(0x7F10)))
        self.assertEqual(len(problems.list()), 1)

    def test_a_schedule_that_fails_beside_one_that_does_not_is_a_problem_of_its_own(self):
        problems = Problems()
        problems.add(ended("0:eager"))
        problems.add(ended("1:lazy", how="exit 1", error="AssertionError: at 0x7f12"))
        problems.add(ended("2:lazy", how="exit 1", error="AssertionError: at 0x7f13"))
        (found,) = problems.list()
        self.assertEqual(found.kind, EXITS_DIFFER)
        self.assertEqual(found.schedules, ["1:lazy", "2:lazy"])
        self.assertEqual(list(map(len, found.ends.values())), [1, 2])

    def test_a_program_that_fails_always_does_not_differ(self):
        for how, kind in ("exit 1", FAILS), ("killed by SIGSEGV", FAILS), ("hangs", HANGS):
            problems = Problems()
            problems.add(ended("0:eager", how=how))
            self.assertEqual([problem.kind for problem in problems.list()], [kind])

    def test_clean_runs_have_no_problem(self):
        problems = Problems()
        problems.add(ended("0:eager"))
        self.assertEqual(problems.list(), [])
        self.assertFalse(problems.is_found())

    def test_a_source_that_changed_by_a_reported_race_is_no_problem_of_its_own(self):
        changed = {"kind": "SourceChanged", "message": "the source of CopyH2D was written to"}
        problems = Problems()
        problems.add(ended("0:eager", self.upload()))
        problems.add(ended("1:lazy", self.upload(), Finding.of(changed)))
        (found,) = problems.list()
        self.assertEqual(found.early_bytes, ["1:lazy"])
        elsewhere = Finding.of({**changed, "site": self.script.site(8)})
        problems.add(ended("2:lazy", elsewhere))
        self.assertEqual([problem.kind for problem in problems.list()], ["Race", "SourceChanged"])

    def test_a_report_that_was_cut_gives_what_is_whole(self):
        file = self.script.file
        file.write_text('{"kind":"BadFree","message":"x","replay":"1:lazy"}\n{"kind":"Ra')
        self.assertEqual([finding.schedule for finding in read(file)], ["1:lazy"])
        self.assertEqual(read(file.parent / "none"), [])


class Schedules(unittest.TestCase):
    def test_modes_take_turns_and_seeds_grow(self):
        others = schedules.others(("lazy", "pct:2"))
        self.assertEqual([next(others) for _ in range(4)],
                         ["1:lazy", "1:pct:2", "2:lazy", "2:pct:2"])

    def test_a_mode_that_is_none_is_named(self):
        self.assertEqual(schedules.modes("lazy, pct:7"), ("lazy", "pct:7"))
        for wrong in "slow", "pct", "pct:0", "":
            with self.assertRaises(ValueError):
                schedules.modes(wrong)

    def test_the_mode_of_a_schedule(self):
        self.assertEqual([schedules.mode(text) for text in ("0:eager", "3:pct:2", "1:A#1,B#2")],
                         ["eager", "pct:2", "decisions"])


class Smallest(unittest.TestCase):
    def smallest(self, record, needed):
        """The smallest schedule of a problem that needs these decisions."""
        tried = []

        def fails(schedule):
            tried.append(schedule)
            return needed <= set(schedule.partition(":")[2].split(","))

        return shrink.smallest(record, fails), tried

    def test_decisions_that_are_not_needed_go(self):
        every = [f"A#{n}" for n in range(1, 17)]
        small, tried = self.smallest(f"7:{','.join(every)}", {"A#3", "A#12"})
        self.assertEqual(small, "7:A#3,A#12")
        self.assertLess(len(tried), 60)

    def test_an_eager_run_is_the_smallest(self):
        self.assertEqual(self.smallest("7:A#1,A#2", set())[0], "7:eager")

    def test_a_delay_becomes_a_hold_where_that_fails_too(self):
        self.assertEqual(self.smallest("7:A#1+3,A#2", {"A#1"})[0], "7:A#1")
        self.assertEqual(self.smallest("7:A#1+3,A#2", {"A#1+3"})[0], "7:A#1+3")


if __name__ == "__main__":
    unittest.main()
