"""Event streams (SSE) of a job and of a tenant, by key: where they stand, then that there is news, never content (A59).

The views refuse like any other of the API; what they answer is sent by the loop, without a thread. `beside` serves them
in front of Django's handler, whose middleware would keep a thread for each stream; a WSGI server cannot stream.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import copy_context
from typing import Any

from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import Error
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.middleware.security import SecurityMiddleware
from django.urls import Resolver404, resolve
from rest_framework.request import Request

from jobs import clock, selectors
from jobs.api import assignments, fields, holding, parsing, runtime, waiting
from jobs.api.describing import text, told, whole
from jobs.api.errors import bad_request, unreachable
from jobs.api.history import MAX_NUMBER
from jobs.api.security import caller, named_tenant
from jobs.api.views import View
from jobs.errors import Invalid, JobsError, Refused
from jobs.live import access
from jobs.live.access import Bearer
from jobs.live.follower import Follower, Frame, refusal, standing
from jobs.live.hub import hub
from jobs.requests import identified
from jobs.selectors import Seen
from jobs.services.keys import Permission
from jobs.states import TERMINAL

PING_S = 5.0
# Then the client comes back by itself, with the number that it has read: no stream outlives a proxy's patience, and
# what a reader that does not read has piled up is dropped.
LONGEST_S = 600.0
PATHS = re.compile(r"/v1/(events|jobs/[^/]+/(events|wait))$")

_EVENTS = {"type": "string", "format": "event-stream"}
_QUERY = {"after": whole(0, MAX_NUMBER, "The number of the last receipt that was read"),
          "until": text("Ends with the job", among=("end",))}

Application = Callable[[Any, Any, Any], Awaitable[None]]


class NeedsAsgi(Refused):
    """Event streams need an ASGI server."""

    code = "needs_asgi"


class JobEvents(View):
    """`/jobs/{id}/events`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: _EVENTS}, query=_QUERY, headers=("Last-Event-ID",),
          refuses={404: "job_not_found", 429: "too_many_connections", 501: "needs_asgi"})
    def get(self, request: Request, name: str) -> Any:
        """The stream of one job; `Last-Event-ID` or `?after=` a receipt's number, `?until=end` ends with the job."""
        said = parsing.query(request, *_QUERY)
        if said.get("until", "end") != "end":
            raise Invalid("can be end", field="until", code="invalid_until")
        after = _after(request, said)
        bearer = _bearer(request)
        job = selectors.job(bearer.scope, name)
        seen = Seen(str(job.pk), job.tenant_id, job.worker_group, job.state, job.revision, job.number)
        return _stream(request, bearer, seen, after, "until" in said)


class TenantEvents(View):
    """`/events`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: _EVENTS}, refuses={429: "too_many_connections", 501: "needs_asgi"})
    def get(self, request: Request) -> Any:
        """The stream of a tenant: which of its jobs have news."""
        parsing.query(request)
        bearer = _bearer(request)
        selectors.known(bearer.scope)
        return _stream(request, bearer, None, None, False)


STREAMS: tuple[type[View], ...] = (JobEvents, TenantEvents, waiting.Wait)
HELD: tuple[type[View], ...] = (runtime.Claim, assignments.Extend)


def _bearer(request: Request) -> Bearer:
    return caller(request).bearer(named_tenant(request))


def _after(request: Request, said: dict[str, str]) -> int | None:
    last = request._request.META.get("HTTP_LAST_EVENT_ID")
    if last is not None and "after" not in said:
        said = {"after": last}
    return fields.whole(said, "after", 0, 0, MAX_NUMBER) if "after" in said else None


def _stream(request: Request, bearer: Bearer, seen: Seen | None, after: int | None, until_end: bool) -> Any:
    if not isinstance(request._request, ASGIRequest):
        raise NeedsAsgi()
    streamed = StreamingHttpResponse(_events(bearer, seen, after, until_end), content_type="text/event-stream")
    # For proxies that would collect an answer before they pass it on.
    streamed["X-Accel-Buffering"] = "no"
    return streamed


async def _events(bearer: Bearer, seen: Seen | None, after: int | None, until_end: bool) -> AsyncIterator[bytes]:
    here, follower, longest = hub(), Follower(PING_S), clock.Every(LONGEST_S, LONGEST_S)
    opened = False
    try:
        here.open()
        opened = True
        await here.join(follower, bearer)
        _begin(follower, bearer, seen, after)
        async with aclosing(follower.frames()) as frames:
            async for frame in frames:
                yield _event(frame)
                if until_end and frame.get("state") in TERMINAL:
                    yield _event({"type": "end"})
                    return
                if longest.due():
                    return
    except JobsError as error:
        yield _event(refusal(error))
    finally:
        if opened:
            here.close(follower)


def _begin(follower: Follower, bearer: Bearer, seen: Seen | None, after: int | None) -> None:
    if seen is None:
        follower.stream = bearer.scope.tenant_id
        follower.answer({"type": "init"})
    else:
        follower.of = seen.id
        follower.answer(standing("init", seen))
        if after is not None and after > seen.number:
            follower.resync()
        follower.watch(seen, seen.number if after is None else min(after, seen.number))
        hub().look(seen.id)
    follower.ready = True


def _event(frame: Frame) -> bytes:
    """A frame as an event; the number of a job's own is its id, which a client sends back (E12)."""
    kind = frame["type"]
    told = {name: value for name, value in frame.items() if name != "type"}
    id_ = f"id: {frame['number']}\n" if kind == "job" or (kind == "init" and "number" in frame) else ""
    return f"{id_}event: {kind}\ndata: {json.dumps(told, separators=(',', ':'))}\n\n".encode()


