"""Websockets that follow a job or everything: people with their session, callers with a key (A59, A60, E12).

One coroutine reads what the client says, one obeys it, one writes what its follower has for it; when one of them ends,
all do. A disconnect waits for no database (case-H05). Frames are JSON; the README of the package lists them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator, WebsocketDenier
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.db import Error
from django.urls import path, re_path

from jobs import clock, selectors
from jobs.conf import conf
from jobs.errors import Invalid, JobNotFound, JobsError, NotFound, Refused
from jobs.live import access
from jobs.live.access import TooMany, Unauthenticated
from jobs.live.follower import SITE, Follower, refusal, standing
from jobs.live.hub import hub
from jobs.selectors import Seen

AUTH_WITHIN_S = 5.0
LONGEST_MESSAGE = 4_096
MESSAGES_A_SECOND = 20
MOST_SUBSCRIPTIONS = 64
MAX_NUMBER = 2**31 - 1
UNKNOWN, TOO_MUCH = 4404, 4429
CLOSE_CODES = {
    "unauthenticated": 4401, "permission_denied": 4403, "auth_timeout": 4408, "too_many_connections": TOO_MUCH,
    "too_many_messages": TOO_MUCH, "message_too_long": 4413, "unavailable": 4503,
}
# Of the range that an application may use.
BAD_REQUEST = 4400

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Message = dict[str, Any]


class Socket:
    """One websocket. A kind of it says who may open it (`admit`) and what it follows (`begin`)."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.follower = Follower(conf().LIVE_PING_S)
        self.inbox: asyncio.Queue[Message] = asyncio.Queue(2 * MESSAGES_A_SECOND)
        self._spent, self._second = 0, clock.epoch(1)

    @classmethod
    async def serve(cls, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        await cls(scope, receive, send)._serve()

    async def _serve(self) -> None:
        await self._receive()
        # Accepted first: a browser is told nothing of a handshake that was refused, but reads the code of a close.
        await self._send({"type": "websocket.accept"})
        try:
            hub().open()
        except JobsError as error:
            await self._close(error)
            return
        parts = [asyncio.create_task(part()) for part in (self._read, self._obey, self._write)]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hub().close(self.follower)
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, OSError):
                raise end

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            said = await self._receive()
            if said["type"] != "websocket.receive":
                return
            try:
                self.inbox.put_nowait(self._message(said.get("text")))
            except asyncio.QueueFull:
                self.follower.end(Refused("Too many messages.", code="too_many_messages"))
            except Invalid as error:
                self.follower.answer(refusal(error))
            except Refused as error:
                self.follower.end(error)

    def _message(self, text: str | None) -> Message:
        second = clock.epoch(1)
        self._spent, self._second = (self._spent + 1 if second == self._second else 1), second
        if self._spent > MESSAGES_A_SECOND:
            raise Refused("Too many messages.", code="too_many_messages")
        if text is not None and len(text) > LONGEST_MESSAGE:
            raise Refused(f"A message has at most {LONGEST_MESSAGE} characters.", code="message_too_long")
        try:
            message = json.loads(text or "")
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise Invalid("Send a JSON object with a type, as text.", code="invalid_message")
        return message

    # --- obeying -------------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        try:
            await self._open()
            while True:
                await self._answer(await self.inbox.get())
        except JobsError as error:
            self.follower.end(error)
        except (Error, OSError):
            # The client comes back by itself, later and later.
            self.follower.end(Refused("The database cannot be reached for now.", code="unavailable"))
        # What was said last is still to be written.
        await asyncio.Event().wait()

    async def _open(self) -> None:
        """Admit, join and say where things stand."""
        raise NotImplementedError

    async def _answer(self, message: Message) -> None:
        """Do what a message asks for."""
        raise NotImplementedError

    def _known(self, sent: Any, seen: Seen) -> int:
        """The number that a client has read; it reads everything anew where that cannot be (E12)."""
        if sent is None:
            return seen.number
        if isinstance(sent, bool) or not isinstance(sent, int) or not 0 <= sent <= MAX_NUMBER:
            raise Invalid("must be a receipt's number", field="after", code="invalid_after")
        if sent > seen.number:
            self.follower.resync()
            return seen.number
        return sent

    def _resume(self, seen: Seen, after: Any) -> None:
        known = self._known(after, seen)
        self.follower.answer(standing("init", seen))
        self.follower.watch(seen, known)
        hub().look(seen.id)

    @property
    def _query(self) -> dict[str, str]:
        try:
            asked = parse_qs(self.scope.get("query_string", b"").decode("latin-1"), max_num_fields=10)
        except ValueError:
            raise Invalid("There are too many of them.", field="query", code="invalid_query") from None
        return {name: values[-1] for name, values in asked.items()}

    def _after(self) -> int | None:
        said = self._query.get("after")
        return None if said is None else int(said) if said.isdecimal() and len(said) < 12 else -1

    # --- writing -------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        async for frame in self.follower.frames():
            await self._send({"type": "websocket.send", "text": json.dumps(frame, separators=(",", ":"))})
        if self.follower.over is not None:
            await self._close(self.follower.over, said=True)

    async def _close(self, error: JobsError, *, said: bool = False) -> None:
        if not said:
            await self._send({"type": "websocket.send", "text": json.dumps(refusal(error))})
        code = CLOSE_CODES.get(error.reason_code, UNKNOWN if isinstance(error, NotFound) else BAD_REQUEST)
        await self._send({"type": "websocket.close", "code": code})


