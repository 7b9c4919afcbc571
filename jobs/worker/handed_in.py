"""What a runner hands in over HTTP: settled, by way of the publication hook where its definition has one (B33).

The hook runs here, as around a handler of ours. A request waits for it no longer than the hook may take.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from typing import Any

from jobs import selectors
from jobs.conf import conf, registry
from jobs.errors import Conflict, Refused, StaleFence
from jobs.models import Key
from jobs.outcomes import Completed, Failed
from jobs.registry import Definition
from jobs.selectors import Assignment
from jobs.services import noted, overtime, runners
from jobs.services.runners import Settled
from jobs.states import State
from jobs.worker.connection import close_all
from jobs.worker.context import Run
from jobs.worker.publication import Commit, publish
from jobs.worker.results import Published, Result

# Hooks that hang keep their threads: no more of them than a process can bear.
MOST = 32
log = logging.getLogger("jobs.runners")
_publishing: set[str] = set()
_guard = threading.Lock()


class NotPublished(Conflict):
    """The publication hook did not commit this result: the attempt has failed with that."""

    code = "not_published"


class NotStored(Refused):
    """The result could not be stored for now; hand it in again."""

    code = "not_stored"


def complete(key: Key, name: str, artifact: Any) -> Settled:
    """Settle as completed, once the codec has taken the artifact and the hook, if there is one, has committed it.

    Raises NotFound, StaleFence, DurationExceeded, NotPublished, and Invalid: then the attempt stays live. Durable.
    """
    return hand_in(key, selectors.assignment(key.pk, name), artifact)


def publishes(held: Assignment) -> bool:
    """Whether a completion goes by way of a hook, and so alone."""
    return registry().exact(held.type, held.version).publish is not None and held.live


def hand_in(key: Key, held: Assignment, artifact: Any) -> Settled:
    """`complete`, of an assignment as it was read."""
    definition = registry().exact(held.type, held.version)
    done = runners.completed(held, artifact)
    if definition.publish is None or not held.live:
        return runners.settle(key, held, done)
    runners.check_time(key, held)
    result = _published(key, held, definition, done)
    if isinstance(result, Published):
        noted.end(held, done)
        return Settled(held.job_id, State.COMPLETED, False)
    if not isinstance(result, Failed):
        raise NotStored(retry_after_s=1)
    return _failed(key, held, result)


def _published(key: Key, held: Assignment, definition: Definition, done: Completed) -> Result:
    """What became of the hook, in a thread that a hook which hangs may keep. Raises NotStored, before it is called."""
    by = runners.actor(key)
    job = runners.claimed(held)
    run = Run(job, definition, by)
    commit = Commit(job, run, done, by)
    found: list[Result] = []
    _take_place(held)

    def work() -> None:
        try:
            found.append(publish(definition, job, run, done, commit))
        finally:
            _leave(held)
            close_all()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="jobs-publish", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The system has no more threads.
        _leave(held)
        raise NotStored(retry_after_s=1) from None
    thread.join(conf().PUBLISH_S)
    if found:
        return found[0]
    # From here on its commit is too late, unless it is on its way: then the fence decides.
    run.stop("publish_timeout")
    run.publishing = True
    return Published() if commit.committed else run.timed_out()


def _take_place(held: Assignment) -> None:
    """One of the places, one an attempt: who hands in again meanwhile waits. Raises NotStored."""
    with _guard:
        if held.id in _publishing:
            raise NotStored("This result is being published.", retry_after_s=1)
        if len(_publishing) >= MOST:
            log.error("%d publication hooks run in this process, and no more may", MOST,
                      extra={"event": "publication.full", "type": f"{held.type}@{held.version}"})
            raise NotStored(retry_after_s=1)
        _publishing.add(held.id)


def _leave(held: Assignment) -> None:
    with _guard:
        _publishing.discard(held.id)


def _failed(key: Key, held: Assignment, failed: Failed) -> Settled:
    """Settle what the hook did not commit, as around a handler; a commit that was on its way may have been first."""
    try:
        if failed.code == StaleFence.code:
            raise overtime.refusal(selectors.assignment(key.pk, held.id))
        ended = runners.settle(key, held, failed)
    except StaleFence as error:
        now = selectors.assignment(key.pk, held.id)
        if now.outcome == "completed":
            return Settled(held.job_id, State(now.state), False)
        raise error
    code = failed.code if failed.code in ("not_published", "publish_timeout") else "publication_failed"
    raise NotPublished(failed.message.strip().splitlines()[-1][:400] if failed.message.strip() else "", code=code,
                       status=ended.state)
