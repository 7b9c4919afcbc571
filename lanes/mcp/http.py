"""The tools at `/mcp`: streamable HTTP beside the API, under the API's own rules for keys, rates, ids and hosts.

Stateless: each POST carries its key and is answered by one JSON message, so no session can outlive its key, be fixed or
be taken over, and any web process may answer the next one. GET and DELETE, which are for sessions, are refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpResponse, HttpResponseBase
from rest_framework.exceptions import MethodNotAllowed

from jobs import codecs
from jobs.api.errors import UnsupportedMedia, answered
from jobs.api.holding import attended, body_of
from jobs.api.parsing import StrictJSONParser, limit
from jobs.api.security import TENANT_HEADER, WORKSPACE_HEADER
from jobs.conf import api_middleware
from jobs.errors import Invalid, Refused
from jobs.live.room import room
from jobs.models import Key
from jobs.services import grants, rates
from lanes.mcp.calls import Call, asked, live

PATH: Final = "/mcp"
_CALL: Final = "jobs.call"

Application = Callable[[Any, Any, Any], Awaitable[None]]


def beside(application: Application) -> Application:
    """This ASGI application, with the tools in front of it."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == scope.get("root_path", "") + PATH:
            await _serve(scope, receive, send)
        else:
            await application(scope, receive, send)

    return served


async def _serve(scope: Any, receive: Any, send: Any) -> None:
    body, messages = await body_of(receive)
    while messages[-1].get("more_body"):
        messages.append(await receive())
    if messages[-1]["type"] != "http.disconnect":
        request: Any = ASGIRequest(scope, io.BytesIO(body))
        request.jobs_body = body
        await attended(request, receive, send, _respond)


async def _respond(request: Any, left: asyncio.Event) -> HttpResponseBase:
    request.jobs_left = left
    answer, waits = _chain()
    # As Django's own handler: middleware that knows no coroutines keeps a thread of this request's as long as that
    # waits. Where all of them know coroutines nobody who waits has one.
    async with nullcontext() if waits else ThreadSensitiveContext():
        return await answer(request)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _chain() -> tuple[Any, bool]:
    """The answer behind the API's middleware, each of them guarded as Django guards its own.

    And whether all of that knows coroutines.
    """
    adapted = BaseHandler().adapt_method_mode
    answer: Any = convert_exception_to_response(_answer)
    known = [bool(getattr(middleware, "async_capable", False)) for middleware in api_middleware()]
    for middleware, waits in zip(reversed(api_middleware()), reversed(known), strict=True):
        answer = adapted(waits, answer, method_is_async=True)
        answer = adapted(True, convert_exception_to_response(middleware(answer)), method_is_async=waits)
    return answer, all(known)


async def _answer(request: Any) -> HttpResponseBase:
    request.jobs_rate = None
    try:
        # Raises DisallowedHost: names that are not ours lead here by a trick.
        request.get_host()
        response: HttpResponseBase
        key = await asked(_admitted, request)
        if len(request.jobs_body) > limit():
            raise codecs.too_large(limit())
        _check_form(request)
        response = await _spoken(request, Call(lambda: key, request.jobs_left))
    except Exception as error:
        response = answered(error)
        if isinstance(error, MethodNotAllowed):
            response["Allow"] = "POST"
    response["Cache-Control"] = "no-store"
    if request.jobs_rate is not None:
        response["RateLimit-Policy"], response["RateLimit"] = request.jobs_rate.policy, request.jobs_rate.state
    return response


def _admitted(request: Any) -> Key:
    """The key of a request that may be read.

    Raises Refused foreign_origin, Unauthenticated, RateLimited, WorkspaceNotFound, Invalid and MethodNotAllowed.
    """
    _check_origin(request)
    scheme, _, said = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    key = live(said.strip() if scheme.lower() == "bearer" else "")
    # For the line in the log.
    request.auth = key
    request.jobs_rate = rates.nothing_left(key)
    request.jobs_rate = rates.spend(key)
    _check_place(request, key)
    if request.method != "POST":
        raise MethodNotAllowed(request.method, detail="Tools are called by POST; there are no sessions here.")
    return key


