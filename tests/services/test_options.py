"""Each option of enqueue, said wrongly: refused with its field and a stable code, before anything is written."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction

from jobs import RetryPolicy
from jobs.conf import conf
from jobs.errors import Invalid, Refused
from jobs.models import Job, Tenant
from jobs.services import intake
from tests.driver import Driver

UUID = "018f3c6e-0000-7000-8000-000000000001"
WRONG: list[tuple[str, str, list[Any]]] = [
    ("queue", "unknown_queue", ["", "colect", "CHAT", 5, ["chat"]]),
    ("priority", "invalid_priority", [-101, 101, True, 1.0, "1", math.nan]),
    (
        "job_id",
        "invalid_job_id",
        ["", "a b", "x" * 201, UUID, UUID.replace("-", ""), UUID.upper(), "dead-letters", "é", "a\n", 5],
    ),
    ("idempotency_key", "invalid_idempotency_key", ["", "x" * 201, "é", "a\n", "a\x00", "\t", 5, b"x"]),
    ("session_key", "invalid_session_key", ["", "x" * 201, "é", "a\nb", 5]),
    ("exclusive_group", "invalid_exclusive_group", ["", "x" * 201, "é", "a\r", 5]),
    ("target", "invalid_target", ["", "x" * 513, "a\nb", "\x00", 5]),
    ("agent", "invalid_agent", ["", "x" * 65, "é", "a\n", 5]),
    ("tenant", "invalid_tenant_subject", ["", "x" * 256, "a\nb", "\x00", 5, ["a"]]),
    ("delay_s", "invalid_availability", [-1, math.nan, math.inf, True, "5", 1e12]),
    ("available_at", "invalid_available_at", ["2026-01-01", datetime(2026, 1, 1), datetime(1, 1, 1, tzinfo=UTC),
                                                      datetime(2200, 1, 1, tzinfo=UTC)]),
    ("deadline_s", "invalid_deadline", [0, -1, math.nan, math.inf, 7 * 86_400 + 1, "5", True]),
    ("deadline_at", "invalid_deadline_at", ["soon", datetime(2030, 1, 1), datetime(2200, 1, 1, tzinfo=UTC)]),
    ("version", "unregistered_version", [2, 0, -1, "1", True, 1.0]),
    ("retry", "invalid_retry_policy", [{}, {"max_attempts": 2}, 0, "", False, "never", [RetryPolicy()]]),
]
FIELD = {"tenant": "tenant_subject"}
CASES = [(name, code, value) for name, code, values in WRONG for value in values]


@pytest.mark.parametrize(("name", "code", "value"), CASES, ids=lambda v: repr(v)[:40])
def test_an_option_said_wrongly_is_refused_by_its_field(driver: Driver, name: str, code: str, value: Any) -> None:
    """B12, C11, C13, C15, C18, E2, E3: and the caller's transaction goes on, with nothing written."""
    with transaction.atomic():
        with pytest.raises(Invalid) as refusal:
            intake.enqueue("echo", {}, **{"tenant": "new", name: value})
        assert (refusal.value.reason_code, refusal.value.field) == (code, FIELD.get(name, name))
        assert Job.objects.count() == 0
        assert Tenant.objects.count() == 1


RIGHT: list[tuple[str, list[Any]]] = [
    ("queue", ["chat", "collect", "steer", "follow_up"]), ("priority", [-100, 0, 100]),
    ("job_id", ["a", "A.b_c:d~e-f", "x" * 200, "42"]), ("idempotency_key", ["x" * 200, " "]), ("target", ["é" * 512]),
    ("tenant", ["é" * 255]), ("delay_s", [0, 0.5, 366 * 86_400 - 1e-6, 366 * 86_400]),
    ("deadline_s", [0.001, 7 * 86_400]), ("version", [1]),
    ("retry", [None, RetryPolicy(1), RetryPolicy(1, 0.001, 0.001)]), ("agent", ["x" * 64]),
    ("available_at", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]),
]


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in RIGHT for v in vs], ids=lambda v: repr(v)[:40])
def test_an_option_at_its_bounds_is_taken(driver: Driver, name: str, value: Any) -> None:
    """A4, C13, E2."""
    assert driver.state(driver.enqueue("echo", {}, **{name: value})) == "queued"


