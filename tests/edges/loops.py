"""Coroutines of tests, each in a loop and a thread of its own: a browser's loop may run in the thread of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections


def awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it gives or raises; its connections are given back."""
    found: list[Any] = []

    async def whole() -> Any:
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    def run() -> None:
        try:
            found.append((asyncio.run(whole()), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    [(value, error)] = found
    if error is not None:
        raise error
    return value
