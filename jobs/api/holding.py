"""Claims and heartbeats in front of Django's handler: nobody holds a thread or a connection while waiting (C31, E8).

The views are asked once, in one of a few threads of their own; what they leave to wait for, waits in the room. Whoever
is gone before the answer could be sent gives back what the claim brought; an answer that was sent and lost is asked for
again by its `request_id`. Under WSGI a thread waits and looks, and nobody hears of a client that is gone.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error
from django.http import HttpRequest, HttpResponseBase
from rest_framework.exceptions import APIException

from jobs.api.errors import unreachable
from jobs.api.parsing import limit
from jobs.errors import JobsError
from jobs.live.room import asked, room
from jobs.requests import identified

CLAIM = re.compile(r"/v1/runtime/claim$")
EXTEND = re.compile(r"/v1/assignments/[^/]+/extend$")
# Of a body that does not say so nobody will wait: it is answered as any other.
WAITS = b"wait_seconds"

Messages = list[dict[str, Any]]
Guarded = Callable[[HttpRequest], HttpResponseBase]
Respond = Callable[[Any, asyncio.Event], Coroutine[Any, Any, HttpResponseBase]]


def concerns(scope: Any) -> bool:
    """Whether this may be a request of ours, by its path alone."""
    return scope["method"] == "POST" and bool(CLAIM.search(scope["path"]) or EXTEND.search(scope["path"]))


async def body_of(receive: Any) -> tuple[bytes, Messages]:
    """The body as far as the site reads any, one byte too many at most, and what was received for it."""
    parts, messages, size = [], [], 0
    while True:
        message = await receive()
        messages.append(message)
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if not message.get("more_body") or size > limit():
            return b"".join(parts)[:limit() + 1], messages


def is_ours(scope: Any, body: bytes) -> bool:
    """Whether it is: every claim, and heartbeats that may wait."""
    return bool(CLAIM.search(scope["path"])) or WAITS in body


def again(messages: Messages, receive: Any) -> Callable[[], Awaitable[Any]]:
    """What was received, to be received once more by somebody else, and then what follows."""
    left = list(messages)

    async def received() -> Any:
        return left.pop(0) if left else await receive()

    return received


async def serve(scope: Any, receive: Any, send: Any, body: bytes, messages: Messages, guarded: Guarded) -> None:
    """Answer, and wait before where the view wants to."""
    if messages[-1]["type"] == "http.disconnect":
        return
    while messages[-1].get("more_body"):
        messages.append(await receive())
    request: Any = ASGIRequest(scope, io.BytesIO(body))
    request.jobs_parked = None
    await attended(request, receive, send, partial(_response, guarded=guarded))


async def attended(request: Any, receive: Any, send: Any, respond: Respond) -> None:
    """Answer, and undo what `request.jobs_undo` undoes where the client is gone before it could be answered."""
    request.jobs_undo = None
    left = asyncio.Event()
    leaving = asyncio.create_task(receive())
    leaving.add_done_callback(lambda _: left.set())
    # Never cancelled: what has been claimed must be known, so that it can be given back.
    work = asyncio.create_task(respond(request, left))
    try:
        response: Any = await asyncio.shield(work)
        if not left.is_set():
            await _send(response, send)
            request.jobs_undo = None
    except asyncio.CancelledError:
        left.set()
        await asyncio.wait({work})
        raise
    finally:
        leaving.cancel()
        await _undone(request)


async def _undone(request: Any) -> None:
    if request.jobs_undo is not None:
        undo, request.jobs_undo = request.jobs_undo, None
        await asked(undo)


async def _send(response: Any, send: Any) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.items()]
    headers.append((b"Content-Length", str(len(response.content)).encode()))
    if room().closed.is_set():
        headers.append((b"Connection", b"close"))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


async def _response(request: Any, left: asyncio.Event, guarded: Guarded) -> HttpResponseBase:
    async def waited(request: Any) -> HttpResponseBase:
        here = copy_context()
        response: Any = await asked(here.run, guarded, request)
        if (parked := request.jobs_parked) is not None and not left.is_set():
            request.jobs_parked = None
            try:
                answer = await room().wait(parked.line, parked, parked.look, holder=parked.holder,
                                           seconds=parked.seconds, left=left, lost=parked.lost)
            except (JobsError, APIException) as error:
                # The view knows how to say it.
                request.jobs_waited, answer = error, None
            response = await _after(request, response, answer, here, guarded)
        return response  # type: ignore[no-any-return]

    try:
        return await identified(waited)(request)  # type: ignore[no-any-return]
    except (Error, OSError) as error:
        return unreachable(error)


async def _after(request: Any, response: Any, answer: Any, here: Any, guarded: Guarded) -> HttpResponseBase:
    """The answer of a claim as the room brought it; a heartbeat is looked at once more."""
    if isinstance(answer, Brought):
        request.jobs_undo = answer.undo
        response.content = _json(answer.body)
    elif CLAIM.search(request.path) and not hasattr(request, "jobs_waited"):
        response.content = _json({"assignments": [], "again": room().closed.is_set()})
    else:
        request.jobs_waited = getattr(request, "jobs_waited", True)
        response = await asked(here.run, guarded, request)
    return response  # type: ignore[no-any-return]


class Brought:
    """The answer to a claim that has waited, and how it is undone where nobody takes it."""

    def __init__(self, body: dict[str, Any], undo: Callable[[], object]) -> None:
        self.body, self.undo = body, undo


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, cls=DjangoJSONEncoder).encode()
