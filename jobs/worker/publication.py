"""The publication hook: the freshness gate between a valid artifact and its settlement (B33).

The hook gets 10 s (JOBS["PUBLISH_S"]) to call `commit()`, once. What it does after its commit undoes nothing.
"""

from __future__ import annotations

import logging

from django.db import InterfaceError, InternalError, OperationalError

from jobs import clock, failpoints
from jobs.conf import conf
from jobs.errors import JobsError
from jobs.outcomes import Completed, Failed
from jobs.registry import Definition
from jobs.services import settlement, tenancy
from jobs.services.assignments import Answer, Claimed, Locked
from jobs.services.settlement import Report
from jobs.worker.connection import let_go
from jobs.worker.context import Run
from jobs.worker.results import NOT_STORED, PUBLISHED, TOO_LATE, Result, failure

log = logging.getLogger("jobs.worker")


class Commit:
    """The `commit` of a publication hook: settles the attempt as completed, once and while the claim is live (B33)."""

    def __init__(self, job: Claimed, run: Run, done: Completed, by: str) -> None:
        self._run, self._by = run, by
        self._report, self._tenant_id = Report(job.id, job.fence, done), job.tenant_id
        self.committed = False
        self.unstored = False
        self.over = False

    def __call__(self) -> None:
        """Settle now. Raises JobsError when late, twice, after the claim was lost, and for an archived tenant (B37)."""
        if self.committed:
            raise JobsError("commit() was called twice.", code="already_committed")
        if self._late():
            raise JobsError("commit() came too late.", code="too_late")
        failpoints.at("publish.committing")
        answer = self._settle()
        # Somebody's open transaction holds the row: nothing else is to be done here than to ask again.
        while isinstance(answer, Locked) and not self._late():
            answer = self._settle()
        if isinstance(answer, JobsError):
            raise answer
        self.committed = True
        self._told()
        failpoints.at("publish.committed")

    def _late(self) -> bool:
        return self.over or self._run.stop_reason in TOO_LATE

    def _told(self) -> None:
        self._run.note_settled()

    def _settle(self) -> Answer:
        """Storage that fails for a moment is no failure of the job: the same settlement may be sent again (E5)."""
        for tried in range(1, settlement.TRIES + 1):
            try:
                return tenancy.inactive(self._tenant_id) or settlement.settle([self._report], self._by)[0]
            except (OperationalError, InterfaceError, InternalError) as error:
                if isinstance(error, InternalError) and not settlement.is_read_only(error):
                    raise
                let_go(error)
                if tried == settlement.TRIES:
                    self.unstored = True
                    raise
                clock.sleep(0.15 * tried)
        raise AssertionError("unreachable")


class JoiningCommit(Commit):
    """The same inside the handler's own transaction: it settles when that commits, or not at all (DESIGN 6)."""

    def _told(self) -> None:
        """Nothing is settled before the COMMIT, which tells by itself."""

    def _settle(self) -> Answer:
        try:
            return tenancy.inactive(self._tenant_id) or settlement.settle_within(self._report, self._by)
        except BaseException:
            # Whatever it was, the transaction is lost, and the job has not failed.
            self.unstored = True
            raise


def publish(definition: Definition, job: Claimed, run: Run, done: Completed, commit: Commit) -> Result:
    """Call the hook; what it means: PUBLISHED, a failure, or that the commit could not be stored."""
    run.begin_publishing(conf().PUBLISH_S)
    try:
        definition.publish(run, done.artifact, commit)  # type: ignore[misc]
    except BaseException as error:
        if commit.unstored and not commit.committed:
            return NOT_STORED
        if not commit.committed:
            return failure(error)
        log.exception("the publication hook of job %s failed after its commit; the completion stands", job.id)
    finally:
        commit.over = True
    return PUBLISHED if commit.committed else Failed("not_published", "The publication hook did not commit.")
