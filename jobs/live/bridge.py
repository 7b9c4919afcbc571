"""Hears of news on one connection of the process, outside the pool, and says when some may have been missed.

Idle and in autocommit: however long it does not read, it keeps no row version from being vacuumed (case-C09). Where the
site has a channel layer that processes share (`channels_redis`), one process of the site listens and the layer brings
the news to all of them; else each has a connection of its own, which is the simpler form for all but very large sites.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from django.conf import settings

from jobs import clock
from jobs.publish import CHANNEL, EVERYBODY, NEWS_CHANNEL
from jobs.worker.listener import direct_dsn

log = logging.getLogger("jobs.live")
MAX_PAUSE_S = 5.0
# A server that is gone without a word says nothing, and so does one with nothing to say: asked, one of them answers.
ASK_EVERY_S = 8.0
ANSWER_S = 5.0
GROUP = "jobs.news"
# The session lock of the one process that brings news into a shared layer: kept for ever, and so nobody else's too.
LAYER_LOCK = 0x6A6F626C
TURN_S = 5.0

OnNews = Callable[[str], None]
OnConnected = Callable[[], None]


async def listen(on_news: OnNews, on_connected: OnConnected) -> None:
    """Hear for ever. `on_connected` after each (re)connect: what was said before may have been missed."""
    if shared_layer():
        await asyncio.gather(_from_layer(on_news, on_connected), _again(_into_layer))
    else:
        await _again(lambda: _hear(on_news, on_connected))


async def listen_to(channel: str, on_news: OnNews, on_connected: OnConnected) -> None:
    """The same of another channel, of an app that stands on jobs; each process by itself, whatever the layer."""
    await _again(lambda: _hear(on_news, on_connected, channel))


async def wakes(on_wake: Callable[[], None]) -> None:
    """Hear for ever that there may be something to claim, or a claim that is void; also after each (re)connect."""
    await _again(lambda: _hear(lambda _: on_wake(), on_wake, CHANNEL))


def shared_layer() -> bool:
    """Whether the site names a channel layer that its processes share."""
    backend = getattr(settings, "CHANNEL_LAYERS", {}).get("default", {}).get("BACKEND", "")
    return bool(backend) and not backend.endswith("InMemoryChannelLayer")


async def _again(hear: Callable[[], Any]) -> None:
    """Again and again, with a growing pause after failures."""
    failures = 0
    while True:
        begun = clock.monotonic()
        try:
            await hear()
        except Exception as error:
            failures = 1 if clock.monotonic() - begun > MAX_PAUSE_S else failures + 1
            known = isinstance(error, (psycopg.Error, OSError, TimeoutError))
            log.log(logging.WARNING if failures == 1 else logging.DEBUG,
                    "news cannot be heard for now: %s", error, exc_info=None if known else error)
        await clock.pause(min(MAX_PAUSE_S, 0.1 * 2.0 ** min(failures, 6)))


@asynccontextmanager
async def _connected() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    opening = psycopg.AsyncConnection.connect(direct_dsn(), autocommit=True, application_name="jobs live")
    connection = await asyncio.wait_for(opening, 2 * ANSWER_S)
    try:
        yield connection
    finally:
        # Not by a polite word: nothing is said to a server that may be silent.
        with suppress(psycopg.Error, OSError):
            connection.pgconn.finish()


async def _hear(on_news: OnNews, on_connected: OnConnected, channel: str = NEWS_CHANNEL) -> None:
    async with _connected() as connection:
        await _ask(connection, f"LISTEN {channel}")
        on_connected()
        while True:
            async for notification in connection.notifies(timeout=ASK_EVERY_S):
                on_news(notification.payload)
            await _ask(connection, "SELECT 1")


async def _ask(connection: psycopg.AsyncConnection[Any], sql: str) -> Any:
    answer = await asyncio.wait_for(connection.execute(sql), ANSWER_S)
    return await answer.fetchone() if answer.description else None


# --- with a channel layer ------------------------------------------------------------------------------------------


def _layer() -> Any:
    # The only use of it: a site without websockets has no channels.
    from channels.layers import get_channel_layer

    return get_channel_layer()


async def _from_layer(on_news: OnNews, on_connected: OnConnected) -> None:
    async def hear() -> None:
        layer = _layer()
        name = await layer.new_channel("jobs")
        await layer.group_add(GROUP, name)
        on_connected()
        joined = clock.Every(3_600.0, 3_600.0)
        while True:
            said = await layer.receive(name)
            on_news(said["payload"])
            # Memberships of a group run out in a day.
            if joined.due():
                await layer.group_add(GROUP, name)

    await _again(hear)


async def _into_layer() -> None:
    layer = _layer()
    waiting: asyncio.Queue[str] = asyncio.Queue(1_000)

    def bring(payload: str) -> None:
        # A layer that is slow loses the oldest; then everybody reads anew.
        if waiting.full():
            waiting.get_nowait()
            payload = EVERYBODY
        waiting.put_nowait(payload)

    async def send() -> None:
        while True:
            await layer.group_send(GROUP, {"type": "jobs.news", "payload": await waiting.get()})

    async with _connected() as connection:
        while not (await _ask(connection, f"SELECT pg_try_advisory_lock({LAYER_LOCK})"))[0]:
            await clock.pause(TURN_S)
        await _ask(connection, f"LISTEN {NEWS_CHANNEL}")
        bring(EVERYBODY)
        sending = asyncio.create_task(send())
        try:
            while not sending.done():
                async for notification in connection.notifies(timeout=ASK_EVERY_S):
                    bring(notification.payload)
                await _ask(connection, "SELECT 1")
            await sending
        finally:
            sending.cancel()