def _check_place(request: Any, key: Key) -> None:
    """What the API's headers would say of workspace and tenant is not passed over in silence."""
    if request.META.get(WORKSPACE_HEADER, key.workspace.slug) != key.workspace.slug:
        raise grants.WorkspaceNotFound(field="workspace")
    if TENANT_HEADER in request.META:
        raise Invalid("A tenant is named in the arguments of a tool, or the key is of one.", field="X-Tenant-Subject",
                      code="invalid_tenant_subject")


def _check_form(request: Any) -> None:
    """Raises UnsupportedMedia, and Invalid for bodies that two readers may take for two things."""
    StrictJSONParser.check_type(request.META.get("CONTENT_TYPE", ""))
    if request.META.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        raise UnsupportedMedia("Bodies are read as they are, without an encoding.", field="Content-Encoding")
    try:
        codecs.parse(request.jobs_body, max_bytes=limit())
    except Invalid as error:
        # The rest the protocol refuses by its own words.
        if error.reason_code == "duplicate_key":
            raise


def _check_origin(request: Any) -> None:
    origin = request.META.get("HTTP_ORIGIN")
    if origin is None or origin in settings.CSRF_TRUSTED_ORIGINS:
        return
    try:
        said = urlsplit(origin)
        fits = (said.scheme, said.netloc.lower()) == (request.scheme, request.get_host().lower())
    except ValueError:
        fits = False
    if not fits:
        raise Refused("Pages of other sites may not call tools, unless CSRF_TRUSTED_ORIGINS names theirs.",
                      field="Origin", code="foreign_origin")


async def _spoken(request: Any, call: Call) -> HttpResponse:
    """What the SDK answers to the body of this request."""
    parts: list[Any] = [{"type": "http.request", "body": request.jobs_body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not parts:
            await call.left.wait()
            return {"type": "http.disconnect"}
        return parts.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    async with _running() as manager:
        await manager.handle_request({**request.scope, _CALL: call}, receive, send)
    request.jobs_undo = call.undo
    begun = next(message for message in sent if message["type"] == "http.response.start")
    content = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    headers = dict(begun.get("headers", ()))
    return HttpResponse(content, status=begun["status"],
                        content_type=headers.get(b"content-type", b"application/json").decode("latin-1"))


# --- the SDK's manager -----------------------------------------------------------------------------------------------


class _Running:
    """The SDK's session manager in a task of one event loop.

    Daphne tells no application that it begins: the first call starts it, all that come meanwhile wait for the same. It
    ends when the process's waiting room closes, once nobody is served by it.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Any] = loop.create_future()
        self._idle = asyncio.Event()
        self._served = 0
        # Not in the context of the first request, whose id it would carry for ever.
        self._task = loop.create_task(self._run(), context=contextvars.Context())
        self._task.add_done_callback(lambda _: self._leave(loop))

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whoever comes from now on starts another one."""
        if _loops.get(loop) is self:
            del _loops[loop]

    async def _run(self) -> None:
        try:
            made = await asked(_sdk)
            manager = made()
            async with manager.run():
                self._started.set_result(manager)
                await room().closed.wait()
                while self._served:
                    self._idle.clear()
                    await self._idle.wait()
                # Before it ends, which takes a few turns of the loop.
                self._leave(asyncio.get_running_loop())
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def __aenter__(self) -> Any:
        self._served += 1
        # Whoever gives up must not take it away from the others.
        return await asyncio.shield(self._started)

    async def __aexit__(self, *error: object) -> None:
        self._served -= 1
        if not self._served:
            self._idle.set()


def _sdk() -> Callable[[], Any]:
    """What makes a manager. Here, since the SDK costs a web process 0.7 s and 20 MB, which most never need."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from lanes.mcp import server

    made = server.make(lambda context: context.request.scope[_CALL])
    return lambda: StreamableHTTPSessionManager(made, json_response=True, stateless=True, max_request_body_size=limit())


_loops: dict[asyncio.AbstractEventLoop, _Running] = {}


def _running() -> _Running:
    """The one of this loop; a new one where the last has ended."""
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Running()
    return found
