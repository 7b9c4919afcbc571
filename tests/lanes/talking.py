"""Clients of the protocol by its official SDK, in this process and over HTTP; several may be open at once."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from lanes.mcp import server
from lanes.mcp.calls import Call, counted

PATIENCE_S = 60
README = Path(__file__).parents[2] / "README.md"


def configured(word: str) -> dict[str, Any]:
    """The server as the README puts it into a client's configuration, of the two ways the one that has this word."""
    blocks = re.findall(r"```json\n(.*?)```", README.read_text(), re.DOTALL)
    [said] = [one for one in (json.loads(block)["mcpServers"]["jobsite"] for block in blocks) if word in one]
    return said  # type: ignore[no-any-return]


class Talk:
    """One client, in a loop and a thread of its own."""

    def __init__(self, to: Any, mode: str = "auto") -> None:
        self.to, self.mode = to, mode
        self.client: Client
        self._loop: asyncio.AbstractEventLoop
        self._opened: Future[None] = Future()
        self._closing: asyncio.Event
        self._thread = threading.Thread(target=asyncio.run, args=(self._stay(),), daemon=True)
        self._thread.start()
        self._opened.result(PATIENCE_S)

    async def _stay(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with Client(self.to(), mode=self.mode) as self.client:
                self._opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    def close(self) -> None:
        """Say goodbye."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(PATIENCE_S)

    def begin(self, tool: str, **arguments: Any) -> Future[CallToolResult]:
        """A call that is on its way; cancel it to give it up."""
        return asyncio.run_coroutine_threadsafe(self.client.call_tool(tool, arguments), self._loop)

    def said(self, tool: str, **arguments: Any) -> CallToolResult:
        """The result of a call, whatever it is."""
        return self.begin(tool, **arguments).result(PATIENCE_S)

    def tools(self) -> dict[str, Any]:
        """The tools that the client is offered, by name."""
        listed = asyncio.run_coroutine_threadsafe(self.client.list_tools(), self._loop).result(PATIENCE_S)
        assert listed.next_cursor is None
        return {tool.name: tool for tool in listed.tools}

    def good(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a call must be answered."""
        result = self.said(tool, **arguments)
        assert not result.is_error, result.content
        return result.structured_content

    def refused(self, tool: str, code: str, field: str | None = None, **arguments: Any) -> dict[str, Any]:
        """The refusal that a call must be: a result for models, with the words of the API's problems."""
        result = self.said(tool, **arguments)
        told = result.structured_content
        assert result.is_error, told
        assert told["code"] == code, told
        assert isinstance(told["message"], str)
        assert told["message"]
        assert told.get("field") == field, told
        assert "Traceback" not in result.content[0].text
        return told


@contextmanager
def inside(secret: str, mode: str = "auto") -> Iterator[Talk]:
    """A client of a server in this process, for what needs neither pipes nor HTTP."""
    talk = Talk(lambda: server.make(lambda context: Call(partial(counted, secret))), mode)
    try:
        yield talk
    finally:
        talk.close()


@contextmanager
def over_http(port: int, secret: str, mode: str = "auto") -> Iterator[Talk]:
    """A client of a server on this port."""
    said = configured("url")
    headers = {name: value.replace("prefix.secret", secret) for name, value in said["headers"].items()}
    url = said["url"].replace("https://jobs.example.org", f"http://127.0.0.1:{port}")

    def to() -> Any:
        return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S))

    talk = Talk(to, mode)
    try:
        yield talk
    finally:
        talk.close()
