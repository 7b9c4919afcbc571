"""Random stories of a handful of jobs, told to the product and to a reference model; they must always agree.

`JOBSITE_LONG=1` tells 500 stories of 50 steps. A new verb is a rule of `Story` and what it does to a `Ref`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
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

from jobs import RetryPolicy, clock
from jobs.errors import JobEnded, JobsError, StaleFence
from jobs.models import Command, DeadLetter, Job
from jobs.services import intake, recovery, throttles
from jobs.store.claim import Claimed
from jobs.store.moves import Moved
from tests import database as db
from tests.driver import Driver, check
from tests.making import default_workspace
from tests.races.threads import LONG

COUNTED = ("state", "claims", "chain", "chain_claims", "failures", "lapses", "releases", "interruptions", "pauses")
# Time passes in steps, between which every wait of a retry and every lease ends; a deadline holds for one of them.
STEP_S, DEADLINE_S, LATER_S = 1_000, 1_500, 200
# What may be enqueued: type, policy, most attempts (None: never retried), most claims.
KINDS: dict[str, tuple[str, Any, int | None, int | None]] = {
    "retried": ("echo", RetryPolicy(max_attempts=3, base_delay_s=200, max_delay_s=400), 3, None),
    "tried once": ("echo", RetryPolicy(max_attempts=1), 1, None),
    "never retried": ("never-retried", None, None, None),
    "bounded": ("bounded", RetryPolicy(max_attempts=9, base_delay_s=200, max_delay_s=400), 9, 3),
}
MAX_LAPSES = 10
ACTIVE = ("queued", "leased", "running", "paused")


@dataclass
class Ref:
    """What a job must be by E1, E4 and E5, in the fewest words: the model that the product is compared with.

    `abort` is a pending one; `told` are the commands to read that nobody has consumed, `ignored` an abort that a
    completion has overtaken.
    """

    max_attempts: int | None = 3
    max_claims: int | None = None
    deadline_s: int | None = None
    state: str = "queued"
    due: bool = True
    held: Any = None
    late: bool = False
    abort: bool = False
    ignored: bool = False
    told: list[str] = field(default_factory=list)
    letter: str | None = None
    deadline: int | None = None
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

    def claim(self, held: Any, now: int) -> None:
        self.claims, self.chain_claims = self.claims + 1, self.chain_claims + 1
        if self.deadline_s is not None and self.chain_claims == 1:
            self.deadline = now + self.deadline_s
        self.to("leased", held=held)

    def complete(self) -> None:
        """It wins over a pending abort, which nobody has honoured (E1)."""
        self.ignored = self.abort
        self.to("completed")

    def asked_to_stop(self) -> None:
        """A queued or paused job stops at once; who holds one is asked (E5)."""
        if self.held:
            self.abort = True
        else:
            self.to("cancelled")

    def back(self, counter: str, to: str = "queued") -> None:
        """A release, an interruption or a pause: no failure, and the end where an abort is pending."""
        setattr(self, counter, getattr(self, counter) + 1)
        self.to("cancelled" if self.abort else to)

    def interrupt(self, now: int) -> None:
        """Past the deadline nothing may start it again (C21)."""
        was_past = self.is_past(now) and not self.abort
        self.back("interruptions")
        if was_past:
            self.end("deadline_exceeded")

    def may_release(self, now: int) -> bool:
        """Only before the deadline (C32); who is asked to stop may."""
        return self.abort or not self.is_past(now)

    def fail(self, final: bool, now: int) -> None:
        self.failures += 1
        refused = "terminal_error" if final else "retry_not_allowed" if self.max_attempts is None else None
        self._spend(refused, now, due=False)

    def lapse(self, now: int) -> None:
        self.lapses += 1
        self.failures += not self.abort and self.max_attempts is not None
        self._spend("quarantined" if self.lapses >= MAX_LAPSES else None, now, due=self.lapses == 1)

    def _spend(self, ended: str | None, now: int, due: bool) -> None:
        if ended is None and self.max_attempts is not None and self.failures >= self.max_attempts:
            ended = "attempts_exhausted"
        if ended is None and self.is_past(now):
            ended = "deadline_exceeded"
        if self.abort:
            self.to("cancelled")
        elif ended:
            self.end(ended)
        else:
            self.to("queued", due)

    def end(self, reason: str) -> None:
        """Failed for good: a letter, unless its policy is none; always for one that keeps killing its workers."""
        self.letter = reason if self.max_attempts is not None or reason == "quarantined" else None
        self.to("failed")

    def is_past(self, now: int) -> bool:
        return self.deadline is not None and now >= self.deadline

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def spent(self) -> bool:
        return self.max_claims is not None and self.chain_claims >= self.max_claims

    @property
    def gate(self) -> str | None:
        """What keeps it from being claimed: its claims are spent, or it is not due."""
        if self.state != "queued":
            return None
        return "spent" if self.spent else None if self.due else "scheduled"

    def requeue(self) -> None:
        self.chain, self.letter, self.deadline = self.chain + 1, None, None
        self.chain_claims = self.failures = self.lapses = self.releases = self.interruptions = self.pauses = 0
        self.to("queued")


@dataclass
class Asked:
    """How a job was asked for."""

    type: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        return int(self.options["priority"])

    @property
    def target(self) -> tuple[str, str] | None:
        return (self.type, self.options["target"]) if self.options["target"] else None

    @property
    def session(self) -> str | None:
        return self.options.get("session_key")


class Story(RuleBasedStateMachine):
    """Verbs in any order; each says what the model expects, refusals too."""

    def __init__(self) -> None:
        super().__init__()
        self.refs: dict[str, Ref] = {}
        self.asked: dict[str, Asked] = {}
        self.steers: list[tuple[Asked, str]] = []
        self.past: list[Claimed] = []
        self.now = 0

    @initialize(kinds=st.lists(st.sampled_from(list(KINDS)), min_size=4, max_size=4))
    def begin(self, kinds: list[str]) -> None:
        db.reset_clock()
        db.empty()
        self.driver = Driver()
        for n, kind in enumerate(kinds):
            self.make(kind, n % 2, None, None, None)

    def held(self) -> list[tuple[str, Ref]]:
        return [(i, r) for i, r in self.refs.items() if r.held]

    # -- asking ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.refs) < 8)
    @rule(kind=st.sampled_from(list(KINDS)), priority=st.integers(-2, 2), thing=st.sampled_from([None, "a", "a"]),
          delay_s=st.sampled_from([None, 500]), deadline_s=st.sampled_from([None, DEADLINE_S]),
          mode=st.sampled_from([None, "allow", "cancel", "steer"]))
    def enqueue(self, kind: str, priority: int, thing: str | None, delay_s: int | None, deadline_s: int | None,
                mode: str | None) -> None:
        self.make(kind, priority, thing, delay_s, deadline_s, mode)

    def make(self, kind: str, priority: int, thing: str | None, delay_s: int | None, deadline_s: int | None,
             mode: str | None = None) -> None:
        type_, policy, max_attempts, max_claims = KINDS[kind]
        session = {} if mode is None else {"session_key": "s", "singleton": mode}
        asked = Asked(type_, {"retry": policy, "priority": priority, "target": thing, "delay_s": delay_s,
                              "deadline_s": deadline_s, "idempotency_key": f"key {len(self.refs) + len(self.steers)}",
                              **session})
        count = Job.objects.count()
        answer = intake.enqueue(type_, {}, **asked.options)
        check(answer.id)
        steered = self.singleton(mode)
        assert (answer.steered, answer.repeated) == (steered is not None, False)
        if steered is not None:
            assert (answer.id, Job.objects.count()) == (steered, count)
            self.steers.append((asked, steered))
            self.refs[steered].told.append(self.newest_command(steered))
            return
        for i, ref in self.refs.items():
            if asked.target is not None and self.asked[i].target == asked.target and ref.active:
                ref.to("superseded")
        self.refs[answer.id] = Ref(max_attempts, max_claims, deadline_s, due=delay_s is None)
        self.asked[answer.id] = asked

    def singleton(self, mode: str | None) -> str | None:
        """E3.4 and E3.5: dead workers' jobs of the key are recovered first; the job that is steered, if one is."""
        if mode not in ("cancel", "steer"):
            return None
        same = {i: r for i, r in self.refs.items() if self.asked[i].session == "s"}
        for ref in same.values():
            if ref.late:
                ref.lapse(self.now)
        active = {i: r for i, r in same.items() if r.active}
        if mode == "steer":
            return max(active, default=None)
        for ref in active.values():
            ref.asked_to_stop()
        return None

    def newest_command(self, job_id: str) -> str:
        return str(Command.objects.filter(job_id=job_id).latest("created_at", "id").pk)

    @precondition(lambda self: self.steers)
    @rule(data=st.data())
    def steer_again(self, data: Any) -> None:
        """E3.1: the repeat of a request that became a command is that command, whatever its job has come to."""
        asked, job_id = data.draw(st.sampled_from(self.steers))
        before = [db.row_hash(i) for i in self.refs]
        answer = intake.enqueue(asked.type, {}, **asked.options)
        assert (answer.id, answer.repeated, answer.steered) == (job_id, True, True)
        assert [db.row_hash(i) for i in self.refs] == before

    @rule(data=st.data(), differs=st.booleans())
    def ask_again(self, data: Any, differs: bool) -> None:
        """E3: a repeat has no effect, however the job has fared; the key with something else is refused."""
        job_id = data.draw(st.sampled_from(sorted(self.refs)))
        asked = self.asked[job_id]
        before, count = db.row_hash(job_id), Job.objects.count()
        if differs:
            with pytest.raises(JobsError):
                intake.enqueue("noop", {}, **asked.options)
        else:
            answer = intake.enqueue(asked.type, {}, **asked.options)
            assert (answer.id, answer.repeated) == (job_id, True)
        assert (db.row_hash(job_id), Job.objects.count()) == (before, count)

    # -- holding -----------------------------------------------------------------------------------------------------

    def waiting(self) -> dict[str, Ref]:
        return {i: r for i, r in self.refs.items()
                if r.state == "queued" and r.due and not r.spent and not r.is_past(self.now)}

    @precondition(lambda self: self.waiting())
    @rule(slots=st.integers(2, 4))
    def claim(self, slots: int) -> None:
        waiting = self.waiting()
        jobs = self.driver.claim(slots)
        assert len(jobs) == min(slots, len(waiting))
        left = [self.asked[i].priority for i in waiting if i not in {j.id for j in jobs}]
        for job in jobs:
            assert not left or self.asked[job.id].priority >= max(left)
            waiting[job.id].claim(job, self.now)
            self.past.append(job)

    @precondition(lambda self: self.waiting())
    @rule(kind=st.sampled_from(["type", "tenant"]))
    def claim_while_one_is_paused(self, kind: str) -> None:
        """C9: only others begin meanwhile, and nothing is left behind once it is resumed."""
        waiting, where = self.waiting(), default_workspace()
        free = {i for i in waiting if kind == "type" and self.asked[i].type != "echo"}
        name = "echo" if kind == "type" else ""
        throttles.pause(kind, name, by="ann", reason="they are down", workspace=where)
        # The first look may be spent on putting aside.
        jobs = self.driver.claim(8)
        jobs += self.driver.claim(8)
        throttles.resume(kind, name, by="ann", workspace=where)
        assert {job.id for job in jobs} == free
        for job in jobs:
            waiting[job.id].claim(job, self.now)
            self.past.append(job)

    @precondition(lambda self: not self.waiting())
    @rule()
    def claim_in_vain(self) -> None:
        assert self.driver.claim(4) == []

    @precondition(lambda self: self.held())
    @rule(data=st.data(), way=st.sampled_from(["fail", "fail for good", "release", "interrupt", "complete", "stop"]))
    def end(self, data: Any, way: str) -> None:
        job_id, ref = data.draw(st.sampled_from(self.held()))
        verbs = {"complete": ref.complete, "stop": lambda: ref.to("cancelled"),
                 "fail": lambda: ref.fail(False, self.now), "fail for good": lambda: ref.fail(True, self.now),
                 "release": lambda: ref.back("releases"), "interrupt": lambda: ref.interrupt(self.now)}
        job, before = ref.held, db.row_hash(job_id)
        answer = (self.driver.fail(job, retryable=False) if way == "fail for good"
                  else getattr(self.driver, way)(job))
        if way == "release" and not ref.may_release(self.now):
            assert isinstance(answer, JobsError)
            assert db.row_hash(job_id) == before
            return
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
        assert beats[ref.held.fence].unread == bool(ref.told)
        ref.late = False

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def ask_to_stop(self, data: Any) -> None:
        job_id, ref = data.draw(st.sampled_from(self.held()))
        assert self.driver.send(job_id, "abort").repeated == ref.abort
        ref.abort = True

    @precondition(lambda self: self.refs)
    @rule(data=st.data(), kind=st.sampled_from(["steer", "follow_up", "abort"]))
    def command(self, data: Any, kind: str) -> None:
        """E5: told to what is active and refused by what has ended; an abort of what is cancelled is a quiet yes."""
        job_id = data.draw(st.sampled_from(sorted(self.refs)))
        ref, before = self.refs[job_id], db.row_hash(job_id)
        quiet = kind == "abort" and (ref.state == "cancelled" or ref.abort)
        if not ref.active and not quiet:
            with pytest.raises(JobEnded):
                self.driver.send(job_id, kind)
            assert db.row_hash(job_id) == before
            return
        sent = self.driver.send(job_id, kind)
        assert sent.repeated == quiet
        if quiet:
            assert db.row_hash(job_id) == before
        elif kind == "abort":
            ref.asked_to_stop()
        else:
            ref.told.append(str(sent.command))

    @precondition(lambda self: any(r.told for _, r in self.held()))
    @rule(data=st.data())
    def read(self, data: Any) -> None:
        """E12: consumed once, and another time a quiet yes."""
        job_id, ref = data.draw(st.sampled_from([(i, r) for i, r in self.held() if r.told]))
        some = data.draw(st.lists(st.sampled_from(ref.told), min_size=1, unique=True))
        assert self.driver.consume(ref.held, *some) == len(some)
        before = db.row_hash(job_id)
        assert self.driver.consume(ref.held, *some) == 0
        assert db.row_hash(job_id) == before
        ref.told = [id_ for id_ in ref.told if id_ not in some]

    @precondition(lambda self: self.past and any(r.told for r in self.refs.values()))
    @rule(data=st.data())
    def read_late(self, data: Any) -> None:
        job = data.draw(st.sampled_from(self.past))
        ref, before = self.refs[job.id], db.row_hash(job.id)
        if not ref.told or (ref.held is not None and ref.held.fence == job.fence):
            return
        with pytest.raises(StaleFence):
            self.driver.consume(job, *ref.told)
        assert db.row_hash(job.id) == before

    @precondition(lambda self: self.past)
    @rule(data=st.data(), way=st.sampled_from(["complete", "fail", "release", "interrupt", "stop", "start"]))
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

    # -- people ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.refs)
    @rule(data=st.data(), blindly=st.booleans(),
          verb=st.sampled_from(["requeue", "resume", "resume later", "pause", "discard", "cancel"]))
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
            if verb == "resume later":
                self.driver.resume(job_id, available_at=clock.now() + timedelta(seconds=LATER_S))
            else:
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
            case "resume" | "resume later" if ref.is_past(self.now):
                ref.end("deadline_exceeded")
            case "resume" | "resume later":
                ref.to("queued", due=verb == "resume")
            case "requeue":
                ref.requeue()
            case "discard":
                ref.letter = None
            case "cancel":
                ref.to("cancelled")

    def allows(self, job_id: str, verb: str) -> bool:
        ref = self.refs[job_id]
        return {"cancel": ref.active or ref.state == "cancelled",
                "pause": ref.state in ("queued", "leased", "running"), "resume": ref.state == "paused",
                "resume later": ref.state == "paused", "requeue": ref.letter is not None and self.is_newest(job_id),
                "discard": ref.letter is not None}[verb]

    def is_newest(self, job_id: str) -> bool:
        target = self.asked[job_id].target
        return target is None or [i for i, a in self.asked.items() if a.target == target][-1] == job_id

    # -- time and loops ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.held() or any(not r.due or r.deadline for r in self.refs.values()))
    @rule()
    def pass_time(self) -> None:
        self.driver.pass_time(STEP_S)
        self.now += STEP_S
        for ref in self.refs.values():
            ref.due, ref.late = True, ref.held is not None

    @precondition(lambda self: any(r.late for r in self.refs.values()))
    @rule()
    def recover(self) -> None:
        lapsed = [ref for ref in self.refs.values() if ref.late]
        assert self.driver.recover() == len(lapsed)
        for ref in lapsed:
            ref.lapse(self.now)

    @rule()
    def end_what_may_not_start(self) -> None:
        """E1, C15: queued jobs past their deadline, and those out of claims, fail by a loop."""
        recovery.deadlines()
        for job_id, ref in self.refs.items():
            if ref.state == "queued" and (ref.is_past(self.now) or ref.spent):
                ref.end("deadline_exceeded" if ref.is_past(self.now) else "attempts_exhausted")
                check(job_id)

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        opened = DeadLetter.objects.filter(resolved_at=None).values_list("job_id", "reason")
        letters = {str(job_id): why for job_id, why in opened}
        unread = Command.objects.filter(consumed_at=None)
        told = {(str(job_id), str(pk)) for job_id, pk in unread.exclude(kind="abort").values_list("job_id", "pk")}
        assert told == {(i, command) for i, ref in self.refs.items() for command in ref.told}
        aborts = sorted(str(job_id) for job_id in unread.filter(kind="abort").values_list("job_id", flat=True))
        assert aborts == sorted(i for i, ref in self.refs.items() if ref.abort or ref.ignored)
        for job in Job.objects.all():
            ref = self.refs[str(job.pk)]
            assert {n: getattr(job, n) for n in COUNTED} == {n: getattr(ref, n) for n in COUNTED}
            assert job.gate == ref.gate
            assert letters.get(str(job.pk)) == ref.letter
            assert (job.abort_reason is not None) == (ref.abort or ref.ignored)
            assert str(job.attempt_id) == (ref.held.fence if ref.held else "None")

    def teardown(self) -> None:
        for job_id in self.refs:
            check(job_id)
        db.reset_clock()


@pytest.mark.slow
@pytest.mark.timeout(7_200 if LONG else 300)
def test_the_product_and_the_model_tell_the_same_story(database: None) -> None:
    """E1, E3 to E5, E14.1 to E14.3, E14.19, E14.22, A14 to A17: random verbs in random order, legal and refused."""
    run_state_machine_as_test(Story, settings=settings(
        max_examples=500 if LONG else 50, stateful_step_count=50 if LONG else 40, deadline=None,
        suppress_health_check=list(HealthCheck)))