# --- people --------------------------------------------------------------------------------------------------------


class Watching(Socket):
    """`/live/site/` and `/live/jobs/<uuid>/`: the console, by the session's cookie."""

    async def _open(self) -> None:
        cookie = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME)
        await hub().join(self.follower, await access.asked(access.person, cookie))
        job_id = self.scope["url_route"]["kwargs"].get("pk")
        if job_id is None:
            self.follower.stream = SITE
            self.follower.answer({"type": "init"})
        else:
            seen = (await access.asked(selectors.seen, [str(job_id)])).get(str(job_id))
            if seen is None:
                raise JobNotFound()
            self.follower.of = seen.id
            self._resume(seen, self._after())
        self.follower.ready = True

    async def _answer(self, message: Message) -> None:
        if message["type"] == "resume" and self.follower.of is not None:
            seen = (await access.asked(selectors.seen, [self.follower.of])).get(self.follower.of)
            if seen is None:
                raise JobNotFound()
            self._resume(seen, message.get("after"))
        else:
            self.follower.answer(refusal(Invalid("There is no such message here.", code="unknown_message")))


# --- callers with keys ---------------------------------------------------------------------------------------------


class Calling(Socket):
    """`/api/v1/live` and `/api/v1/live/jobs/{id}`: by key, in the header or the first message. Cookies say nothing."""

    async def _open(self) -> None:
        grant = await self._admit()
        await hub().join(self.follower, grant)
        self._seen_scope = grant.scope
        name = self.scope["url_route"]["kwargs"].get("name")
        if name is None:
            selectors.known(grant.scope)
            self.follower.stream = grant.scope.tenant_id
            self.follower.answer({"type": "init"})
        else:
            seen = await access.asked(self._job, name)
            self.follower.of = seen.id
            self._resume(seen, self._after())
        self.follower.ready = True

    async def _admit(self) -> access.Bearer:
        headers = dict(self.scope["headers"])
        scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        names = {_utf8(headers.get(b"x-tenant-subject")), self._query.get("tenant_subject")}
        if scheme.lower() != "bearer":
            try:
                message = await asyncio.wait_for(self.inbox.get(), AUTH_WITHIN_S)
            except TimeoutError:
                raise Refused("No key was sent in time.", code="auth_timeout") from None
            if message["type"] != "auth":
                raise Unauthenticated("The first message must be of type auth, with a key.")
            secret, field = message.get("key"), message.get("tenant_subject")
            if not isinstance(secret, str) or not isinstance(field, str | None):
                raise Unauthenticated()
            names.add(field)
        names.discard(None)
        if len(names) > 1:
            raise Invalid("The header, the query and the field name different tenants.", field="tenant_subject",
                          code="invalid_tenant_subject")
        return await access.asked(access.bearer, secret.strip(), next(iter(names), None))

    def _job(self, name: Any) -> Seen:
        """The job of this id or job_id, by the rules of the API. Raises JobNotFound, alike for unknown and foreign."""
        job = selectors.job(self._seen_scope, name if isinstance(name, str) else "")
        return Seen(str(job.pk), job.tenant_id, job.worker_group, job.state, job.revision, job.number)

    async def _answer(self, message: Message) -> None:
        try:
            match message["type"], self.follower.of:
                case "resume", str():
                    self._resume(await access.asked(self._job, self.follower.of), message.get("after"))
                case "subscribe", None:
                    await self._subscribe(message)
                case "unsubscribe", None:
                    seen = await access.asked(self._job, message.get("job"))
                    self.follower.unwatch(seen.id)
                    self.follower.answer({"type": "unsubscribed", "job": seen.id})
                case _:
                    raise Invalid("There is no such message here.", code="unknown_message")
        except (Invalid, JobNotFound, TooMany) as error:
            # What was asked for is refused; the connection goes on.
            self.follower.answer(refusal(error))

    async def _subscribe(self, message: Message) -> None:
        if len(self.follower.jobs) >= MOST_SUBSCRIPTIONS:
            raise TooMany(f"At most {MOST_SUBSCRIPTIONS} jobs a connection.", code="too_many_subscriptions")
        self._resume(await access.asked(self._job, message.get("job")), message.get("after"))


