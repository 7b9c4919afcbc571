"""The words of a request about lanes: what is taken, and what is refused with its field and code. No database."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from typing import Any

import pytest

from jobs.errors import Invalid
from lanes import words
from lanes.axes import Axis
from lanes.errors import CommitRequired
from tests.plugin import skip

BRANCHES = [
    "main", "feature/x", "a.b/c", "@x", "x@y", "wip-7", "ünïcode", "a/b/c/d", "x.lockd", "1", "{x}", "a#b", "a&b;c",
    "release-1.2.3", "-x/y", "a/-b", "refs/heads/x", "head",
    "", ".a", "a/.b", "a..b", "a b", "a~1", "a^", "a:b", "a?b", "a*b", "a[b", "a\\b", "/a", "a/", "a//b", "a.", "a/.",
    "a.lock", "a.lock/b", "a/b.lock", "a@{b", "-a", "HEAD", "a\tb", "a\x7fb",
]


def test_a_branch_is_what_git_takes_for_one() -> None:
    """D7, D8: the same answer as git's own for each of these."""
    if shutil.which("git") is None:
        skip("there is no git here")
    for name in BRANCHES:
        git = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False)
        with suppress(Invalid):
            assert words.branch(name) == name
            assert git.returncode == 0, name
            continue
        assert git.returncode != 0, name


# Git would take these: they look like something else than they are, or are endless; `@` it reads as HEAD.
@pytest.mark.parametrize("name", ["@", "a\u202eb", "a\u200bb", "a\ud800b", "x" * 201, None, 7, b"main", "a\x00b"])
def test_a_branch_that_cannot_be_shown_is_refused(name: Any) -> None:
    """D8."""
    with pytest.raises(Invalid) as refusal:
        words.branch(name)
    assert refusal.value.reason_code == "invalid_branch"


@pytest.mark.parametrize(("check", "good", "bad"), [
    (words.name, ["a", "lane-7", "0.x_y", "a" * 100], ["", "A", "-a", ".a", "a b", "a" * 101, "ä", "a\n", None, 7]),
    (words.title, ["", "A title, with ünïcode", "x" * 200], [" x", "x ", "a\nb", "x" * 201, None]),
    (words.task, ["thread 7", "https://tracker.example.org/7", "x" * 512], ["", " ", "x\x00", "x" * 513, None, []]),
    (words.reason, ["", "because ", "x" * 512], ["a\nb", "x" * 513, None, 3]),
])
def test_a_text_at_its_bounds_is_taken_and_beyond_them_refused(check: Any, good: list, bad: list) -> None:
    """D8: every refusal names the field."""
    for value in good:
        assert check(value) == value
    for value in bad:
        with pytest.raises(Invalid) as refusal:
            check(value)
        assert refusal.value.reason_code == f"invalid_{check.__name__}"
        assert refusal.value.faults[0]["field"] == check.__name__


def test_a_commit_is_seven_to_sixty_four_hexadecimal_digits() -> None:
    """D11."""
    assert words.commit("C0FFEE1") == "c0ffee1"
    assert words.commit("a" * 64) == "a" * 64
    assert words.commit(None) is None
    for value in ("c0ffee", "a" * 65, "c0ffeg1", " c0ffee1", "c0ffee1\n", 7, b"c0ffee1", "\uff41" * 7):
        with pytest.raises(Invalid) as refusal:
            words.commit(value)
        assert (refusal.value.field, refusal.value.reason_code) == ("commit", "invalid_commit")
    for missing in (None, ""):
        with pytest.raises(CommitRequired):
            words.commit(missing, required=True)


def test_a_verb_that_there_is_not_is_named_with_those_that_there_are() -> None:
    """D9, D10, D11."""
    for axis, value, field in ((Axis.EXECUTION, "closed", "state"), (Axis.REVIEW, "approved", "review"),
                               (Axis.MERGE, "merge", "outcome"), (Axis.EXECUTION, None, "state"),
                               (Axis.MERGE, ["merged"], "outcome")):
        with pytest.raises(Invalid) as refusal:
            words.verb(axis, value)
        assert (refusal.value.field, refusal.value.reason_code) == (field, f"unknown_{field}")
    # A state, though nothing leads there: the table refuses it.
    assert words.verb(Axis.EXECUTION, "open") == "open"


def test_dependencies_are_a_bounded_list_of_names() -> None:
    """D8."""
    assert words.dependencies(["a", "b", "a"]) == ["a", "b"]
    assert words.dependencies(()) == []
    for value in ("abc", None, 7, [7], [""], ["x" * 101], ["a\x00"], [f"l{n}" for n in range(101)]):
        with pytest.raises(Invalid) as refusal:
            words.dependencies(value)
        assert (refusal.value.field, refusal.value.reason_code) == ("depends_on", "invalid_dependency")


@pytest.mark.parametrize("value", [0, -1, 2**31, "1", 1.0, True])
def test_a_version_is_a_whole_number_from_one(value: Any) -> None:
    """E15: nothing near it is taken for one."""
    with pytest.raises(Invalid) as refusal:
        words.version(value)
    assert refusal.value.reason_code == "invalid_version"