# --- without a thread ----------------------------------------------------------------------------------------------


def beside(application: Application) -> Application:
    """This ASGI application, with event streams, long polls and claims served in front of it."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        kind = _view(scope) if scope["type"] == "http" else None
        if kind in HELD:
            body, messages = await holding.body_of(receive)
            if holding.is_ours(scope, body):
                await holding.serve(scope, receive, send, body, messages, _guarded)
            else:
                await application(scope, holding.again(messages, receive), send)
        elif kind in STREAMS:
            await _serve(scope, receive, send)
        else:
            await application(scope, receive, send)

    return served


def _view(scope: Any) -> Any:
    """Which view of ours would be asked, by method and path: any other path counts on Django's middleware."""
    if not (PATHS.search(scope["path"]) if scope["method"] == "GET" else holding.concerns(scope)):
        return None
    try:
        return getattr(resolve(ASGIRequest(scope, io.BytesIO()).path_info).func, "cls", None)
    except Resolver404:
        return None


async def _serve(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    leaving = asyncio.create_task(receive())
    answering = asyncio.create_task(_response(ASGIRequest(scope, io.BytesIO())))
    try:
        if await _before(leaving, answering):
            response = answering.result()
            headers = [(name.encode(), value.encode("latin-1")) for name, value in response.items()]
            await _before(leaving, asyncio.create_task(_send(response, headers, send)))
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def _before(leaving: asyncio.Task[Any], work: asyncio.Task[Any]) -> bool:
    """Whether this is done before the client leaves; else it is given up."""
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _response(request: Any) -> HttpResponseBase:
    try:
        if not request.path.endswith("/wait"):
            return await access.asked(_respond, request)
        return await identified(_waited)(request)  # type: ignore[no-any-return]
    except (Error, OSError) as error:
        return unreachable(error)


async def _waited(request: Any) -> HttpResponseBase:
    """The view is asked once, and where it leaves a wait to us once more after that."""
    request.jobs_parked, here = None, copy_context()
    response: HttpResponseBase = await access.asked(here.run, _guarded, request)
    if request.jobs_parked is not None:
        request.jobs_waited = await waiting.ended(request.jobs_parked) or True
        response = await access.asked(here.run, _guarded, request)
    return response


async def _send(response: Any, headers: list[tuple[bytes, bytes]], send: Any) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    if response.streaming:
        async with aclosing(response.streaming_content) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if response.streaming else response.content})


def _respond(request: HttpRequest) -> HttpResponseBase:
    """As Django's handler would, with as much of the middleware as a stream can have."""
    return identified(_guarded)(request)  # type: ignore[no-any-return]


def _guarded(request: HttpRequest) -> HttpResponseBase:
    try:
        request.get_host()
    except DisallowedHost as error:
        return bad_request(request, error)
    return SecurityMiddleware(_answered)(request)  # type: ignore[return-value]


def _answered(request: HttpRequest) -> HttpResponseBase:
    found = resolve(request.path_info)
    answered: Any = found.func(request, *found.args, **found.kwargs)
    if not answered.streaming:
        answered.render()
    return answered  # type: ignore[no-any-return]
