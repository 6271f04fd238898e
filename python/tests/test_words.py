"""Races in the words of PyTorch: by their kind, with the missing call."""
import dataclasses
import unittest

from pinlane import words
from pinlane.findings import Finding, Frame, Owner

from .samples import Script, problem, race, use


class Words(unittest.TestCase):
    def setUp(self):
        self.script = Script(self)
        self.site = self.script.site

    def told(self, first, second, memory="page-locked memory", kind="Race"):
        return words.tell(problem(race(first, second, memory, kind)))

    def test_the_host_reads_the_destination_of_a_download(self):
        told = self.told(use("CopyD2H", "write", "legacy stream", self.site(9)),
                         use("host read", "read", "host", self.site(10)))
        self.assertIn("the host reads a tensor before its download is done", told.title)
        self.assertEqual(told.fixes[0], "before line 10: `torch.cuda.synchronize()`")
        self.assertIn("or on line 9: `non_blocking=False`", told.fixes)
        self.assertEqual([step.code for step in told.steps],
                         ['host = z.to("cpu", non_blocking=True)', "print(host[0])"])

    def test_an_access_of_the_host_is_of_the_whole_memory_on_every_processor(self):
        for width in 1, 32:
            finding = race(use("CopyD2H", "write", "legacy stream", self.site(9)),
                           use("host read", "read", "host", self.site(10)))
            seen = dataclasses.replace(finding.race, bytes=width)
            told = words.tell(problem(dataclasses.replace(finding, race=seen)))
            self.assertEqual(told.details[0], "memory: 4096 bytes of pinned memory")

    def test_the_host_writes_to_the_source_of_an_upload(self):
        for kind in "Race", "SourceChanged":
            told = self.told(use("CopyH2D", "read", "legacy stream", self.site(4)),
                             use("host write", "write", "host", self.site(5)), kind=kind)
            self.assertIn("overwrites a tensor before its upload is done", told.title)
            self.assertIn("before line 5: `torch.cuda.synchronize()`", told.fixes)
            self.assertIn("or upload a copy of its own: `x.clone().pin_memory()` instead of `x`",
                          told.fixes)

    def test_the_host_writes_to_the_destination_of_a_download(self):
        told = self.told(use("CopyD2H", "write", "legacy stream", self.site(9)),
                         use("host write", "write", "host", self.site(10)))
        self.assertIn("into which a download still writes", told.title)

    def test_a_side_stream_is_called_as_the_program_calls_it(self):
        told = self.told(use("Fill", "write", "legacy stream", self.site(4)),
                         use("kernel aten::mul", "read", "stream A", self.site(7)), "device 0")
        self.assertIn("stream `side` reads what the default stream writes", told.title)
        self.assertEqual(told.fixes,
                         ("before line 7: `side.wait_stream(torch.cuda.current_stream())`",))
        self.assertIn("`mul` reads it on stream `side`", told.steps[1].does)

    def test_the_default_stream_waits_for_the_side_stream(self):
        told = self.told(use("kernel aten::mul", "read", "stream A", self.site(7)),
                         use("kernel aten::add_", "write", "legacy stream", self.site(8)),
                         "device 0")
        self.assertIn("the default stream overwrites what stream `side` still reads", told.title)
        self.assertEqual(told.fixes[0],
                         "before line 8: `torch.cuda.current_stream().wait_stream(side)`")
        self.assertEqual(len(told.fixes), 1)

    def reused(self, made, first="read", second="write", used=None):
        """A race between a use on a side stream, and one of the tensor made on that line."""
        file = str(self.script.file)
        finding = race(use("kernel aten::mul", first, "stream A", used or self.site(7)),
                       use("Fill", second, "legacy stream", self.site(8)), "device 0")
        owners = (Owner(512, Frame(file, 4), Frame(file, 8)), Owner(512, Frame(file, made), None))
        return words.tell(problem(dataclasses.replace(finding, owners=owners)))

    def test_memory_that_the_allocator_has_given_to_another_tensor(self):
        told = self.reused(made=8)
        self.assertIn("is reused while stream `side` still reads it", told.title)
        self.assertIn("line 4 is freed at line 8", told.why)
        self.assertEqual("after line 7: `y.record_stream(side)`", told.fixes[0])

    def test_a_read_of_what_another_stream_writes_is_no_reuse(self):
        told = self.reused(made=8, first="write", second="read")
        self.assertIn("reads what stream `side` writes", told.title)

    def test_memory_that_may_be_another_tensors(self):
        told = self.reused(made=3)
        self.assertIn("wait_stream(side)", told.fixes[0])
        self.assertTrue(any("record_stream(side)" in fix for fix in told.fixes))

    def test_streams_without_names(self):
        told = self.told(use("CopyD2D", "write", "stream A", None),
                         use("CopyD2D", "write", "stream B of device 1", None), "device 1")
        self.assertIn("stream A and stream B of cuda:1 write to the same memory", told.title)
        self.assertIn("make stream B of cuda:1 wait for stream A", told.fixes[0])

    def test_memory_that_is_freed_in_stream_order_needs_record_stream(self):
        told = self.told(use("kernel aten::mul", "read", "stream A", self.site(7)),
                         use("FreeAsync", "free", "legacy stream", self.site(8)), "device 0")
        self.assertEqual(told.fixes[0], "after line 7: `x.record_stream(side)`, where `x` is the "
                                        "tensor that is freed")
        told = self.told(use("kernel aten::mul", "read", "stream A", self.site(7)),
                         use("FreeAsync", "free", "legacy stream", self.site(11)), "device 0")
        self.assertEqual(told.fixes[0], "after line 7: `y.record_stream(side)`")

    def test_what_a_replay_uses_needs_a_wait_and_no_record_stream(self):
        replay = self.site(7)
        replay["callers"].insert(0, {"file": "/venv/torch/cuda/graphs.py", "line": 7,
                                     "function": "replay"})
        freed = self.told(use("kernel aten::mul", "read", "stream A", replay),
                          use("FreeAsync", "free", "legacy stream", self.site(8)), "device 0")
        for told, wait in (
            (self.reused(8, used=replay),
             "before line 8: `torch.cuda.current_stream().wait_stream(side)`"),
            (self.reused(3, used=replay),
             "before line 8: `torch.cuda.current_stream().wait_stream(side)`"),
            (freed, "before it is freed: `torch.cuda.current_stream().wait_stream(side)`"),
        ):
            self.assertEqual(told.fixes, (wait, words.KEEP_FOR_REPLAYS))

    def test_what_a_replay_copies_is_waited_for_after_the_replay(self):
        replay = self.site(7)
        replay["callers"].insert(0, {"file": "/venv/torch/cuda/graphs.py", "line": 7,
                                     "function": "replay"})
        event = ("or record an event after the replay (`event = torch.cuda.Event(); "
                 "event.record()`), and before line 5 `event.synchronize()`")
        for copy, access, host in (("CopyH2D", "read", "write"), ("CopyD2H", "write", "read"),
                                   ("CopyD2H", "write", "write")):
            told = self.told(use(copy, access, "legacy stream", replay),
                             use(f"host {host}", host, "host", self.site(5)))
            self.assertTrue(told.why.startswith("`graph.replay()` returns before"), told)
            self.assertEqual(told.fixes[1:], (event,), "a graph cannot copy another tensor")
            self.assertIsNone(told.steps[0].site.library)

    def test_pinned_memory_that_is_freed_in_flight(self):
        told = self.told(use("CopyH2D", "read", "legacy stream", self.site(4)),
                         use("HostFree", "free", "host", self.site(5)), kind="FreedInFlight")
        self.assertIn("freed or unpinned", told.title)
        self.assertIn("before line 5", told.fixes[0])

    def test_a_label_and_the_librarys_line_stand_beside_the_programs(self):
        label = "copy_ float32[4] cpu -> cuda:0"
        library = "/usr/lib/python3/site-packages/lib/loader.py"
        told = self.told(use("CopyH2D", "read", "legacy stream", self.site(4, library), label),
                         use("host write", "write", "host", self.site(5)))
        self.assertEqual(told.steps[0].label, label)
        self.assertEqual(told.steps[0].site.library.file, library)
        self.assertIsNone(told.steps[1].site.library)

    def test_what_is_no_race(self):
        finding = Finding.of({"kind": "CallAfterFork", "message": "a child calls CUDA",
                              "site": self.site(4)})
        told = words.tell(problem(finding))
        self.assertIn("forked process", told.title)
        self.assertIn("spawn", told.why)
        self.assertIn("gc.collect()", told.why)
        self.assertEqual(told.steps[0].site.line, 4)
        unknown = Finding.of({"kind": "New", "message": "something\n  called at a.py:1\n  more"})
        told = words.tell(problem(unknown))
        self.assertEqual((told.title, told.details), ("something", ("more",)))


if __name__ == "__main__":
    unittest.main()
