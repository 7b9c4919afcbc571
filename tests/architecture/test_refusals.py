"""Every refusal stands in the table of its package's README.md, and nothing else does (issue "bad input").

What lanes refuse in the words of jobs stands in the table of jobs alone.

A code is what a class of refusals carries, what a refusal is raised with, or what is handed to a parameter `code` of
the edges and of the readers of words and JSON. Reason codes of failures are none: they are words of outcomes (`Failed`,
`Interrupted`, ...) and of the store's moves, and stand beside attempts and jobs.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from jobs.api import errors as api
from jobs.errors import Conflict, Invalid, JobsError, NotFound, Refused, RevisionMismatch
from tests.architecture.source import ROOT, dotted, modules

ROOTS: dict[str, type[JobsError]] = {kind.__name__: kind for kind in (
    JobsError, NotFound, Conflict, Refused, Invalid, RevisionMismatch)}
READERS = ("jobs/api/", "jobs/codecs.py", "jobs/schemas.py", "jobs/services/words.py", "jobs/definition.py",
           "jobs/money.py", "lanes/api/", "lanes/words.py")
PACKAGES = ("jobs", "lanes")
NEVER = "\N{EN DASH}"
Codes = dict[str, set[str]]


def _nodes(*packages: str) -> Iterator[tuple[str, ast.AST]]:
    for path, tree in modules().items():
        if path.startswith(tuple(f"{package}/" for package in packages)):
            for node in ast.walk(tree):
                yield path, node


@cache
def kinds() -> dict[str, str]:
    """Every class of refusals by its name, and which of the five roots it is of."""
    found = {name: name for name in ROOTS}
    classes = [node for _, node in _nodes(*PACKAGES) if isinstance(node, ast.ClassDef)]
    for _ in range(4):
        for node in classes:
            for base in node.bases:
                name = dotted(base).rpartition(".")[2]
                if name in found:
                    found.setdefault(node.name, found[name])
    return found


def _said(node: ast.AST | None) -> str | None:
    """A code as it is written: a constant, or an f-string with its blanks."""
    match node:
        case ast.Constant(value=str(code)) if re.fullmatch(r"[a-z][a-z0-9_]*", code):
            return code
        case ast.JoinedStr(values=parts):
            return "".join(p.value if isinstance(p, ast.Constant) else "<field>" for p in parts)
    return None


@cache
def parameters() -> dict[str, int]:
    """Where functions of the readers take their `code`, by name."""
    found = {}
    for path, node in _nodes(*PACKAGES):
        if path.startswith(READERS) and isinstance(node, ast.FunctionDef):
            names = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
            if "code" in names:
                found[node.name] = names.index("code")
    return found


def of_class(node: ast.ClassDef) -> str | None:
    """The code that a class carries."""
    for line in node.body:
        names = getattr(line, "targets", [getattr(line, "target", None)])
        if any(isinstance(name, ast.Name) and name.id == "code" for name in names):
            return _said(getattr(line, "value", None))
    return None


def of_call(path: str, node: ast.Call) -> tuple[str, str] | None:
    """The code that a call hands on, and the root of the refusal that it makes, if it makes one."""
    name = dotted(node.func).rpartition(".")[2]
    root = kinds().get(name, "")
    keyword = next((_said(k.value) for k in node.keywords if k.arg == "code"), None)
    if keyword and (root or (path.startswith(READERS) and name in parameters())):
        return keyword, root
    if name in parameters() and len(node.args) > parameters()[name] and path.startswith(("jobs/api/", *READERS)):
        said = _said(node.args[parameters()[name]])
        return (said, "Invalid" if name == "refusal" else "") if said else None
    return None


@cache
def codes(package: str = "jobs") -> Codes:
    """Every code of a package, and the roots of the refusals that carry it."""
    found: Codes = defaultdict(set)
    for path, node in _nodes(package):
        if isinstance(node, ast.ClassDef) and (code := of_class(node)):
            found[code].add(kinds().get(node.name, ""))
        elif isinstance(node, ast.Call) and (call := of_call(path, node)):
            found[call[0]].add(call[1])
        elif path == "jobs/store/verbs.py" and isinstance(node, ast.FunctionDef) and node.name == "refusal":
            for code in _of_a_table(node):
                found[code].add("Conflict")
    if package != "jobs":
        return found
    words = {node.value for path, node in _nodes(package)
             if path != "jobs/api/errors.py" and isinstance(node, ast.Constant)}
    for code in {*api.CODES.values(), *(code for code in api.BY_CODE if code in words)}:
        found[code].add("")
    return found


def _of_a_table(function: ast.FunctionDef) -> Iterator[str]:
    """What the refused pairs of state and verb are called."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "code":
            yield from filter(None, (_said(part) for part in ast.walk(node.value)))


@cache
def table(package: str = "jobs") -> dict[str, str]:
    """What the package's page says: code and HTTP status."""
    text = (ROOT / package / "README.md").read_text()
    section = text.partition("## Refusals")[2].partition("\n## ")[0]
    told: dict[str, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            for code in re.findall(r"`([a-z<>_0-9]+)`", cells[0]):
                assert code not in told, f"{code} stands twice"
                told[code] = cells[1]
    return told


@pytest.mark.parametrize("package", PACKAGES)
def test_every_refusal_stands_in_the_table_and_nothing_else_does(package: str) -> None:
    """The words that callers match on are all told, and none that is gone."""
    told = {name for package in dict.fromkeys(("jobs", package)) for name in table(package)}
    assert sorted(codes(package).keys() - told) == [], f"are missing in {package}/README.md"
    # A page may say by name what is made of the name of a field.
    made = () if package == "jobs" else tuple(code.partition("<")[0] for code in codes(package) if "<" in code)
    gone = [code for code in table(package) if code not in codes(package) and not (made and code.startswith(made))]
    assert gone == [], f"stand in {package}/README.md and nowhere else"
    assert package == "jobs" or not table(package).keys() & table().keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_table_tells_the_number_that_the_api_answers(package: str) -> None:
    """RELIABILITY: clients decide by numbers too; a dash is for what no request is answered with."""
    for code, roots in codes(package).items():
        said = table(package).get(code)
        numbers = {str(api.number_of(ROOTS[root]("", code=code))) for root in roots if root}
        numbers |= {str(number) for number, word in api.CODES.items() if word == code}
        if said not in (None, NEVER) and numbers:
            assert said in numbers, (code, said, numbers)


def test_the_rule_finds_each_way_of_saying_a_code() -> None:
    """A rule that finds nothing holds."""
    assert {"stale_claim", "key_mismatch", "unknown_queue", "malformed_json", "invalid_release", "internal_error",
            "storage_unavailable", "not_paused", "invalid_artifact",
            "already_committed", "invalid_<field>", "method_not_allowed"} <= codes().keys()
    # Reason codes of failures.
    assert not {"attempt_timeout", "no_handler", "max_claims", "unregistered_type"} & codes().keys()
