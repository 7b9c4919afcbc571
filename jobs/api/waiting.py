"""The long poll of agents' clients: a job once it has ended, or as it stands after a while (A58).

Event streams succeed it, and say so in its headers. Under ASGI nobody holds a thread or a connection while waiting
(`events.beside`); else a thread of the server waits and looks, as it does for a runner's claim.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import Any, NamedTuple

from django.db import connection
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import clock, selectors
from jobs.api import parsing, shapes
from jobs.api.agents import spelled
from jobs.api.describing import ref, told, whole
from jobs.api.errors import Unauthenticated
from jobs.api.places import place
from jobs.api.security import caller, named_tenant, tenant_scope
from jobs.api.views import View, answer
from jobs.conf import conf
from jobs.errors import Invalid, JobsError
from jobs.live import access
from jobs.live.access import Bearer, TooMany
from jobs.live.follower import Follower
from jobs.live.hub import hub
from jobs.models import Job
from jobs.selectors import Seen
from jobs.services import assignments
from jobs.services.keys import Permission
from jobs.states import TERMINAL

DEFAULT_MS, MOST_MS = 15_000, 120_000
# 2026-01-01, by RFC 9745.
DEPRECATED = "@1767225600"
LOOK_S = 0.2
PING_S = 60.0
STANDING_S = 1.0
_MILLISECONDS = re.compile(r"[0-9]{1,30}")


_QUERY = {"timeoutMs": whole(0, MOST_MS, "Longest wait; more is cut", default=DEFAULT_MS)}


class Parked(NamedTuple):
    """A wait that its view has left to the loop."""

    bearer: Bearer
    seen: Seen
    seconds: float


class Wait(View):
    """`/jobs/{id}/wait`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: ref("JobInFull")}, query=_QUERY, refuses={404: "job_not_found", 429: "too_many_connections"})
    def get(self, request: Request, name: str) -> Response:
        """The job at its end; as it stands once `timeoutMs` are over (15,000; above 120,000 it is cut)."""
        seconds = _seconds(parsing.query(request, *_QUERY).get("timeoutMs"))
        job = selectors.job(tenant_scope(request), name)
        assignments.look_after(job)
        waited = getattr(request._request, "jobs_waited", None)
        if isinstance(waited, JobsError):
            raise waited
        if not job.ended and seconds > 0 and not waited:
            parked = Parked(caller(request).bearer(named_tenant(request)), _seen(job), seconds)
            if hasattr(request._request, "jobs_parked"):
                request._request.jobs_parked = parked
                return answer(None)
            _wait(parked)
            job = selectors.job(tenant_scope(request), name)
        successor = f'<{request.path.removesuffix("/wait")}/events>; rel="successor-version"'
        return answer(spelled(shapes.job(job)), ETag=shapes.etag(job), Deprecation=DEPRECATED, Link=successor)


def _seconds(said: str | None) -> float:
    if said is None:
        return DEFAULT_MS / 1_000
    if not _MILLISECONDS.fullmatch(said):
        raise Invalid(f"must be whole milliseconds from 0 to {MOST_MS}", field="timeoutMs", code="invalid_timeout_ms")
    return min(int(said), MOST_MS) / 1_000


def _seen(job: Job) -> Seen:
    return Seen(str(job.pk), job.tenant_id, job.worker_group, job.state, job.revision, job.number)


# --- on the loop ---------------------------------------------------------------------------------------------------


async def ended(parked: Parked) -> JobsError | None:
    """Wait without a thread until the job has ended, is gone, or may not be seen any more; in time. TooMany, if so."""
    here, follower = hub(), Follower(PING_S)
    try:
        here.open()
    except TooMany as error:
        return error
    try:
        async with asyncio.timeout(parked.seconds):
            await here.join(follower, parked.bearer)
            follower.of = parked.seen.id
            follower.watch(parked.seen, parked.seen.number)
            follower.ready = True
            # What came between reading the job and watching it.
            here.look(parked.seen.id)
            async with aclosing(follower.frames()) as frames:
                async for frame in frames:
                    if frame["type"] == "error" or frame.get("state") in TERMINAL:
                        return None
    except TimeoutError:
        return None
    except TooMany as error:
        return error
    finally:
        here.close(follower)
    return None


# --- in a thread ---------------------------------------------------------------------------------------------------


def _wait(parked: Parked) -> None:
    until, asked = clock.monotonic() + parked.seconds, clock.Every(STANDING_S, first_after_s=STANDING_S)
    with place(f"job:{parked.bearer.holder}", conf().LIVE_PER_HOLDER):
        while (left := until - clock.monotonic()) > 0:
            # Nothing of the database is held while waiting.
            connection.close()
            clock.sleep(min(left, LOOK_S))
            now: Any = selectors.seen([parked.seen.id]).get(parked.seen.id)
            if asked.due() and not _stands(parked.bearer):
                return
            if now is None or now.state in TERMINAL:
                break
        _stands(parked.bearer)


def _stands(bearer: Bearer) -> bool:
    """Whether it sees the job still. Raises where its key does not live any more."""
    over = access.ended([bearer]).get(bearer)
    if isinstance(over, access.Unauthenticated):
        raise Unauthenticated("This key is not live any more.")
    if isinstance(over, access.NotAllowed):
        raise over
    return over is None
