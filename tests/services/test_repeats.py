"""The second hash: when a request in process is the same as an earlier one with its key (B15, E6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs import RetryPolicy
from jobs.errors import Refused
from jobs.services import intake
from jobs.services.intake import Options, Request, enqueue_many
from tests import database as db
from tests.driver import Driver

WHEN = datetime(2199, 1, 1, tzinfo=UTC)
SOON = datetime.now(UTC) + timedelta(hours=1)
OTHERS: list[dict[str, Any]] = [
    {"target": "other"}, {"queue": "chat"}, {"priority": 1}, {"version": 1}, {"delay_s": 5}, {"available_at": WHEN},
    {"deadline_s": 60}, {"deadline_at": SOON}, {"retry": None}, {"retry": RetryPolicy(max_attempts=2)},
    {"session_key": "s"}, {"exclusive_group": "g"}, {"agent": "codex"}]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: next(iter(other)))
def test_another_option_is_another_request(driver: Driver, other: dict[str, Any]) -> None:
    """B15: input alone does not make a repeat; a default that was left out or written does not make another request."""
    first = intake.enqueue("echo", {}, idempotency_key="k", **other)
    assert intake.enqueue("echo", {"value": ""}, idempotency_key="k", **other).id == first.id
    with pytest.raises(Refused) as refusal:
        intake.enqueue("echo", {"value": ""}, idempotency_key="k")
    assert refusal.value.reason_code == "idempotency_key_reused"
    with pytest.raises(Refused):
        intake.enqueue("echo", {}, idempotency_key="k")
    assert driver.job(first.id).claims == 0


def test_another_origin_and_another_door_are_another_request(driver: Driver) -> None:
    """B15, B13: the door stamps the origin."""
    intake.enqueue("echo", {}, idempotency_key="k")
    for door in (intake.TIMER, intake.Door("python", "planner", "x"), intake.Door("http", "user", "key:x")):
        for input_ in ({}, {"value": ""}):
            with pytest.raises(Refused):
                intake.enqueue("echo", input_, idempotency_key="k", door=door)


def test_every_door_in_process_has_the_second_hash_and_others_have_none(driver: Driver) -> None:
    """B15, E6: also the timer's; a request over HTTP is compared as it was sent, and without a key there is nothing."""
    timed = intake.enqueue("echo", {}, idempotency_key="t", door=intake.TIMER)
    assert intake.enqueue("echo", {"value": ""}, idempotency_key="t", door=intake.TIMER).id == timed.id
    sent = Request("echo", {}, Options(idempotency_key="h"), sent={"type": "echo"})
    made = enqueue_many([sent], door=intake.Door("http", "user", "key:x"))[0]
    found = {job: hash_ is not None for job, hash_ in db.rows("SELECT id::text, normal_hash FROM jobs_job")}
    assert found == {timed.id: True, made.id: False}
    assert driver.job(driver.enqueue()).normal_hash is None


def test_in_a_batch_each_has_its_own(driver: Driver) -> None:
    """B15: keyed and unkeyed together, said again in another order and another form."""
    made = enqueue_many([Request("echo", {"value": str(n)}, Options(idempotency_key=f"k{n}" if n % 2 else None))
                         for n in range(6)])
    again = enqueue_many([Request("echo-thread", {})] + [
        Request("echo", {"path": "", "value": str(n)}, Options(idempotency_key=f"k{n}")) for n in (5, 3, 1)])
    assert [a.id for a in again[1:]] == [made[n].id for n in (5, 3, 1)]
    assert [a.repeated for a in again] == [False, True, True, True]
    with pytest.raises(Refused):
        enqueue_many([Request("echo", {"value": "1"}, Options(idempotency_key="k1", priority=1))])
