"""The result as one page: no other files, readable in the dark and in the light, on paper, too."""
from __future__ import annotations

import html
import re
import shlex

from . import report, schedules, words
from .problems import Problem
from .report import Result

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d1f21; --soft: #5c6166; --rule: #d9dce0;
  --box: #f5f6f8; --good: #1a7f37; --bad: #b42318; --accent: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --ink: #e4e6e8; --soft: #9aa0a6;
  --rule: #33373c; --box: #1e2125; --good: #56d364; --bad: #ff7b72; --accent: #79b8ff; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1, h1 code { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 0 0 .3rem; }
article { border-top: 1px solid var(--rule); padding: 1.2rem 0; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--box); padding: .6rem .8rem; overflow-x: auto; margin: .4rem 0; }
.place { color: var(--accent); } .soft { color: var(--soft); } .good { color: var(--good); }
.bad { color: var(--bad); } ul { margin: .2rem 0 .6rem; padding-left: 1.4rem; }
table { border-collapse: collapse; } td, th { padding: .1rem 1rem .1rem 0; text-align: left; }
"""


def page(result: Result) -> str:
    """The page."""
    name = html.escape(shlex.join(result.command))
    problems = "".join(
        _problem(result, number, problem) for number, problem in enumerate(result.problems, 1)
    )
    color = "good" if result.is_clean else "bad"
    count = len(result.problems)
    outcome = "Nothing found" if not count else f"{count} problem{'s' if count > 1 else ''} found"
    notes = "".join(f"<li>{_text(note)}</li>" for note in result.notes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>pinlane: {name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><h1><code>{name}</code></h1>"
        f'<p class="{color}"><strong>{outcome}</strong> in {len(result.schedules)} runs, '
        f"{result.seconds:.1f} s.</p>{_modes(result)}{f'<ul>{notes}</ul>' if notes else ''}"
        f"{problems}</html>\n"
    )


def _modes(result: Result) -> str:
    counts = schedules.count(result.schedules)
    names = "".join(f"<th>{html.escape(mode)}</th>" for mode, _ in counts)
    cells = "".join(f"<td>{count}</td>" for _, count in counts)
    return f"<table><tr><th>schedules</th>{names}</tr><tr><td>runs</td>{cells}</tr></table>"


def _problem(result: Result, number: int, problem: Problem) -> str:
    told = words.tell(problem, result.has_torch)
    parts = [
        f"<article><h2>{number}. {_text(told.title)}</h2>",
        f'<p class="soft">{html.escape(problem.kind)}, {len(problem.schedules)} of '
        f"{len(result.schedules)} runs</p>",
    ]
    for step in told.steps:
        parts.append(_step(step))
    if told.why:
        parts.append(f"<p>{_text(told.why)}</p>")
    if told.fixes:
        fixes = "".join(f"<li>{_text(fix)}</li>" for fix in told.fixes)
        parts.append(f"<p>What to write:</p><ul>{fixes}</ul>")
    if told.details:
        parts.append(f"<pre>{html.escape(chr(10).join(told.details))}</pre>")
    if problem.decisions:
        decisions = html.escape("\n".join(problem.decisions))
        parts.append(f"<p>The smallest schedule:</p><pre>{decisions}</pre>")
    replay = html.escape(result.replay(problem.smallest))
    parts.append(f'<p class="soft">Replay: <code>{replay}</code></p></article>')
    return "".join(parts)


def _step(step: words.Step) -> str:
    lines = []
    if step.site:
        place = html.escape(report.place(step.site))
        lines.append(f'<span class="place">{place}</span>  {html.escape(step.code)}')
    lines.append(f"  → {html.escape(step.does)}")
    if step.label:
        lines.append(f'  <span class="soft">{html.escape(step.label)}</span>')
    library = step.site.library if step.site else None
    if library:
        lines.append(f'  <span class="soft">in {html.escape(report.place(library))}</span>')
    if step.site and step.site.in_worker:
        lines.append("  by a thread of a library, while the main thread was in this line")
    return f"<pre>{chr(10).join(lines)}</pre>"


def _text(text: str) -> str:
    """Text with `code` between backquotes."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))
