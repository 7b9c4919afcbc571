"""Every row of A, B, C and D is named by a test, or it is said here which issue brings it; so are some cases."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.architecture.source import ROOT

ROWS = [*(f"A{n}" for n in range(1, 65)), *(f"B{n}" for n in range(1, 47)),
        *(f"C{n}" for n in range(1, 39)), *(f"D{n}" for n in range(1, 16))]
# The cases of the test plan have letters too: `cases C10, C11` are none of our rows.
CASES = re.compile(r"cases?[ -][A-J]\d+(?:(?:,| and| to|/)\s*[A-J]\d+)*")
# What is not built yet, and what brings it. Whoever builds it takes the row away here and cites it in a test.
LATER: dict[str, str] = {}
# What other systems' users have reported of recurring jobs, clocks and elections.
TOLD = [f"case-E0{n}" for n in range(3, 9)]

# The seeds' warnings (E15), each with the test that heeds it.
WARNINGS: dict[str, str] = {
    "a stamped origin opens no door": "test_the_door_stamps_the_origin_and_an_origin_opens_no_other_door",
    "a pre-prefixed target is stored doubled with a warning":
        "test_targets_are_scoped_by_type_and_a_prefix_is_stored_doubled_with_a_warning",
    "private text is in no progress, receipt or log": "test_progress_and_errors_hold_nothing_of_the_text",
    "credits are not enforced": "test_credits_are_told_and_not_enforced",
    "five claims with one failure still retry": "test_lapses_that_do_not_count_use_no_budget",
    "a handler that ignores its signal cannot commit":
        "test_a_coroutine_that_swallows_its_cancellation_is_settled_without_it",
    "only declared stages": "test_only_declared_stages_and_events_are_recorded",
    "commit once, late, never, then throw": "test_a_publication_hook_commits_once",
    "no news before the commit": "test_a_job_exists_if_and_only_if_its_transaction_does",
    "killed before its on_ended": "test_killed_before_its_on_ended_it_is_told_by_the_next",
    "nothing bypasses the services": "test_only_the_store_writes_rows_of_jobs",
    "unknown agent: accepted, then failed, not retried": "test_an_unknown_agent_is_accepted_with_a_warning",
    "four queues and the default": "test_an_option_at_its_bounds_is_taken",
    "the group mismatch is reported": "test_a_group_that_the_rules_overrule_is_reported",
    "a misspelt group is refused": "test_what_cannot_be_is_refused_in_a_sentence",
    "a second lease is inert": "test_a_second_lease_changes_nothing",
    "stale heartbeat, progress and ends are inert":
        "test_news_of_an_attempt_that_is_not_the_live_one_is_inert",
    "unknown jobs: two kinds are ignored, others raise": "test_an_event_of_an_unknown_job_raises_but_for_two",
    "a slow loop keeps its duty and says it once": "test_a_slow_pass_keeps_its_leader_is_said_once_and_ticks_once",
    "side effects after the commit undo nothing": "test_a_failing_hook_after_commit_undoes_nothing",
    "heartbeats of many leases": "test_a_heartbeat_is_a_third_of_the_lease_within_its_bounds",
    "waits above the limit are capped": "test_a_wait_is_cut_at_the_limit_and_holds_no_connection",
    "an old version is not removed while rows exist": "test_a_version_that_is_removed_while_rows_name_it_is_refused",
    "registered but no enqueue path": "test_what_is_registered_and_takes_no_new_jobs_is_noted",
    "maxAttempts 0 is 1 and 99 is 8": "test_attempts_are_clamped_here_and_refused_elsewhere",
    "unknown kind is refused before any write": "test_an_unknown_kind_is_refused_before_any_write",
    "research-evidence refuses document fields": "test_evidence_refuses_every_field_of_a_document",
    "approve on a foreign or missing lane answers alike before the entry is read":
        "test_foreign_and_missing_are_answered_alike_by_the_same_statement",
    "nothing to do and no rights answer alike in status, body and wait":
        "test_nothing_to_do_and_no_right_to_it_are_one_answer_also_in_how_long_they_wait",
    "open to done directly is refused": "test_open_to_done_directly_is_refused",
    "superuser without a grant": "test_a_superuser_without_a_grant_is_refused_and_a_conductor_is_not",
    "abort is no command lane": "test_queue_commands_are_steer_follow_up_and_abort_and_abort_is_no_queue",
}


@cache
def names_of_tests() -> frozenset[str]:
    """The names of all tests."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("warning", WARNINGS)
def test_every_warning_of_the_seeds_is_a_test(warning: str) -> None:
    """E15."""
    assert WARNINGS[warning] in names_of_tests(), warning


@cache
def cited() -> frozenset[str]:
    """The rows that stand as words in the tests."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != "test_citations.py")
    return frozenset(word for text in texts
                     for word in re.findall(r"(?<![\w-])[ABCD][1-9][0-9]?\b", CASES.sub("", text))) & set(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in LATER])
def test_every_row_is_named_by_a_test(row: str) -> None:
    """REQUIREMENTS: `grep -r A15 tests` finds the test that proves it."""
    assert row in cited(), f"{row} is named by no test: cite it where it is proven, or say in LATER what brings it"


@pytest.mark.parametrize("case", TOLD)
def test_every_case_of_time_is_named_by_a_test(case: str) -> None:
    """The plan of cases: a test by the name of each."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != "test_citations.py")
    assert any(re.search(rf"\b{case}\b", text) for text in texts), f"{case} is named by no test"


def test_what_comes_later_is_not_claimed_already() -> None:
    """A row that a test names is no longer one that is missing."""
    assert not LATER.keys() & cited(), LATER.keys() & cited()
    assert LATER.keys() <= set(ROWS)
