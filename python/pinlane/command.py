"""The command line of `pinlane`."""
from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from . import __version__, dropin, installed, schedules, tool
from .errors import Unavailable
from .explore import Options, cores
from .program import Program
from .process import Request, race

MISUSE = 2

ABOUT = """\
Runs a program of PyTorch on an emulated CUDA device, many times under different schedules, and
reports its races: in its own lines, and with what to write instead. No GPU is needed.

  pinlane race train.py --epochs 1
  pinlane race --runs 200 -m my_package.train
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="pinlane", description="Finds races of CUDA programs.")
    top.add_argument("--version", action="version", version=f"pinlane {__version__}")
    top.epilog = f"Other commands ({', '.join(tool.COMMANDS)}) are those of pinlane's tool in Rust."
    commands = top.add_subparsers(dest="command", required=True, metavar="race|env")
    env = commands.add_parser("env", help="prints variables that give a program the runtime",
                              description="Prints variables: env $(pinlane env) jupyter lab")
    env.add_argument("--cuda", choices=installed.SUPPORTED, help=argparse.SUPPRESS)
    add = commands.add_parser(
        "race", help="runs a program under many schedules and reports its races",
        description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="pinlane race [OPTIONS] script.py|-m module ...",
    )
    add.add_argument("--runs", type=_count, default=None, metavar="N",
                     help="how many runs, the eager one included (50)")
    add.add_argument("--time", type=_seconds, metavar="SECONDS",
                     help="as many runs as the time allows, instead of --runs")
    add.add_argument("--mode", type=_modes, default=schedules.MODES, metavar="LIST",
                     help=f"modes of the runs after the first ({','.join(schedules.MODES)})")
    add.add_argument("--devices", type=_count, metavar="N", help="how many devices there are (1)")
    add.add_argument("--jobs", type=_count, default=cores(), metavar="N",
                     help="how many runs at the same time (%(default)s, the cores)")
    add.add_argument("--timeout", type=_seconds, metavar="SECONDS",
                     help="how long one run may take (600 for the first, then 20 times as long as "
                     "that took)")
    add.add_argument("--fail-fast", action="store_true", help="stops at the first problem")
    add.add_argument("--strict", action="store_true",
                     help="copies of memory that is not pinned may use it late, as CUDA allows")
    add.add_argument("--operators", choices=["auto", "off"], default="auto",
                     help="off: PyTorch's operators compute nothing; for programs that only copy")
    add.add_argument("--no-torch", action="store_true",
                     help="the program does not use PyTorch, but CUDA's runtime, as by ctypes")
    add.add_argument("--cuda", choices=installed.SUPPORTED,
                     help="the version of the CUDA runtime (that of PyTorch; 13 without it)")
    add.add_argument("--import", dest="imports", type=_names, default=(), metavar="LIST",
                     help="modules to import once, before the first run")
    add.add_argument("--replay", type=_schedule, metavar="SCHEDULE",
                     help="makes only this run, and shows its output")
    add.add_argument("--json", metavar="FILE", help="writes the result as JSON; - for stdout")
    add.add_argument("--html", metavar="FILE", help="writes the result as a page")
    add.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    add.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return top


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError("more than 0")
    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _modes(text: str) -> tuple[str, ...]:
    try:
        return schedules.modes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _schedule(text: str) -> str:
    if not re.match(r"\d+:.", text):
        raise argparse.ArgumentTypeError("a schedule is a seed and a mode or decisions: 3:lazy")
    return text


def request(arguments: argparse.Namespace) -> Request:
    """What the command line asks for; raises what says why it cannot be done."""
    listed = arguments.module or arguments.program
    if listed and listed[0] == "--":
        listed = listed[1:]
    if not listed:
        raise Unavailable("no program is named: pinlane race [OPTIONS] script.py ARGUMENTS")
    program = Program(listed, is_module=arguments.module is not None)
    if not program.is_module and not Path(program.name).exists():
        raise Unavailable(f"there is no file {program.name}")
    if arguments.time and arguments.runs:
        raise Unavailable("--runs and --time exclude each other")
    options = Options(
        runs=arguments.runs or 50, time=arguments.time, modes=arguments.mode, jobs=arguments.jobs,
        timeout=arguments.timeout, fail_fast=arguments.fail_fast,
    )
    given = []
    if arguments.devices:
        given += ["--devices", str(arguments.devices)]
    for name in ("strict", "no_torch"):
        if getattr(arguments, name):
            given.append("--" + name.replace("_", "-"))
    if arguments.operators == "off":
        given.append("--operators=off")
    if arguments.cuda:
        given += ["--cuda", arguments.cuda]
    return Request(
        program, options, replay=arguments.replay, strict=arguments.strict,
        operators=arguments.operators == "auto", torch=_uses_torch(arguments, program),
        imports=arguments.imports, json=arguments.json, html=arguments.html, given=given,
    )


def _uses_torch(arguments: argparse.Namespace, program: Program) -> bool:
    """Whether to import torch. Without it, a program that does not import it still runs."""
    if arguments.no_torch:
        return False
    if installed.find() is not None:
        return True
    script = Path(program.name)
    if program.is_module or not script.is_file() or installed.imports_torch(script):
        installed.required()
    return False


def main(argv: list[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    try:
        if given[:1] and given[0] in tool.COMMANDS:
            tool.run(given)
        arguments = parser().parse_args(argv)
        installed.check_python()
        if arguments.command == "env":
            return _print_environment(arguments.cuda)
        asked = request(arguments)
        if not dropin.is_entered():
            _enter(arguments, asked, given)
        return race(asked)
    except Unavailable as error:
        print(f"pinlane: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return 130


def entered() -> NoReturn:
    """The command in the process with the drop-in runtime.

    It ends at once: the parent of the runs has nothing to finish, and PyTorch's destructors, which
    take half a second, print remarks on what its libraries leave.
    """
    try:
        status = main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else MISUSE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _print_environment(cuda: str | None) -> int:
    without = "If the program does not use PyTorch, add --cuda 13."
    major = cuda or (installed.required(without).major if installed.find() else "13")
    for name, value in dropin.preloaded(major, {}).items():
        print(f"{name}={value}")
    return 0


def _enter(arguments: argparse.Namespace, asked: Request, argv: list[str]) -> None:
    """Starts the command again, with the drop-in runtime."""
    if dropin.FORMER in os.environ:
        raise Unavailable(
            "the drop-in CUDA runtime could not be preloaded: the dynamic linker's message above "
            "says why (an old glibc, a statically linked Python, or one that ignores LD_PRELOAD)."
        )
    major = arguments.cuda or (installed.required().major if asked.torch else "13")
    more = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if arguments.devices:
        more["PINLANE_CUDART_DEVICES"] = str(arguments.devices)
    # Not `-m`: it would put the current folder ahead of all libraries.
    parent = str(Path(__file__).resolve().parent.parent)
    code = (
        f"import sys; sys.flags.safe_path or sys.path.pop(0); "
        if hasattr(sys.flags, "safe_path") else "import sys; sys.path.pop(0); "
    ) + (
        f"{parent!r} in sys.path or sys.path.append({parent!r}); "
        "from pinlane.command import entered; entered()"
    )
    dropin.enter(major, ["-c", code, *argv], more)
