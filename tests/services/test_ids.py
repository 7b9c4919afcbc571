"""Ids as callers write them: in any spelling of a UUID, and everything else is no job."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from jobs.conf import registry
from jobs.errors import JobNotFound, StaleFence
from jobs.models import Job
from jobs.services import cancellation, progress
from jobs.states import State
from tests import database as db
from tests.driver import Driver, check, refused
from tests.making import in_state

NO_ID = ["", "nope", "x" * 36, "018f3c6e", "a\x00b", "é" * 32, None, 5, b"\xff", ["a"]]
SPELLINGS: list[Callable[[str], Any]] = [str, str.upper, uuid.UUID, lambda id_: id_.replace("-", "")]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
@pytest.mark.parametrize("id_", NO_ID, ids=repr)
def test_what_is_no_id_is_no_job_and_leaves_the_callers_transaction_usable(
        driver: Driver, verb: str, id_: Any) -> None:
    """DESIGN 4, E2: job_not_found before any statement, so that nothing is poisoned."""
    with transaction.atomic():
        with pytest.raises(JobNotFound):
            getattr(cancellation, verb)(id_, by="user:x")
        assert Job.objects.count() == 0


def test_one_malformed_id_among_many_is_refused_in_its_place(driver: Driver) -> None:
    """E5: the others are cancelled, each once, in whatever spelling."""
    one, two = driver.enqueue(), driver.enqueue()
    with transaction.atomic():
        answers = cancellation.cancel_many(["nope", one, one.upper(), uuid.UUID(two), ""], by="user:x")
    refused(answers[0], "job_not_found")
    refused(answers[4], "job_not_found")
    assert [(a.job_id, a.repeated) for a in answers[1:4]] == [(one, False), (one, True), (two, False)]
    assert {driver.state(one), driver.state(two)} == {"cancelled"}
    assert [a.reason_code for a in cancellation.cancel_many(["nope"], by="user:x")] == ["job_not_found"]


@pytest.mark.parametrize("spell", SPELLINGS)
@pytest.mark.parametrize(("verb", "state"), [("cancel", State.QUEUED), ("pause", State.LEASED),
                                             ("resume", State.PAUSED)])
def test_every_spelling_of_an_id_means_its_job(
        driver: Driver, verb: str, state: State, spell: Callable[[str], Any]) -> None:
    """E2: and the answer names it as rows do."""
    made = in_state(driver, state)
    assert getattr(cancellation, verb)(spell(made.id), by="user:x").job_id == made.id
    check(made.id)


def test_a_holders_reports_take_every_spelling_too_and_refuse_the_rest(driver: Driver) -> None:
    """B30, C33: a malformed attempt is never the live one."""
    driver.enqueue("staged")
    job = driver.claim_one()
    staged = registry().current("staged")
    name = next(iter(staged.stages))
    upper = (job.id.upper(), uuid.UUID(job.fence))
    progress.stage(staged, *upper, name, "started", "test")  # type: ignore[arg-type]
    progress.checkpoint(*upper, 1, {}, "test")  # type: ignore[arg-type]
    assert progress.next_checkpoint(*upper, {}, "test") == 2  # type: ignore[arg-type]
    before = db.row_hash(job.id)
    for call in (lambda *ids: progress.stage(staged, *ids, name, "completed", "test"),
                 lambda *ids: progress.checkpoint(*ids, 3, {}, "test"),
                 lambda *ids: progress.next_checkpoint(*ids, {}, "test")):
        with pytest.raises(JobNotFound):
            call("nope", job.fence)
        with pytest.raises(StaleFence):
            call(job.id, "nope")
    assert db.row_hash(job.id) == before
    check(job.id)


def test_a_malformed_id_of_a_checkpoint_does_not_poison_the_callers_transaction(driver: Driver) -> None:
    """DESIGN 4: the read before it would."""
    with transaction.atomic():
        with pytest.raises(JobNotFound):
            progress.next_checkpoint("nope", "nope", {}, "test")
        assert Job.objects.count() == 0
