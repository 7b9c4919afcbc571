"""The API's requests in front of Django's handler: read by the loop, answered by one thread.

Django's handler gives each request a thread of its own and walks it through every middleware of the site, most of which
(sessions, CSRF, messages) mean nothing to a caller with a key; that took three times as long as an enqueue. What the
API needs of them `JOBS["API_MIDDLEWARE"]` names. What may take seconds (`View.waits`) stays with Django's handler.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.exception import convert_exception_to_response
from django.db import Error, connections
from django.http import HttpRequest, HttpResponseBase
from django.urls import Resolver404, resolve

from jobs.api.errors import unreachable
from jobs.api.views import View
from jobs.conf import api_middleware

THREADS: Final = 8

Application = Callable[[Any, Any, Any], Awaitable[None]]


def straight(application: Application) -> Application:
    """This ASGI application, with the API's requests that wait for nothing answered in front of it."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        asked = _asked(scope) if scope["type"] == "http" and "/v1/" in scope["path"] else None
        if asked is None:
            await application(scope, receive, send)
            return
        request, body = asked
        if not await _read(receive, body, request.resolver_match.func.cls.longest()):
            return
        answered = await asyncio.get_running_loop().run_in_executor(_threads(), _answer, request)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in answered.items()]
        await send({"type": "http.response.start", "status": answered.status_code, "headers": headers})
        content = b"" if scope["method"] == "HEAD" else getattr(answered, "content", b"")
        await send({"type": "http.response.body", "body": content})

    return served


def _asked(scope: Any) -> tuple[Any, io.BytesIO] | None:
    """The request and where its body goes, if one of our views answers it that waits for nothing."""
    body = io.BytesIO()
    try:
        request: Any = ASGIRequest(scope, body)
        found = resolve(request.path_info)
    except (Resolver404, UnicodeDecodeError):
        # Django's handler has a refusal for a query that is no text.
        return None
    kind = getattr(found.func, "cls", None)
    if kind is None or not issubclass(kind, View) or scope["method"] in kind.waits:
        return None
    request.resolver_match = found
    return request, body


async def _read(receive: Any, body: io.BytesIO, longest: int) -> bool:
    """Whether the body has come to its end; of one that is too long a byte more than may be is kept, to be refused."""
    most = longest + 1
    while True:
        told = await receive()
        if told["type"] == "http.disconnect":
            return False
        if (room := most - body.tell()) > 0:
            body.write(told.get("body", b"")[:room])
        if not told.get("more_body"):
            body.seek(0)
            return True


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-api")


def _answer(request: HttpRequest) -> HttpResponseBase:
    try:
        return _chain()(request)
    except (Error, OSError) as error:
        return unreachable(error)
    finally:
        connections.close_all()


@lru_cache(maxsize=1)
def _chain() -> Callable[[HttpRequest], HttpResponseBase]:
    """The view behind the API's middleware, each of them guarded as Django guards its own."""
    answer: Any = convert_exception_to_response(_viewed)
    for middleware in reversed(api_middleware()):
        answer = convert_exception_to_response(middleware(answer))
    return answer  # type: ignore[no-any-return]


def _viewed(request: Any) -> HttpResponseBase:
    # Raises DisallowedHost.
    request.get_host()
    found = request.resolver_match
    answered: Any = found.func(request, *found.args, **found.kwargs)
    return answered.render() if hasattr(answered, "render") else answered  # type: ignore[no-any-return]
