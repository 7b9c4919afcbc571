"""Rules of the house that the syntax trees can show (DESIGN 3, 4, 8)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest

from tests.architecture import source
from tests.architecture.source import ROOT, at, dotted, modules, text, walk

ROWS = {"Job", "Attempt", "AttemptCap", "Receipt", "Artifact", "ClaimLine", "DeadLetter", "Target"}
WRITES = {"create", "bulk_create", "bulk_update", "update", "get_or_create", "update_or_create", "delete", "save"}
COLUMNS = {
    "state",
    "gate",
    "attempt_id",
    "available_at",
    "ended_at",
    "lease_until",
    "outcome",
    "revision",
    "head",
    "claims",
    "failures",
    "chain_claims",
}
SQL = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+jobs_(?:job|attempt|attempt_cap|receipt|artifact|claim_line"
    r"|dead_letter|target)\b",
    re.IGNORECASE,
)
CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "datetime.datetime.now",
    "timezone.now",
    "date.today",
    "asyncio.sleep",
}
# Where a clock of Python's own may be read, and why.
CLOCK_MODULES = {
    "jobs/clock.py": "it is the one clock",
    "jobs/ids.py": "a UUIDv7 begins with milliseconds, and the rules know no database",
    "jobs/worker/guard.py": "a program of its own that imports nothing of ours",
    "jobsite/postgres/": "it waits for a database that is not there yet",
    "jobsite/examples/": "programs of their own that import nothing of ours, as runners in other languages",
}
# Where the wall clock may be read, and why.
WALL_MODULES = {
    "jobs/worker/output.py": "the moment of a line",
    "jobsite/demo/": "a number that grows from demo to demo",
}
# Where everything that can go wrong must be caught, and why.
BROAD = {
    "jobs/worker/executor.py": "whatever a handler raises becomes an outcome",
    "jobs/worker/": "loops of the worker outlive what goes wrong in one round",
    "jobs/services/duties.py": "one duty that breaks must not stop the others",
    "jobs/services/owners.py": "whatever a site's resolver raises, there is no credential",
    "jobs/services/firing.py": "one timer that cannot be fired must not hold up the others",
    "jobs/services/triage.py": "one letter that cannot be answered must not hold up the others",
    "jobs/services/recovery.py": "one row that cannot be moved must not hold up its batch",
    "jobs/services/traffic.py": "counts that cannot be flushed are kept, and the thread goes on",
    "jobs/publish.py": "a hook that breaks undoes nothing",
    "jobs/live/": "what goes wrong once must not end the news of everybody",
    "lanes/watchdog.py": "a hook that raises for one lane's job must not hold up the other lanes",
    "lanes/mcp/": "whatever goes wrong in a call is an answer without its insides",
    "jobsite/examples/holding.py": "whatever an engine raises is reported as a failure",
}
# Longer than the house likes; may only shrink.
LONG_FILES: dict[str, int] = {}


def test_only_the_store_writes_rows_of_jobs() -> None:
    """DESIGN 4, 8.1, E15: one door for state; by the ORM, by assignment or by SQL."""
    found = [f"{at(path, node)} {what}" for path, node in walk(but=("jobs/store/",)) if (what := _write(node))]
    assert found == []


def _write(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=verb) as function) if verb in WRITES:
            name = dotted(function)
            return name if name.split(".")[0] in ROWS else ""
        case ast.Call(func=ast.Name(id=name)) if name in ROWS:
            return f"{name}(...)"
        case ast.Constant(value=str(said)) if SQL.search(said):
            return said[:60]
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=owner), attr=name)]) if name in COLUMNS:
            # `view` is the fold's, which is no row.
            return "" if owner in ("self", "cls", "view") else f"{owner}.{name} = ..."
    return ""


@pytest.mark.parametrize("line", [
    "Job.objects.filter(pk=1).update(state='failed')", "Attempt.objects.create(id=1)", "Job(state='queued')",
    "job.state = 'failed'", "rows('update jobs_job set state = 1')", "f'DELETE FROM jobs_receipt WHERE {x}'",
])
def test_the_rule_about_writes_sees_each_way_of_writing(line: str) -> None:
    """A rule that finds nothing must be able to find something."""
    assert any(_write(node) for node in ast.walk(ast.parse(line)))


def test_only_the_eraser_deletes_jobs() -> None:
    """DESIGN 3: by one module, and no other SQL of ours deletes one."""
    found = [at(path, node) for path, node in walk(but=("jobs/store/erase.py",))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)
             and re.search(r"DELETE\s+FROM\s+jobs_(job|receipt|artifact|attempt)\b", node.value, re.IGNORECASE)]
    assert found == []


def test_every_select_for_update_says_what_it_locks_and_that_it_skips() -> None:
    """DESIGN 4: `of`, `no_key` and `skip_locked`; plain FOR UPDATE conflicts with foreign-key checks."""
    calls = [(path, node) for path, node in walk() if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute) and node.func.attr == "select_for_update"]
    assert calls
    for path, node in calls:
        said = {k.arg: k.value for k in node.keywords}
        assert {"of", "no_key"} <= said.keys(), at(path, node)
        assert "skip_locked" in said or "skip_locked" in _comment_above(path, node.lineno), at(path, node)


def test_every_lock_in_sql_skips_or_says_why_it_waits() -> None:
    """DESIGN 4: a wait is a decision and has a comment; a full FOR UPDATE is for rows that are deleted."""
    found = [(path, node, " ".join(node.value.split())) for path, node in walk()
             if isinstance(node, ast.Constant) and isinstance(node.value, str) and " UPDATE" in node.value]
    locks = [(path, node, said) for path, node, said in found if re.search(r"FOR (NO KEY )?UPDATE\b", said)
             and not _is_docstring(path, node)]
    assert locks
    for path, node, said in locks:
        if re.search(r"FOR UPDATE\b", said):
            assert "FOR UPDATE SKIP LOCKED" in said, at(path, node)
        elif "SKIP LOCKED" not in said:
            assert _comment_above(path, node.lineno), at(path, node)


def _is_docstring(path: str, node: ast.Constant) -> bool:
    return any(isinstance(n, ast.Expr) and n.value is node for n in ast.walk(modules()[path]))


def _comment_above(path: str, line: int) -> str:
    """Comments and docstrings within the few lines above."""
    above = text(path).splitlines()[max(0, line - 12):line]
    return "\n".join(x for x in above if x.strip().startswith(("#", '"""')))


