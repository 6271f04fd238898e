"""The result as text, JSON and a page."""
import json
import re
import unittest
from html.parser import HTMLParser

from pinlane import html, report
from pinlane.findings import Finding
from pinlane.problems import Problems
from pinlane.report import Result

from .samples import Script, ended, race, use


class Reported(unittest.TestCase):
    def setUp(self):
        self.script = Script(self)
        site = self.script.site
        finding = race(use("CopyH2D", "read", "legacy stream", site(4), "copy_ float32[4]"),
                       use("host write", "write", "host", site(5, "/lib/site-packages/a/b.py")))
        problems = Problems()
        problems.add(ended("0:eager", finding))
        problems.add(ended("1:pct:2", finding))
        problems.add(ended("1:lazy", finding, how="exit 1", error="AssertionError: <0 & 1>"))
        self.result = Result(["train.py", "--name", "a b"], problems.list(),
                             ["0:eager", "1:pct:2", "1:lazy"], 1.25, ["a note"])
        self.text = report.text(self.result)

    def test_both_lines_the_label_and_the_librarys_line(self):
        file = report.source.short(str(self.script.file))
        self.assertIn(f'{file}:4  y = x.to("cuda", non_blocking=True)\n'
                      "     -> uploads it on the default stream: copy_ float32[4]\n", self.text)
        self.assertIn(f"{file}:5  x.zero_()\n     -> the host writes to it\n"
                      "        in a/b.py:7\n", self.text)

    def test_a_thread_without_python_is_told(self):
        site = {**self.script.site(4), "thread": "worker"}
        problems = Problems()
        problems.add(ended("0:eager", race(use("CopyH2D", "read", "legacy stream", site),
                                           use("host write", "write", "host", None))))
        text = report.text(Result(["a.py"], problems.list(), ["0:eager"], 0.1))
        self.assertEqual(text.count("by a thread of a library, while the main thread was in"), 1)

    def test_how_many_runs_and_how_to_repeat_them(self):
        self.assertIn("(Race, 3 of 3 runs)", self.text)
        self.assertIn("replay: pinlane race --replay 0:eager train.py --name 'a b'\n", self.text)
        self.assertIn("(ExitsDiffer, 1 of 3 runs)", self.text)
        self.assertIn("exit 1, AssertionError: <0 & 1>: 1 run, such as 1:lazy", self.text)

    def test_the_summary(self):
        self.assertIn("pinlane: 2 problems found in 3 runs of train.py --name 'a b', 1.2 s\n"
                      "  eager 1, lazy 1, pct:2 1\n  note: a note\n", self.text)
        clean = Result(["a.py"], [], ["0:eager"], 0.1)
        self.assertEqual(report.text(clean),
                         "pinlane: nothing found in 1 run of a.py, 0.1 s\n  eager 1\n")

    def test_lines_fit_a_terminal(self):
        for line in self.text.splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_json_has_what_the_guide_describes(self):
        value = json.loads(json.dumps(report.to_json(self.result)))
        self.assertEqual(value["schema"], report.VERSION)
        self.assertFalse(value["clean"])
        found = value["problems"][0]
        self.assertEqual(found["steps"][1]["site"]["line"], 5)
        self.assertEqual(found["steps"][1]["site"]["callers"][0]["file"],
                         "/lib/site-packages/a/b.py")
        self.assertEqual(found["finding"]["race"]["first"]["operation"], "CopyH2D")
        first, second = ([step[name] for name in ("agent", "stream", "device")]
                         for step in found["steps"])
        self.assertEqual(first, ["legacy stream", "0x0", 0])
        self.assertEqual(second, ["host", None, None])
        self.assertEqual(value["problems"][1]["ends"]["exit 0"], ["0:eager", "1:pct:2"])
        self.assertIsNone(value["problems"][1]["finding"])

    def test_a_finding_without_a_race_has_its_label(self):
        finding = Finding.of({
            "kind": "Capture", "message": "cudaMalloc kills the capture of stream 0x150\n"
            "  called at train.py:4\n  called for empty float32[4]", "replay": "0:eager",
            "race": None, "site": self.script.site(4), "label": "empty float32[4]"})
        problems = Problems()
        problems.add(ended("0:eager", finding))
        result = Result(["a.py"], problems.list(), ["0:eager"], 0.1)
        found = report.to_json(result)["problems"][0]
        self.assertEqual(found["steps"][0]["label"], "empty float32[4]")
        self.assertEqual(found["steps"][0]["site"]["line"], 4)
        self.assertEqual(found["details"], [])
        self.assertIn('<span class="soft">empty float32[4]</span>', html.page(result))
        self.assertIn("-> here: empty float32[4]\n", report.text(result))

    def test_a_program_without_torch_gets_calls_of_cuda(self):
        result = Result(["a.py"], self.result.problems[:1], ["0:eager"], 0.1, has_torch=False)
        text = report.text(result)
        self.assertNotIn("torch", text.split("fix:")[1])
        self.assertIn("fix:  A#1 -> host#1; a synchronize would add it", text)

    def test_the_page_stands_alone(self):
        page = html.page(self.result)
        self.assertIn("x.zero_()", page)
        self.assertIn("AssertionError: &lt;0 &amp; 1&gt;", page)
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertIsNone(re.search(r"(src|href)=|url\(|@import", page))
        opened = []

        class Checked(HTMLParser):
            def handle_starttag(self, tag, attributes):
                if tag not in ("meta",):
                    opened.append(tag)

            def handle_endtag(self, tag):
                assert opened.pop() == tag, tag

        Checked().feed(page)
        self.assertEqual(opened, [])


if __name__ == "__main__":
    unittest.main()
