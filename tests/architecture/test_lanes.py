"""Lanes look at jobs and jobs never at lanes; one place writes where a lane stands; the page tells the tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lanes.axes import MOVES, Axis, Role
from tests.architecture.source import ROOT, at, dotted, modules, walk

README = ROOT / "lanes" / "README.md"
# A permission of keys, and a role's.
WORD = "lanes"
# A's lanes are our queues: its endpoint takes the word `lane` for one (E2).
NAMES = re.compile(r"\blanes\b|\blanes_|\bLane(?:Job|Receipt)?\b|\b[Qq]uorum")
LANES = {"Lane", "LaneJob", "LaneReceipt", "Dependency", "Quorum"}
WRITES = {"create", "bulk_create", "bulk_update", "update", "get_or_create", "update_or_create", "delete", "save"}
STANDING = {"execution", "review", "merge", "commit", "version", "ended_at", "moved_at"}
SQL = re.compile(r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+lanes_", re.IGNORECASE)


def named(node: ast.AST) -> str:
    """How a node names lanes, if it does."""
    match node:
        case ast.Import(names=names):
            said = " ".join(alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names):
            said = f"{module} {' '.join(alias.name for alias in names)}"
        case ast.Constant(value=str(said)) | ast.Name(id=said) | ast.Attribute(attr=said):
            pass
        case _:
            return ""
    return said if said != WORD and said != "LANES" and NAMES.search(said) else ""


def test_nothing_of_jobs_names_lanes() -> None:
    """D6, E14.14: no import, no table, no model; a word of a key's permissions alone."""
    found = []
    for path, tree in modules().items():
        if path.startswith("jobs/"):
            nodes = [*ast.walk(tree)]
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            found += [f"{at(path, node)} {said[:60]}" for node in nodes
                      if id(node) not in docstrings and (said := named(node))]
    assert found == []


def written(node: ast.AST) -> str:
    """How a node writes lanes, if it does."""
    match node:
        case ast.Call(func=ast.Attribute(attr=verb) as function) if verb in WRITES:
            name = dotted(function)
            return name if name.split(".")[0] in LANES else ""
        case ast.Constant(value=str(said)) if SQL.search(said):
            return said[:60]
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=name)]) if name in STANDING:
            # `view` is the fold of a job, which is no row.
            return "" if owner in ("self", "cls", "view") else f"{owner}.{name} = ..."
    return ""


def test_only_the_store_of_lanes_writes_them() -> None:
    """D9 to D11, D13: by the ORM, by assignment or by SQL, in the whole source; what runs jobs cannot even reach it."""
    found = [f"{at(path, node)} {what}" for path, node in walk(but=("lanes/store/",)) if (what := written(node))]
    assert found == []


@pytest.mark.parametrize(("rule", "line"), [
    (named, "from lanes.services import lanes"), (named, "import lanes.store"), (named, "x = 'UPDATE lanes_lane SET'"),
    (named, "apps.get_model('lanes', 'LaneJob')"), (named, "quorums.get(7)"),
    (written, "Lane.objects.filter(pk=1).update(execution='done')"), (written, "LaneReceipt.objects.create()"),
    (written, "lane.review = 'approved'"), (written, "run('delete from lanes_job')"),
])
def test_the_rules_see_each_way_of_doing_it(rule: object, line: str) -> None:
    """A rule that finds nothing must be able to find something."""
    assert any(rule(node) for node in ast.walk(ast.parse(line)))  # type: ignore[operator]


def test_the_tables_of_the_page_are_the_tables_of_the_axes() -> None:
    """D9 to D11: every row of the page, and nothing else."""
    told: dict[tuple[str, str, str], tuple[str, str, bool]] = {}
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0] in set(Axis):
            role, _, assignee = cells[4].partition(", ")
            for state in cells[1].split(", "):
                told[cells[0], state, cells[2]] = (cells[3], role, assignee == "the lane's assignee")
    assert told == {(axis, state, verb): (move.to, move.role, move.or_assignee)
                    for axis, table in MOVES.items() for (state, verb), move in table.items()}


def test_roles_are_the_roles_of_grants() -> None:
    """E2: `lanes.axes` is plain Python and says them again."""
    from jobs.services import grants

    assert [*Role] == [*grants.Role]


def _refusals() -> dict[str, str]:
    """Every code that a class or a call of lanes carries, and where."""
    found: dict[str, str] = {}
    for path, node in walk():
        if not path.startswith("lanes/"):
            continue
        if path == "lanes/errors.py" and isinstance(node, ast.Assign) and dotted(node.targets[0]) == "code":
            found[ast.literal_eval(node.value)] = path
        for keyword in getattr(node, "keywords", ()) if isinstance(node, ast.Call) else ():
            match keyword:
                case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                    found[code] = path
    return found


def test_every_refusal_of_lanes_stands_in_a_table() -> None:
    """The words that callers match on: of lanes alone in their own table, the others in that of jobs."""
    section = README.read_text().partition("## Refusals")[2].partition("\n## ")[0]
    told = set(re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", section, re.MULTILINE))
    mine = {code for row in told for code in re.findall(r"`([a-z_]+)`", row)}
    theirs = set(re.findall(r"`([a-z_]+)`", Path(ROOT / "jobs/README.md").read_text()))
    assert {code: path for code, path in _refusals().items() if code not in mine | theirs} == {}
    # Those that are made from the name of a field are written there as well.
    made = {f"invalid_{field}" for field in ("title", "task")} | {f"unknown_{field}" for field in (
        "state", "review", "outcome")}
    assert mine <= {*_refusals(), *made}
    assert made <= mine
