"""From a request to a published answer: evidence, then an answer, then the child that people read (B45).

Nothing is kept but jobs. A completed evidence asks for its answer under one key, told of its end or noticed by the
next reader, whichever comes first; the answer's artifact, written once and fenced by its generation, is the child.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from jobs.conf import conf
from jobs.errors import Conflict, Invalid, JobError, KeyReused, NotFound, Refused
from jobs.models import Job
from jobs.registry import Ended
from jobs.services import cancellation, intake
from jobs.services.intake import Door, Enqueued
from jobs.states import State
from jobsite.documents import sources
from jobsite.research.contents import ANSWER, EVIDENCE, MAX_DOCUMENT, Evidence, EvidenceAsked, Report

log = logging.getLogger("jobsite.research")
DOOR: Final = Door("research", "user", "site:research")
_SPLIT: Final = "//"


class NotRetryable(Conflict):
    """Only research that has failed or was cancelled is asked for again."""

    code = "research_not_retryable"


@dataclass(frozen=True, slots=True)
class Question:
    """One request for research: its stable identity, and the parent document, of which evidence knows nothing."""

    request_id: str
    document: str
    root: str = ""
    tenant: str | None = None

    def __post_init__(self) -> None:
        if not sources.is_relative(self.document):
            raise Invalid("must be the path of a Markdown file inside its folder", field="document",
                          code="invalid_document")
        folder = (self.root or str(settings.PROJECT_DIR)).rstrip("/")
        object.__setattr__(self, "root", folder)
        if not folder.startswith("/") or _SPLIT in folder or ".." in folder.split("/"):
            raise Invalid("must be an absolute path", field="root", code="invalid_root")

    @property
    def target(self) -> str:
        """What its jobs are about. Rows and people see it, runners do not."""
        return f"{self.request_id}:{self.root}{_SPLIT}{self.document}"

    @classmethod
    def of(cls, job: Job) -> Question:
        """The question that a job belongs to."""
        key = str(job.target.key if job.target else "").removeprefix(f"{job.type}:")
        request_id, _, path = key.partition(":")
        root, _, document = path.partition(_SPLIT)
        return cls(request_id, document, root, job.tenant.subject)


def newest(question: Question, type_: str = EVIDENCE) -> Job | None:
    """The newest job of a question, if there is one."""
    return (Job.objects.filter(type=type_, tenant__subject=question.tenant, tenant__workspace__slug=conf().WORKSPACE,
                               target__key=f"{type_}:{question.target}", generation__isnull=False)
            .select_related("target", "tenant", "artifact").order_by("-generation").first())


# --- asking --------------------------------------------------------------------------------------------------------


def ask(question: Question, brief: str, *, turn_id: str = "initial", door: Door = DOOR) -> Enqueued:
    """Look for evidence at once; the same request asked twice is one job. Raises Invalid and Refused."""
    return _evidence(question, brief, turn_id, 1, door)


def retry(question: Question, *, door: Door = DOOR) -> Enqueued:
    """Ask again for what has failed or was cancelled: the same request and brief, a new generation of evidence.

    Two at once are one. Raises NotFound, NotRetryable, and Refused where the tenant is archived.
    """
    evidence = newest(question)
    if evidence is None or not evidence.input:
        raise NotFound("There is no such research.")
    last = answer_of(evidence) or evidence
    if last.state not in (State.FAILED, State.CANCELLED):
        raise NotRetryable(f"This research is {last.state}.")
    asked = EvidenceAsked.model_validate_json(evidence.input)
    return _evidence(question, asked.brief, asked.turn_id, (evidence.generation or 0) + 1, door)


def cancel(question: Question, *, by: str) -> None:
    """Stop what runs or waits of it, where a user asked for it (B41).

    Raises NotFound, Refused not_a_users_research, and Conflict where it has ended.
    """
    evidence = newest(question)
    if evidence is None:
        raise NotFound("There is no such research.")
    if evidence.origin != "user":
        raise Refused("Only what a user asked for is cancelled by one.", code="not_a_users_research")
    cancellation.cancel((answer_of(evidence) or evidence).pk, by=by)


def _evidence(question: Question, brief: str, turn_id: str, generation: int, door: Door) -> Enqueued:
    given = {"request_id": question.request_id, "turn_id": turn_id, "brief": brief}
    return intake.enqueue(EVIDENCE, given, door=door, target=question.target, tenant=question.tenant,
                          idempotency_key=f"evidence-v1:{question.request_id}:{generation}")


# --- the answer ----------------------------------------------------------------------------------------------------


def collected(ended: Ended) -> None:
    """Told of each end of evidence: a completed one asks for its answer, any other publishes nothing (B34, B45)."""
    if ended.state != State.COMPLETED:
        return
    evidence = Job.objects.select_related("target", "tenant", "artifact").filter(pk=ended.job_id).first()
    try:
        if evidence is not None:
            ask_answer(evidence)
    except Refused as refused:
        # An archived or deleted parent gets no child. Should it come back, the next reader asks.
        log.info("evidence %s is not answered: %s", ended.job_id, refused.reason_code)


def answer_key(evidence: Job) -> str:
    """The one name of the answer to this evidence: whoever asks second finds it."""
    return f"answer-v1:{evidence.pk}"


def answer_of(evidence: Job) -> Job | None:
    """The answer that was asked for, if it was."""
    return (Job.objects.filter(tenant_id=evidence.tenant_id, idempotency_key=answer_key(evidence), type=ANSWER)
            .select_related("target", "tenant", "artifact").first())


def ask_answer(evidence: Job) -> Job | None:
    """Ask for the answer to completed evidence, once, with the parent document as it is now; None where it is stale.

    Raises JobError where the document cannot be read, and Refused where the tenant is archived.
    """
    made = getattr(evidence, "artifact", None)
    if evidence.target is None or evidence.generation != evidence.target.generation or made is None or not made.value:
        return None
    if known := answer_of(evidence):
        return known
    question, asked = Question.of(evidence), EvidenceAsked.model_validate_json(str(evidence.input))
    parent = sources.read(question.root, question.document)
    given: dict[str, Any] = {
        **asked.model_dump(), "evidence_job": str(evidence.pk),
        "evidence": Evidence.model_validate_json(made.value).model_dump(),
        "snapshot": {"document": question.document, "source_hash": parent.hash,
                     "text": parent.text.replace("\0", "\ufffd")[:MAX_DOCUMENT]}}
    # Somebody may have asked at the same moment, and the document have changed between us: theirs is the job.
    with contextlib.suppress(KeyReused):
        intake.enqueue(ANSWER, given, door=DOOR, target=question.target, tenant=question.tenant,
                       idempotency_key=answer_key(evidence))
    return answer_of(evidence)


def publish(run: Any, artifact: str, commit: Any) -> None:
    """Complete only if the report cites what the evidence retained, for a parent that still takes children (B33)."""
    refuse_uncited(Report.model_validate_json(artifact), run.input.evidence)
    if not Job.objects.filter(pk=run.job_id, tenant__archived_at=None).exists():
        raise JobError("parent_archived_refused", "The parent is archived: no child is published.", retryable=False)
    commit()


def refuse_uncited(report: Report, evidence: Evidence) -> None:
    """Raises JobError citation_refused for an address that is not among the evidence's."""
    if not {source.url for source in evidence.sources}.issuperset(report.cited):
        raise JobError("citation_refused", "The report cites an address that the evidence does not hold.",
                       retryable=False)
