"""`manage.py quorums` and `manage.py lanes`: as a user whose grants decide; what is wrong is one line."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from lanes.models import Lane, Quorum
from tests.driver import Driver
from tests.edges.caller import everything
from tests.edges.test_commands_hostile import WORDS, run
from tests.lanes import making

pytestmark = pytest.mark.usefixtures("database")
AS_CLEO = ("--as", "cleo")


def _said(command: str, *words: str, as_: str = "cleo") -> str:
    out = io.StringIO()
    call_command(command, *words, "--as", as_, stdout=out, stderr=out)
    return out.getvalue()


def _json(command: str, *words: str, as_: str = "cleo") -> Any:
    return json.loads(_said(command, *words, "--json", as_=as_))


@pytest.fixture(autouse=True)
def people(database: None) -> None:
    """A conductor, an assignee, a member, and somebody with every right of the site and no grant."""
    for name, role in (("cleo", "conductor"), ("ann", "assignee"), ("moe", "member")):
        making.user(name, role)
    making.user("root", is_superuser=True, is_staff=True)


def _made(name: str = "parser", *more: str) -> str:
    if not Quorum.objects.exists():
        _said("quorums", "create", "search")
    return str(_json("lanes", "create", "search", name, "--branch", f"lane/{name}", "--task", "TRACK-7", "--assignee",
                     "user:ann", *more)["id"])


def test_a_lane_goes_its_way_from_a_shell(driver: Driver) -> None:
    """D7 to D12: by names or ids; each verb prints where the lane stands, `show` its history."""
    assert _said("quorums", "create", "search", "--title", "The new search").endswith(
        "search  The new search  by user:cleo\n")
    first, second = _made(), _made("index", "--depends-on", "parser", "--reconcile", '{"type": "echo"}')
    assert _said("lanes", "state", "search/parser", "in_progress", "--reason", "begun").startswith(
        f"{first}  search/parser  in_progress  review none")
    assert "review submitted" in _said("lanes", "review", first, "submit", as_="ann")
    assert " done " in _said("lanes", "state", first, "done", "--version", "3")
    assert "review approved" in _said("lanes", "review", first, "approve")
    assert _said("lanes", "merge", first, "merged", "--commit", "9FCEB02").endswith("v6\n")
    assert "user:cleo" in _said("lanes", "assign", "search/index", "user:cleo")
    assert _json("lanes", "depend", second)["depends_on"] == []
    job = driver.enqueue()
    assert [_said("lanes", "attach", second, job) for _ in range(2)] == ["attached\n", "it was the lane's already\n"]
    shown = _said("lanes", "show", "search/parser", as_="moe")
    assert "commit       9fceb02" in shown
    assert "execution  open > in_progress" not in shown
    assert "state  open > in_progress  by user:cleo (begun)" in shown
    assert "merge  none > merged at 9fceb02  by user:cleo" in shown
    told = _json("lanes", "show", second, as_="moe")
    assert told["jobs"]["counts"] == {"queued": 1}
    assert [one["kind"] for one in told["receipts"]] == ["created", "assignee", "dependencies", "job"]
    assert told["reconcile"] == {"type": "echo", "input": {"path": "", "value": ""}}
    assert _said("quorums", "close", "search", "--reason", "agreed").endswith("closed by user:cleo\n")
    assert _json("quorums", "list")["quorums"][0]["close_reason"] == "agreed"


def test_lists_are_narrowed_paged_and_silent(driver: Driver) -> None:
    """D12: none for whoever has no grant, whatever else it may."""
    _made()
    _made("index")
    _said("lanes", "state", "search/index", "in_progress")
    assert [line.split("  ")[1] for line in _said("lanes", "list", as_="moe").splitlines()] == [
        "search/index", "search/parser"]
    assert len(_json("lanes", "list", "--execution", "open", "--quorum", "search")["lanes"]) == 1
    first = _json("lanes", "list", "--limit", "1")
    rest = _json("lanes", "list", "--limit", "1", "--cursor", first["next_cursor"])
    assert [one["name"] for one in (*first["lanes"], *rest["lanes"])] == ["index", "parser"]
    assert "There are more: --cursor" in _said("lanes", "list", "--limit", "1")
    assert "There are more: --cursor" not in _said("quorums", "list", "--limit", "1")
    assert (_said("lanes", "list", as_="root"), _said("quorums", "list", as_="root")) == ("", "")


def test_what_is_wrong_or_not_allowed_is_one_line_and_changes_nothing(driver: Driver) -> None:
    """A63, E2: by the services' own words; a lane that is not the user's is not there."""
    lane, rows = _made(), everything()
    for words, as_, match in (
            (("state", lane, "done"), "cleo", "possible: in_progress, cancelled"),
            (("state", lane, "finished"), "cleo", "must be one of in_progress"),
            (("state", "search/lexer", "done"), "cleo", "There is no such lane, or it is not yours"),
            (("state", lane, "in_progress", "--version", "7"), "cleo", "has changed since it was read"),
            (("state", lane, "in_progress"), "ann", "Only a conductor may do this here"),
            (("review", lane, "approve"), "ann", "Only a conductor may do this here"),
            (("state", lane, "in_progress"), "root", "There is no such lane, or it is not yours"),
            (("show", lane), "root", "There is no such lane, or it is not yours"),
            (("show", lane), "not-there", "There is no such active user: 'not-there'"),
            (("merge", lane, "merged"), "cleo", "the commit that it became"),
            (("list", "--review", "good"), "cleo", "must be one of none, submitted"),
            (("list", "--workspace", "nowhere"), "cleo", "no workspace"),
            (("attach", lane, "no-job"), "cleo", "There is no such job"),
            (("create", "search", "x", "--branch", "b", "--task", "t", "--assignee", "user:moe"), "cleo",
             "role of assignee or conductor"),
            (("create", "search", "x", "--branch", "b", "--task", "t", "--assignee", "user:ann", "--reconcile", "{"),
             "cleo", "must be JSON"),
            (("create", "other", "x", "--branch", "b", "--task", "t", "--assignee", "user:ann"), "cleo",
             "There is no such quorum, or it is not yours")):
        with pytest.raises(CommandError, match=match) as refused:
            _said("lanes", *words, as_=as_)
        assert "\n" not in str(refused.value)
    for words, match in ((("create", "search"), "has a quorum of this name"), (("close", "x"), "no such quorum")):
        with pytest.raises(CommandError, match=match):
            _said("quorums", *words)
    with pytest.raises(CommandError, match="--as"):
        call_command("lanes", "list")
    assert everything() == rows


FORMS = {
    "quorums": ("list --as ?", "list --limit ? --as cleo", "list --cursor ? --as cleo", "list --workspace ? --as cleo",
                "create ? --as cleo", "create q --title ? --as cleo", "close ? --as cleo",
                "close search --reason ? --as root"),
    "lanes": (*(f"list --{name} ? --as cleo" for name in ("quorum", "execution", "review", "merge", "assignee", "limit",
                                                          "cursor", "workspace")),
              "show ? --as cleo", "show search/? --as cleo", "state {lane} ? --as cleo", "review {lane} ? --as cleo",
              "state {lane} done --reason ? --as cleo", "merge {lane} ? --as cleo", "attach {lane} ? --as cleo",
              "state {lane} in_progress --version ? --as moe", "merge {lane} merged --commit ? --as cleo",
              "assign {lane} ? --as cleo", "depend {lane} ? ? --as cleo",
              *(f"create search x --branch {b} --task {t} --assignee {a} --as cleo {more}" for b, t, a, more in (
                  ("?", "t", "user:moe", ""), ("b", "?", "user:moe", ""), ("b", "t", "?", ""),
                  ("b", "t", "user:moe", "--title ?"), ("b", "t", "user:ann", "--depends-on ?"),
                  ("b", "t", "user:moe", "--reconcile ?")))),
}


# Some of them: these commands read their words as the others do.
FEW = (WORDS[0], WORDS[2], WORDS[3], WORDS[7], WORDS[-1])


@pytest.mark.parametrize("name", FORMS)
def test_no_word_behind_a_command_is_a_traceback(driver: Driver, name: str, capsys: Any) -> None:
    """A63: of the site's own checks, or argparse's; what it says is fit for a terminal."""
    lane = _made()
    for form in FORMS[name]:
        for word in FEW:
            words = [part.replace("?", word) if "?" in part else lane if part == "{lane}" else part
                     for part in form.split()]
            assert "\x1b" not in run(name, words, "lanes"), (form, ascii(word[:20]))
    capsys.readouterr()
    assert Lane.objects.count() == 1
