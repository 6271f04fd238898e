"""The text of the program's lines, and what is around them."""
from __future__ import annotations

import ast
import functools
import os
from dataclasses import dataclass


@functools.lru_cache(maxsize=256)
def _lines(file: str) -> tuple[str, ...]:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return tuple(opened.read().splitlines())
    except OSError:
        return ()


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("\n".join(_lines(file)))
    except (SyntaxError, ValueError):
        return None


def text(file: str, line: int) -> str:
    """The line without its indentation; empty if the file cannot be read."""
    lines = _lines(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def is_library(file: str) -> bool:
    """Whether a file is not the program's own: of an installed package or of Python."""
    parts = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen")
    return any(part in file for part in parts)


def short(file: str) -> str:
    """The file as a user would name it: from the current folder, or from its library."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in file:
            return file.split(mark, 1)[1]
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return file if relative.startswith("../..") else relative


@dataclass(frozen=True)
class Block:
    """A `with torch.cuda.stream(...)` around a line."""

    stream: str
    """The stream, as the program writes it."""
    line: int
    """The line of the `with`."""


def stream_block(file: str, line: int) -> Block | None:
    """The innermost `with torch.cuda.stream(s)` around a line of a function."""
    tree, found = _tree(file), None
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, (ast.With, ast.AsyncWith)):
            continue
        if not node.body or not node.body[0].lineno <= line <= (node.end_lineno or line):
            continue
        if found is not None and node.lineno <= found.line:
            continue
        for item in node.items:
            call = item.context_expr
            if _is_stream(call):
                assert isinstance(call, ast.Call)
                found = Block(ast.unparse(call.args[0]), node.lineno)
    return found


def _is_stream(node: ast.expr) -> bool:
    """`torch.cuda.stream(s)`, `cuda.stream(s)`, `stream(s)`."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return False
    name = ast.unparse(node.func)
    return name == "stream" or name.endswith(("cuda.stream", "StreamContext"))


def statement(file: str, line: int) -> ast.stmt | None:
    """The innermost statement on a line."""
    tree, found = _tree(file), None
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if found is None or node.lineno >= found.lineno:
                found = node
    return found


def target(file: str, line: int) -> str | None:
    """The name that a line gives to the tensor that it makes: `x` of `x = torch.ones(3)`."""
    node = statement(file, line)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _makes_tensor(node.value):
        return None if isinstance(node.targets[0], ast.Tuple) else _short(node.targets[0])
    return None


def deleted(file: str, line: int) -> str | None:
    """The only name that the statement on a line deletes."""
    node = statement(file, line)
    return _short(node.targets[0]) if isinstance(node, ast.Delete) and (
        len(node.targets) == 1) else None


def _makes_tensor(node: ast.expr) -> bool:
    """Whether an expression's own value is a new tensor, not that of a part of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("to", "cuda", "clone") or (
            ast.unparse(node.func).startswith("torch."))
    return isinstance(node, ast.BinOp)


def copied(file: str, line: int) -> str | None:
    """What the statement on a line copies: `x` of `x.to(...)`, `x.cuda()` and `y.copy_(x)`."""
    node = statement(file, line)
    for part in ast.walk(node) if node else ():
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            name = part.func.attr
            if name == "copy_" and part.args:
                return _short(part.args[0])
            if name in ("to", "cuda", "cpu"):
                return _short(part.func.value)
    return None


def _short(node: ast.expr) -> str | None:
    text = ast.unparse(node)
    return text if len(text) < 40 else None


def is_asynchronous(file: str, line: int) -> bool:
    """Whether the statement on a line asks for `non_blocking=True`."""
    node = statement(file, line)
    for part in ast.walk(node) if node else ():
        if isinstance(part, ast.keyword) and part.arg in ("non_blocking", "async_"):
            return not (isinstance(part.value, ast.Constant) and part.value.value is False)
    return False
