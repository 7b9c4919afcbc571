"""A person's two answers to a dead letter: requeue or discard (C22 to C29). They join the caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jobs import failpoints
from jobs.conf import registry
from jobs.errors import Conflict, IllegalMove, Invalid, JobsError, KeyReused, Refused
from jobs.models import DeadLetter
from jobs.receipts import Kind
from jobs.services import budgets, editing, words
from jobs.services.cancellation import answered, check_reason
from jobs.states import Verb
from jobs.store import letters, windows
from jobs.store.letters import Letter
from jobs.store.moves import Answer, Moved, apply, note
from jobs.store.sql import joining
from jobs.store.verbs import Move
from jobs.store.windows import Kind as Spending

GIVEN = object()


class TargetSuperseded(Conflict):
    """A newer request for the same target has taken this job's place."""

    code = "target_superseded"


class NotDeadLettered(IllegalMove):
    """The job has no open dead letter."""

    code = "not_dead_lettered"


class InputRedacted(Conflict):
    """The input of this job was redacted: it can be requeued with another one only."""

    code = "input_redacted"


class Signature(NamedTuple):
    """Who gave an answer, as the key that handed it in attests, and the idempotency key of the answer (C27, C28)."""

    key: str | None = None
    actor_kind: str | None = None
    actor_ref: str | None = None


def requeue(letter: DeadLetter, *, by: str, reason: str = "requeued", input: Any = GIVEN,
            limited: bool = False) -> Moved:
    """Start a new chain of the job, its last checkpoint kept (C27, E4); with `input` another one than it had.

    `limited`: the tenant's rate of requeues binds it (C28), so that it may raise RateLimited.

    A changed input passes the codec of the job's definition; what was changed stands in a receipt (E12). Raises
    NotDeadLettered, TargetSuperseded, InputRedacted, RateLimited (the retry budget, which each requeue spends), Refused
    (archived tenant) and Invalid (version no longer registered, bad input).
    """
    check_reason(reason)
    with joining(savepoint=True):
        if input is not GIVEN:
            _change(letter, by, reason, input)
        return answered(requeue_many([letter.pk], by=by, reason=reason, limited=limited)[0])


def _change(letter: DeadLetter, by: str, reason: str, input: Any) -> None:
    found = letters.lock([letter.pk]).get(letter.pk)
    if found is None:
        raise NotDeadLettered()
    if (refusal := _refusal(found._replace(redacted=False))) is not None:
        raise refusal
    editing.change(found.job_id, input, by=by, reason=reason)


def requeue_many(letter_ids: Sequence[int], *, by: str, reason: str = "requeued",
                 bulk: int | None = None, limited: bool = False) -> list[Answer]:
    """Requeue each; a refusal stands in its place and changes nothing for the others.

    `bulk` names a bulk operation; `limited`: the rates of their tenants bind them (C28).
    """
    check_reason(reason)
    answers: dict[int, Answer] = {}
    with joining(savepoint=True):
        found = letters.lock(letter_ids)
        answers = {pk: refusal for pk, letter in found.items() if (refusal := _refusal(letter)) is not None}
        wanted = [letter for pk, letter in found.items() if pk not in answers]
        # The rate first, and what the budget refuses comes back to it. The house's own jobs have neither.
        bound = [letter for letter in wanted if not letter.house]
        over = _over(Spending.REQUEUE, bound) if limited else {}
        broke = _over(Spending.RETRY, [letter for letter in bound if letter.id not in over])
        if limited and broke:
            windows.give_back(Spending.REQUEUE, Counter(w.tenant_id for w in bound if w.id in broke))
        answers |= over | broke
        wanted = [letter for letter in wanted if letter.id not in answers]
        facts = {} if bulk is None else {"bulk": bulk}
        moves = [Move(w.job_id, Verb.REQUEUE, by=by, reason=reason, facts=dict(facts)) for w in wanted]
        answers |= {w.id: answer for w, answer in zip(wanted, apply(moves), strict=True)}
        failpoints.at("requeue.written")
    return [answers.get(pk) or NotDeadLettered() for pk in letter_ids]


def _refusal(letter: Letter) -> JobsError | None:
    """Why this job may not start again, if it may not (E4)."""
    if letter.archived:
        return Refused("This tenant is archived and takes no new work.", code="tenant_archived")
    if registry().find(letter.type, letter.version) is None:
        return Invalid(f"{letter.type}@{letter.version} is not registered any more.", field="type",
                       code="unregistered_version")
    if letter.superseded:
        return TargetSuperseded()
    return InputRedacted() if letter.redacted else None


def _over(kind: Spending, wanted: Sequence[Letter]) -> dict[int, JobsError]:
    """Those beyond what their tenants may spend for now; the others are counted (C20, C28, E4)."""
    room = Counter(windows.take(kind, Counter(letter.tenant_id for letter in wanted)))
    refused: dict[int, JobsError] = {}
    told: dict[int, JobsError] = {}
    for letter in wanted:
        room[letter.tenant_id] -= 1
        if room[letter.tenant_id] < 0:
            if letter.tenant_id not in told:
                told[letter.tenant_id] = budgets.refusal(letter.tenant_id, kind)
            refused[letter.id] = told[letter.tenant_id]
    return refused


def signed(letter: DeadLetter, signature: Signature, answer: Callable[..., Moved], *, reason: str,
           **said: Any) -> Moved | None:
    """Give an answer, requeue or discard, under a signature; None where the same one was given before (C27, C28).

    Raises KeyReused for another answer under a known key, and what the answer raises.
    """
    words.key(signature.key, "idempotency_key")
    if _before(letter, signature, answer, reason):
        return None
    try:
        with joining(savepoint=True):
            moved = answer(letter, reason=reason, **said)
            letters.sign([letter.pk], *signature)
            return moved
    except NotDeadLettered:
        # The same words at the same moment: one of the two was first.
        if _before(letter, signature, answer, reason):
            return None
        raise


def _before(letter: DeadLetter, signature: Signature, answer: Callable[..., Moved], reason: str) -> bool:
    if signature.key is None:
        return False
    known = DeadLetter.objects.filter(job_id=letter.job_id, answer_key=signature.key).order_by("-pk").first()
    if known is None:
        return False
    word = "requeued" if answer is requeue else "discarded"
    if (known.resolution, known.resolve_reason, known.actor_kind, known.actor_ref) != (
            word, reason, signature.actor_kind, signature.actor_ref):
        raise KeyReused()
    return True


def discard(letter: DeadLetter, *, by: str, reason: str = "discarded") -> Moved:
    """Close the letter; the job stays failed (C29). Raises NotDeadLettered."""
    return answered(discard_many([letter.pk], by=by, reason=reason)[0])


def discard_many(letter_ids: Sequence[int], *, by: str, reason: str = "discarded",
                 bulk: int | None = None) -> list[Answer]:
    """Discard each; a refusal stands in its place."""
    check_reason(reason)
    answers: dict[int, Answer] = {}
    with joining(savepoint=True):
        found = letters.lock(letter_ids, targets=False)
        closed = letters.resolve(list(found), "discarded", by, reason, bulk) if found else set()
        mine = [letter for pk, letter in found.items() if pk in closed]
        facts = {"by": by, "reason": reason, "bulk": bulk}
        written = note(Kind.DISCARDED, [(letter.job_id, facts) for letter in mine])
        answers = {letter.id: answer for letter, answer in zip(mine, written, strict=True)}
    return [answers.get(pk) or NotDeadLettered() for pk in letter_ids]
