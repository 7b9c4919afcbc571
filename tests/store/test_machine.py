"""Random stories of a handful of jobs, told to the product and to a reference model; they must always agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jobs import RetryPolicy
from jobs.errors import JobsError
from jobs.models import DeadLetter, Job
from jobs.receipts import Kind
from jobs.store.claim import Claimed
from jobs.store.moves import Fact, Moved, record
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check

COUNTED = ("state", "claims", "chain", "chain_claims", "failures", "lapses", "releases", "interruptions", "pauses")
POLICY = RetryPolicy(max_attempts=3, base_delay_s=200, max_delay_s=400)
LONG_S = 1_000


@dataclass
class Ref:
    """What a job must be, in the fewest words: the model that the product is compared with."""

    priority: int
    target: str | None
    state: str = "queued"
    due: bool = True
    held: Any = None
    late: bool = False
    abort: bool = False
    letter: bool = False
    claims: int = 0
    chain: int = 1
    chain_claims: int = 0
    failures: int = 0
    lapses: int = 0
    releases: int = 0
    interruptions: int = 0
    pauses: int = 0

    def to(self, state: str, due: bool = True, held: Any = None) -> None:
        self.state, self.due, self.held, self.late = state, due, held, False
        self.abort = self.abort and held is not None

    def claim(self, held: Any) -> None:
        self.claims, self.chain_claims = self.claims + 1, self.chain_claims + 1
        self.to("leased", held=held)

    def back(self, counter: str, to: str = "queued") -> None:
        """A release, an interruption or a pause: uncounted, unless an abort is pending."""
        setattr(self, counter, getattr(self, counter) + 1)
        self.to("cancelled" if self.abort else to)

    def fail(self, final: bool) -> None:
        self.failures += 1
        self._spend(final, due=False)

    def lapse(self) -> None:
        self.lapses += 1
        if not self.abort:
            self.failures += 1
        self._spend(False, due=self.lapses == 1)

    def _spend(self, final: bool, due: bool) -> None:
        if self.abort:
            self.to("cancelled")
        elif final or self.failures >= 3:
            self.letter = True
            self.to("failed")
        else:
            self.to("queued", due)

    def requeue(self) -> None:
        self.chain, self.letter = self.chain + 1, False
        self.chain_claims = self.failures = self.lapses = self.releases = self.interruptions = self.pauses = 0
        self.to("queued")


class Story(RuleBasedStateMachine):
    """Verbs in any order; each says what the model expects, refusals too."""

    def __init__(self) -> None:
        super().__init__()
        self.refs: dict[str, Ref] = {}
        self.past: list[Claimed] = []

    @initialize()
    def begin(self) -> None:
        db.empty()
        self.driver = Driver()
        for n in range(4):
            self.make(n % 2, None, None)

    def held(self) -> list[tuple[str, Ref]]:
        return [(i, r) for i, r in self.refs.items() if r.held]

    @precondition(lambda self: len(self.refs) < 8)
    @rule(priority=st.integers(-2, 2), thing=st.sampled_from([None, "a", "a"]), delay_s=st.sampled_from([None, 500]))
    def enqueue(self, priority: int, thing: str | None, delay_s: float | None) -> None:
        self.make(priority, thing, delay_s)

    def make(self, priority: int, thing: str | None, delay_s: float | None) -> None:
        job_id = self.driver.enqueue("echo", retry=POLICY, priority=priority, target=thing, delay_s=delay_s)
        for ref in self.refs.values():
            if thing is not None and ref.target == thing and ref.state in ("queued", "leased", "running", "paused"):
                ref.to("superseded")
        self.refs[job_id] = Ref(priority, thing, due=delay_s is None)

    def waiting(self) -> dict[str, Ref]:
        return {i: r for i, r in self.refs.items() if r.state == "queued" and r.due}

    @precondition(lambda self: self.waiting())
    @rule(slots=st.integers(2, 4))
    def claim(self, slots: int) -> None:
        waiting = self.waiting()
        jobs = self.driver.claim(slots)
        assert len(jobs) == min(slots, len(waiting))
        left = [r.priority for i, r in waiting.items() if i not in {j.id for j in jobs}]
        for job in jobs:
            assert not left or waiting[job.id].priority >= max(left)
            waiting[job.id].claim(job)
            self.past.append(job)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), way=st.sampled_from(["fail", "fail for good", "release", "interrupt", "complete", "stop"]))
    def end(self, data: Any, way: str) -> None:
        job_id, ref = data.draw(st.sampled_from(self.held()))
        verbs = {"complete": lambda: ref.to("completed"), "stop": lambda: ref.to("cancelled"),
                 "fail": lambda: ref.fail(False), "fail for good": lambda: ref.fail(True),
                 "release": lambda: ref.back("releases"), "interrupt": lambda: ref.back("interruptions")}
        job = ref.held
        answer = (self.driver.fail(job, retryable=False) if way == "fail for good"
                  else getattr(self.driver, way)(job))
        assert isinstance(answer, Moved), job_id
        verbs[way]()
        assert answer.state == ref.state

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def start(self, data: Any) -> None:
        _, ref = data.draw(st.sampled_from(self.held()))
        answer = self.driver.start(ref.held)
        assert isinstance(answer, Moved) == (ref.state == "leased")
        ref.state = "running"

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def beat(self, data: Any) -> None:
        _, ref = data.draw(st.sampled_from(self.held()))
        beats = self.driver.extend(ref.held)
        assert (beats[ref.held.fence].abort is not None) == ref.abort
        ref.late = False

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def ask_to_stop(self, data: Any) -> None:
        job_id, ref = data.draw(st.sampled_from(self.held()))
        assert isinstance(
            durable(lambda: record([Fact(job_id, Kind.COMMAND, {"by": "x"}, abort_reason="enough")]))[0], Moved
        )
        ref.abort = True

    @precondition(lambda self: self.past)
    @rule(data=st.data(), way=st.sampled_from(["complete", "fail", "release", "interrupt", "stop"]))
    def settle_late(self, data: Any, way: str) -> None:
        job = data.draw(st.sampled_from(self.past))
        held = self.refs[job.id].held
        if held is not None and held.fence == job.fence:
            return
        before = db.row_hash(job.id)
        answer = getattr(self.driver, way)(job)
        assert isinstance(answer, JobsError) or answer.repeated
        assert self.driver.extend(job) == {}
        assert db.row_hash(job.id) == before

    @precondition(lambda self: self.refs)
    @rule(data=st.data(), blindly=st.booleans(),
          verb=st.sampled_from(["requeue", "resume", "pause", "discard", "cancel"]))
    def order(self, data: Any, verb: str, blindly: bool) -> None:
        self.do(data, verb, blindly)

    @precondition(lambda self: any(r.letter for r in self.refs.values()))
    @rule(data=st.data(), verb=st.sampled_from(["requeue", "requeue", "discard"]))
    def answer_a_letter(self, data: Any, verb: str) -> None:
        self.do(data, verb, blindly=False)

    def do(self, data: Any, verb: str, blindly: bool) -> None:
        fit = [i for i in sorted(self.refs) if self.allows(i, verb)]
        job_id = data.draw(st.sampled_from(sorted(self.refs) if blindly or not fit else fit))
        ref, before, allowed = self.refs[job_id], db.row_hash(job_id), self.allows(job_id, verb)
        try:
            getattr(self.driver, verb)(job_id)
        except (JobsError, DeadLetter.DoesNotExist):
            assert not allowed
            assert db.row_hash(job_id) == before
            return
        assert allowed
        match verb:
            case "pause" if ref.held:
                ref.back("pauses", "paused")
            case "pause":
                ref.to("paused")
            case "resume":
                ref.to("queued")
            case "requeue":
                ref.requeue()
            case "discard":
                ref.letter = False
            case "cancel":
                ref.to("cancelled")

    def allows(self, job_id: str, verb: str) -> bool:
        ref = self.refs[job_id]
        return {"cancel": ref.state in ("queued", "leased", "running", "paused", "cancelled"),
                "pause": ref.state in ("queued", "leased", "running"), "resume": ref.state == "paused",
                "requeue": ref.letter and self.is_newest(job_id), "discard": ref.letter}[verb]

    def is_newest(self, job_id: str) -> bool:
        target = self.refs[job_id].target
        return target is None or [i for i, r in self.refs.items() if r.target == target][-1] == job_id

    @precondition(lambda self: self.held() or any(not r.due for r in self.refs.values()))
    @rule()
    def pass_time(self) -> None:
        self.driver.pass_time(LONG_S)
        for ref in self.refs.values():
            ref.due, ref.late = True, ref.held is not None

    @precondition(lambda self: any(r.late for r in self.refs.values()))
    @rule()
    def recover(self) -> None:
        lapsed = [ref for ref in self.refs.values() if ref.late]
        assert self.driver.recover() == len(lapsed)
        for ref in lapsed:
            ref.lapse()

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        open_letters = {str(i) for i in DeadLetter.objects.filter(resolved_at=None).values_list("job_id", flat=True)}
        for job in Job.objects.all():
            ref = self.refs[str(job.pk)]
            assert {n: getattr(job, n) for n in COUNTED} == {n: getattr(ref, n) for n in COUNTED}
            assert job.gate == ("scheduled" if ref.state == "queued" and not ref.due else None)
            assert (str(job.pk) in open_letters) == ref.letter
            assert str(job.attempt_id) == (ref.held.fence if ref.held else "None")

    def teardown(self) -> None:
        for job_id in self.refs:
            check(job_id)
        db.reset_clock()


@pytest.mark.slow
def test_the_product_and_the_model_tell_the_same_story(database: None) -> None:
    """E1, E4, E14.1, E14.2, E14.3, E14.19, E14.22: random verbs in random order, legal and refused."""
    run_state_machine_as_test(Story, settings=settings(
        max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)))
