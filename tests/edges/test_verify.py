"""`manage.py verify` for people and for scripts: what it prints, how far it is, and how it ends (A12, A63)."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection

from jobs.management.progress import Progress
from jobs.services import verifying


class Terminal(io.StringIO):
    """A stream that says that somebody looks."""

    def isatty(self) -> bool:
        return True


def verify(*words: object, code: int = 0, err: io.StringIO | None = None) -> str:
    """What it prints, and that it ends so."""
    out = io.StringIO()
    ended = 0
    try:
        call_command("verify", *map(str, words), stdout=out, stderr=err or io.StringIO())
    except SystemExit as end:
        ended = end.code
    assert ended == code, out.getvalue()
    return out.getvalue().strip()


def refused(*words: object, code: int = 2) -> str:
    with pytest.raises(CommandError) as caught:
        call_command("verify", *map(str, words), stdout=io.StringIO(), stderr=io.StringIO())
    # What argparse refuses ends a real command with 2 by itself.
    assert caught.value.returncode == code or str(caught.value).startswith("Error: ")
    return str(caught.value)


def spoil(job_id: str, change: str = "claims = 7") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobs_job SET {change} WHERE id = %s", [job_id])


def test_all_is_well_and_a_script_sees_it(driver: Any) -> None:
    """A12: how much was looked at, and exit code 0; nothing but that on stdout."""
    for _ in range(3):
        driver.enqueue("echo")
    assert verify("--strict").startswith("verified 3 jobs with 3 receipts in ")
    assert verify("--strict").endswith(": all is well")
    told = json.loads(verify("--json"))
    assert {name: told[name] for name in ("event", "jobs", "receipts", "ok", "findings")} == {
        "event": "verified", "jobs": 3, "receipts": 3, "ok": True, "findings": {}}


def test_each_bad_job_is_a_line_and_the_exit_code_is_1(driver: Any) -> None:
    """A12, A63: the first bad receipt and why; the others are counted as looked at."""
    bad, worse, well = driver.enqueue("echo"), driver.enqueue("echo"), driver.enqueue("echo")
    spoil(bad)
    spoil(worse, "input = '[]'")
    lines = verify("--strict", code=1).splitlines()
    assert lines[:2] == [
        f"job {bad}: fold differs in claims: the receipts say 0, the row says 7",
        f"job {worse}: the input is not what its hash says [input_hash]",
    ]
    assert lines[2].endswith(": 1 x fold differs, 1 x input_hash")
    finding, end = map(json.loads, verify("--json", code=1).splitlines())
    assert finding == {"event": "finding", "job": bad, "attempt": None, "receipt": 1, "why": "fold differs",
                       "said": "fold differs in claims: the receipts say 0, the row says 7"}
    assert (end["ok"], end["findings"], end["jobs"]) == (False, {"fold differs": 1}, 3)
    verify("--job", well)
    assert bad in verify("--job", bad, "--strict", code=1)


def test_what_somebody_wrote_by_hand_commands_no_terminal(driver: Any) -> None:
    """Control characters of a poisoned row are shown, not obeyed."""
    spoil(driver.enqueue("echo"), "reason = E'\\x1b]0;owned\\x07\\n'")
    said = verify(code=1)
    assert "\x1b" not in said
    assert len(said.splitlines()) == 2


@pytest.mark.parametrize(("words", "why"), [
    (["--job", uuid.UUID(int=5)], "no such job"), (["--job", "nobody's"], "no such job"),
    (["--workspace", "nowhere"], "no workspace 'nowhere'"), (["--tenant", "nobody"], "no such tenant"),
    (["--limit", "0"], "whole number above 0"), (["--limit", "many"], "whole number above 0"),
    (["--since", "yesterday"], "as 12h"), (["--since", "9" * 40 + "d"], "as 12h"),
    (["--since", "0001-01-01"], "as 12h"),
    (["--since", "-5h"], "expected one argument"), (["--colour"], "unrecognized"),
], ids=str)
def test_options_that_choose_nothing_are_refused(driver: Any, words: list[Any], why: str) -> None:
    """Exit code 2 and one line: a script does not take a misspelt tenant for a clean audit."""
    assert why in refused(*words).lower().replace("there is no such", "no such")


def test_jobs_are_chosen_by_tenant_and_time(driver: Any) -> None:
    """A tenant of the site's own workspace, jobs by the caller's name, and spans as well as moments."""
    driver.enqueue("echo", tenant="acme", job_id="their-own")
    driver.enqueue("echo")
    for words, jobs in ((["--tenant", "acme"], 1), (["--job", "their-own", "--tenant", "acme"], 1),
                        (["--since", "10m"], 2), (["--since", "2026-01-01"], 2),
                        (["--since", "2026-01-01T10:00+02:00"], 2),
                        (["--limit", 1], 1), (["--workspace", "default"], 2)):
        assert json.loads(verify("--json", *words))["jobs"] == jobs, words


def test_an_audit_that_cannot_go_on_says_so_with_2(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not finished is neither well nor wrong."""
    def lost(*_: Any, **__: Any) -> Any:
        raise DatabaseError("the connection\nis closed")

    monkeypatch.setattr(verifying.auditing, "jobs_after", lost)
    assert refused() == "It could not be finished: the connection is closed"


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr alone; the bar is wiped before a finding is written, and at the end."""
    monkeypatch.setattr("jobs.management.progress.REDRAWN_S", 0.0)
    monkeypatch.setattr(verifying, "BATCH", 1)
    monkeypatch.setattr(verifying.audit, "__kwdefaults__", {"strict": False, "most": None, "batch": 1})
    for _ in range(3):
        driver.enqueue("echo")
    seen = Terminal()
    verify(err=seen)
    drawn = [part.rstrip() for part in seen.getvalue().split("\r") if part.strip()]
    assert [part.rpartition("] ")[2] for part in drawn[:3]] == [f"{n} of 3 jobs, 0 findings" for n in (1, 2, 3)]
    assert drawn[2].startswith("[" + "#" * 30 + "]")
    assert "\n" not in seen.getvalue()
    assert seen.getvalue().rpartition("\r")[2] == ""
    assert verify(err=(quiet := io.StringIO()))
    assert quiet.getvalue() == ""


def test_lines_come_now_and_then_and_a_bar_fits_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a long audit is a few lines; a narrow terminal is never wrapped."""
    monkeypatch.setattr("jobs.management.progress.SAID_S", 0.0)
    out = io.StringIO()
    Progress(out, 2_000, draws=False).tell(500, "2 findings")
    assert out.getvalue() == "500 of 2,000 jobs, 2 findings\n"
    monkeypatch.setenv("COLUMNS", "30")
    seen = Terminal()
    bar = Progress(seen, 0, draws=True)
    bar.tell(1_000_000_000, "1,000,000,000 findings")
    assert all(len(part) < 30 for part in seen.getvalue().split("\r"))