def _utf8(said: bytes | None) -> str | None:
    try:
        return None if said is None else said.decode()
    except UnicodeError:
        raise Invalid("must be UTF-8", field="X-Tenant-Subject", code="invalid_tenant_subject") from None


# --- the door ------------------------------------------------------------------------------------------------------


def same_origin(application: Any) -> Any:
    """Lets a handshake through whose Origin is the host that it was sent to, or one of CSRF_TRUSTED_ORIGINS.

    Cookies know no ports, so another port of this host is another site (case-H06).
    """
    refuse = WebsocketDenier.as_asgi()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        origin, host = (headers.get(name, b"").decode("latin-1").lower() for name in (b"origin", b"host"))
        if settings.USE_X_FORWARDED_HOST and b"x-forwarded-host" in headers:
            host = headers[b"x-forwarded-host"].decode("latin-1").lower()
        fits = _netloc(origin) == _netloc(f"{origin.partition('://')[0]}://{host}") is not None
        await (application if fits or origin in settings.CSRF_TRUSTED_ORIGINS else refuse)(scope, receive, send)

    return guarded


def _netloc(url: str) -> tuple[str, int] | None:
    try:
        said = urlsplit(url)
        port = said.port or {"http": 80, "https": 443}.get(said.scheme)
    except ValueError:
        return None
    return (said.hostname, port) if said.hostname and port else None


def route(pattern: str, application: Any) -> Any:
    """One route; Django's stubs know views alone."""
    return path(pattern, application)


def for_people(routes: list[Any]) -> Any:
    """These routes for our own pages alone, with their cookies; any other path below is refused."""
    router = URLRouter([*routes, re_path("", WebsocketDenier.as_asgi())])
    return AllowedHostsOriginValidator(same_origin(CookieMiddleware(router)))


people = for_people([
    route("live/site/", Watching.serve),
    route("live/jobs/<uuid:pk>/", Watching.serve),
])
websockets = URLRouter([
    route("api/v1/live", Calling.serve),
    route("api/v1/live/jobs/<str:name>", Calling.serve),
    re_path("^", people),
])
