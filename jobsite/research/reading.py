"""What people see of a request: a card, and the child once it is ready. Reading repairs what was interrupted (B34).

Derived from jobs at each read, so that it is never behind and never has to be mended by hand.
"""

from __future__ import annotations

from typing import NamedTuple

from jobs.codecs import parse
from jobs.errors import JobError, NotFound, Refused
from jobs.models import Job
from jobs.states import State
from jobsite.research import chain, report
from jobsite.research.chain import Question
from jobsite.research.contents import ANSWER, AnswerAsked, Prepared, Report

WAITING = (State.QUEUED, State.PAUSED)


class Child(NamedTuple):
    """A published answer: one for a request, linked to it by its jobs."""

    request_id: str
    parent: str
    title: str
    mdx: str
    sources: list[str]
    job_id: str
    evidence_job_id: str


class Card(NamedTuple):
    """A request as its card shows it; `reason` is a code where it failed."""

    request_id: str
    state: str
    generation: int
    reason: str | None = None
    child: Child | None = None


def card(question: Question) -> Card:
    """The card: queued, searching, analyzing, writing, publishing, ready, failed or cancelled. Raises NotFound.

    A completed evidence whose answer nobody has asked for, because a process died in between, is asked for here.
    """
    evidence = chain.newest(question)
    if evidence is None:
        raise NotFound("There is no such research.")
    generation = evidence.generation or 1
    if evidence.state != State.COMPLETED:
        return Card(question.request_id, _state(evidence), generation, _reason(evidence))
    try:
        answer = chain.ask_answer(evidence)
        if answer is None:
            raise JobError("evidence_erased", "The evidence is there no more.", retryable=False)
        child = _child(question, answer) if answer.state == State.COMPLETED else None
    except (JobError, Refused) as error:
        return Card(question.request_id, "failed", generation, error.reason_code)
    return Card(question.request_id, "ready" if child else _state(answer), generation, _reason(answer), child)


def _state(job: Job) -> str:
    """The card's word for a job that has brought nothing yet, or will not."""
    if job.ended:
        return "failed" if job.state == State.FAILED else "cancelled"
    if job.type == ANSWER:
        return _stage(job)
    return "queued" if job.state in WAITING else "searching"


def _reason(job: Job) -> str | None:
    return job.reason if job.ended and job.state != State.COMPLETED else None


def _stage(answer: Job) -> str:
    told = parse(answer.progress) if answer.progress else {}
    if told.get("stage") != "write":
        return "analyzing"
    return "publishing" if told.get("event") == "completed" else "writing"


def _child(question: Question, answer: Job) -> Child:
    made = getattr(answer, "artifact", None)
    if made is None or not made.value or not answer.input:
        raise JobError("answer_erased", "The answer is there no more.", retryable=False)
    asked, told = AnswerAsked.model_validate_json(answer.input), Report.model_validate_json(made.value)
    # Looked at again: what an older site let through is no child either.
    chain.refuse_uncited(told, asked.evidence)
    return Child(question.request_id, asked.snapshot.document, told.title,
                 report.mdx(told, asked.evidence.sources), told.cited, str(answer.pk), asked.evidence_job)


def prepared(job: Job, generation: int) -> Prepared | None:
    """The brief of a completed `research-brief`, unless the offer has moved on, or it names what was not chosen."""
    made = getattr(job, "artifact", None)
    if job.state != State.COMPLETED or made is None or not made.value or not job.input:
        return None
    asked, told = parse(job.input), Prepared.model_validate_json(made.value)
    fits = (told.offer_id, told.generation) == (asked["offer_id"], asked["generation"])
    chosen = {source["id"] for source in asked["sources"]}
    return told if fits and told.generation == generation and chosen.issuperset(told.sources) else None
