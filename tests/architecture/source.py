"""The product's own source as syntax trees, for rules that no linter knows."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("jobs", "jobsite", "lanes")


@cache
def modules() -> dict[str, ast.Module]:
    """Path from the root: tree, of everything but generated migrations."""
    paths = (p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py")) if "migrations" not in p.parts)
    # What a test before has left is not collected meanwhile: where its end warns, Python 3.11 parses the line to show
    # it, inside of our own parse, which then calls itself unbalanced (fixed in 3.11.8).
    gc.disable()
    try:
        return {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text()) for p in paths}
    finally:
        gc.enable()


def text(path: str) -> str:
    """The source of a module."""
    return (ROOT / path).read_text()


def walk(*, but: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.AST]]:
    """Every node of every module whose path begins with none of `but`."""
    for path, tree in modules().items():
        if not path.startswith(but):
            for node in ast.walk(tree):
                yield path, node


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, with calls and indexes left out; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            before = dotted(value)
            return f"{before}.{attr}" if before else ""
        case ast.Call(func=value) | ast.Subscript(value=value):
            return dotted(value)
    return ""


def at(path: str, node: ast.AST) -> str:
    """Where a node stands, for people."""
    return f"{path}:{getattr(node, 'lineno', 0)}"