def test_clocks_are_read_in_one_place() -> None:
    """DESIGN 5: one clock; waiting goes by the steady one."""
    found = [at(path, node) for path, node in walk(but=tuple(CLOCK_MODULES))
             if isinstance(node, ast.Call) and dotted(node.func) in CLOCKS]
    assert found == []
    imported = [at(path, node) for path, node in walk(but=tuple(CLOCK_MODULES))
                if isinstance(node, ast.ImportFrom) and node.module == "time"]
    assert imported == []


def test_the_wall_clock_is_for_log_lines_only() -> None:
    """cases E07, E08, DESIGN 5: no decision, no wait and no stored moment comes from a clock that may jump."""
    found = [at(path, node) for path, node in walk(but=tuple(WALL_MODULES))
             if isinstance(node, ast.Call) and dotted(node.func) in ("clock.wall", "wall")]
    assert found == []


def test_everything_is_caught_only_where_everything_can_happen() -> None:
    """DESIGN 3: broad `except` in the executor, loops and publish; elsewhere only to clean up and raise again."""
    found = [at(path, node) for path, node in walk(but=tuple(BROAD))
             if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises(node)]
    assert found == []
    hidden = [at(path, node) for path, node in walk() if isinstance(node, ast.Call)
              and dotted(node.func).endswith("suppress") and any(_is_broad(a) for a in node.args)]
    assert hidden == []


def _is_broad(kind: ast.AST | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(k) for k in kind.elts)
    return kind is None or dotted(kind) in ("Exception", "BaseException")


def _raises(node: ast.ExceptHandler) -> bool:
    return isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None


def test_nothing_is_left_for_later() -> None:
    """DESIGN 3: no notes to self in the source."""
    notes = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
    paths = [*modules(), *(p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.py"))]
    assert [p for p in paths if notes.search(text(p))] == []


def test_files_and_functions_are_short() -> None:
    """DESIGN 3: files of at most 400 lines, functions never above 60."""
    lengths = {path: len(text(path).splitlines()) for path in modules()}
    assert {p: n for p, n in lengths.items() if n > LONG_FILES.get(p, 400)} == {}
    long = [f"{at(path, node)} {node.name}" for path, node in walk()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and (node.end_lineno or 0) - node.lineno + 1 > 60]
    assert long == []


def test_every_module_says_which_question_it_answers() -> None:
    """DESIGN 8: a docstring of one to six lines."""
    for path, tree in modules().items():
        if tree.body:
            said = ast.get_docstring(tree)
            assert said, path
            # The stores' hold the lock order.
            assert len(said.splitlines()) <= 8 or path.endswith("/store/__init__.py"), path


def test_public_things_have_a_docstring() -> None:
    """DESIGN 8: one line for each function and class that others may use."""
    found = []
    for path, tree in modules().items():
        for node in tree.body:
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                and not node.name.startswith("_")
                and ast.get_docstring(node) is None
            ):
                found.append(f"{at(path, node)} {node.name}")
    assert found == []


FORBIDDEN: list[tuple[str, Callable[[str], bool]]] = [
    (
        "a word that says nothing",
        lambda n: any(w in n.lower().split("_") for w in ("util", "utils", "helper", "helpers", "misc")),
    ),
    ("a verb that says nothing", lambda n: n.startswith(("process_", "handle_", "do_"))),
]
# Django's own spelling.
DJANGO = {"handle", "process_request", "process_response", "process_exception", "process_view", "handle_exception",
          "handle_no_permission"}


@pytest.mark.parametrize(("fault", "has"), FORBIDDEN, ids=[f for f, _ in FORBIDDEN])
def test_names_say_what_a_thing_is(fault: str, has: Callable[[str], bool]) -> None:
    """DESIGN 2: the words that are not used."""
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [f"{at(path, node)} {node.name}" for path, node in walk() if isinstance(node, named)
             and node.name not in DJANGO and has(node.name)]
    found += [path for path in modules() if has(path.rpartition("/")[2].removesuffix(".py"))]
    assert found == []


def test_nothing_of_one_machine_is_in_the_source() -> None:
    """House rule: no absolute home, user or tool path of where it was written."""
    places = re.compile("|".join(("/wo" + "rk/", "/ro" + "ot/", "/home/" + r"\w", "/var/tmp/" + "dev")))
    paths = [*modules(), *(p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.py"))]
    assert [p for p in paths if places.search(text(p))] == []


def test_the_source_is_read_at_all() -> None:
    """A rule over nothing holds."""
    assert len(modules()) > 50
    assert {"jobs/store/moves.py", "jobs/clock.py", "jobsite/settings.py"} <= set(modules())
    assert source.dotted(ast.parse("a.b(1).c[2].d").body[0].value) == "a.b.c.d"  # type: ignore[attr-defined]