@pytest.mark.parametrize(("one", "other", "field", "code"), [
    ({"delay_s": 5}, {"available_at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay_s", "invalid_availability"),
    ({"deadline_s": 5}, {"deadline_at": datetime(2030, 1, 1, tzinfo=UTC)}, "deadline_s", "invalid_deadline"),
])
def test_two_ways_of_saying_one_thing_exclude_each_other(
        driver: Driver, one: dict[str, Any], other: dict[str, Any], field: str, code: str) -> None:
    """C13: deadline_at XOR deadline_s."""
    with pytest.raises(Invalid) as refusal:
        driver.enqueue("echo", {}, **one, **other)
    assert (refusal.value.field, refusal.value.reason_code) == (field, code)


@pytest.mark.parametrize(
    ("type_", "near"), [("ecko", "echo"), ("doc-sumary", None), (5, None), (None, None), ("", None)]
)
def test_an_unknown_type_names_the_nearest(driver: Driver, type_: Any, near: str | None) -> None:
    """A27, B12, E7: 422 unknown_job_type, nothing written."""
    with pytest.raises(Invalid) as refusal:
        intake.enqueue(type_, {})
    assert (refusal.value.reason_code, refusal.value.field) == ("unknown_job_type", "type")
    assert near is None or f"did you mean {near!r}" in refusal.value.message
    assert Job.objects.count() == 0


def test_an_unknown_option_is_refused_and_the_known_ones_are_listed(driver: Driver) -> None:
    """E15: misspelt words are never dropped silently."""
    with pytest.raises(Invalid) as refusal:
        driver.enqueue("echo", {}, prioroty=5)
    assert (refusal.value.reason_code, refusal.value.field) == ("unknown_field", "prioroty")
    assert "priority" in refusal.value.message


@pytest.mark.parametrize("input_", [{"value": 1}, {"other": "x"}, [], "x", {"value": "a\x00"}, {"value": float("nan")},
                                    {"value": "x" * 70_000}])
def test_an_input_that_the_codec_refuses_writes_nothing(driver: Driver, input_: Any) -> None:
    """B8, B9, B21."""
    with pytest.raises(Invalid):
        intake.enqueue("echo", input_, tenant="new")
    assert (Job.objects.count(), Tenant.objects.count()) == (0, 1)


@pytest.mark.parametrize(("agent", "group", "warned"), [("codex", "default", False), ("stranger", "unrouted", True)])
def test_an_unknown_agent_is_accepted_with_a_warning(
        driver: Driver, settings: Any, agent: str, group: str, warned: bool) -> None:
    """A26, E7: routed to the reserved group, where the first worker fails it."""
    settings.JOBS = {**settings.JOBS, "AGENTS": ("codex",)}
    answer = intake.enqueue("echo", {}, agent=agent)
    assert (driver.job(answer.id).worker_group, driver.job(answer.id).agent) == (group, agent)
    assert [w["code"] for w in answer.warnings] == (["unknown_agent"] if warned else [])


def test_the_effective_policy_is_the_requests_then_the_definitions_then_the_sites(
    driver: Driver, settings: Any
) -> None:
    """E4, C19."""
    def kept(type_: str, **options: Any) -> tuple[int | None, bool]:
        job = driver.job(driver.enqueue(type_, {}, **options))
        return job.max_attempts, job.dead_letter

    assert kept("echo") == (5, True)
    assert kept("breaks") == (2, True)
    assert kept("breaks", retry=RetryPolicy(7)) == (7, True)
    assert kept("breaks", retry=None) == (None, False)
    assert kept("never-retried") == (None, False)
    assert kept("slow") == (None, True)
    settings.JOBS = {**settings.JOBS, "RETRY": None}
    assert conf().RETRY is None
    assert kept("echo") == (None, False)


def test_a_disabled_definition_takes_no_new_jobs(driver: Driver) -> None:
    """B43, E7."""
    with pytest.raises(Refused) as refusal:
        driver.enqueue("disabled", {})
    assert refusal.value.reason_code == "definition_disabled"
