"""The tools as a server of the protocol: lists those that a key may use, calls one, and says refusals as results.

A refused call is an answer with `isError` and the members of the API's problem: a stable `code`, the `field`, a
`message`. What we did not expect is `internal_error` without its insides, and is logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Final

import anyio
from django.core.serializers.json import DjangoJSONEncoder
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as Listed

from jobs import clock, codecs
from jobs.api import runtime
from jobs.api.errors import told
from jobs.api.holding import Brought
from jobs.api.security import Principal
from jobs.live.room import room
from jobs.registry import nearest
from lanes.mcp import job_tools, lane_tools  # noqa: F401
from lanes.mcp.calls import Call, asked
from lanes.mcp.tools import TOOLS, Tool, perform

log = logging.getLogger("jobs.mcp")
Door = Callable[[Any], Call]
_OF_HTTP: Final = {"code", "detail", "title", "type", "status"}

INSTRUCTIONS: Final = """\
Jobs are durable units of work: job_create queues one, job_claim takes what may be claimed, job_extend keeps it,
job_complete ends it, job_release gives it back. What you do in the world outside may be done twice: carry it out under
the job's idempotency_key. Lanes are streams of jobs that people coordinate, on three axes that no job moves:
lane_set_state, lane_review, lane_merge. A refused call says a stable `code`, the `field` and a `message`.
"""


def make(door: Door) -> Server[Any]:
    """A server whose calls come through this door."""

    async def listed(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        try:
            key = await asked(door(context).admit)
        except Exception as error:
            number, body, _ = told(error)
            raise MCPError(INVALID_REQUEST, body["detail"], {"code": body["code"], "status": number}) from None
        mine = [one for one in TOOLS.values() if Principal(key).may(one.permission)]
        # Whose list it is depends on the key.
        return ListToolsResult(tools=[_listed(one) for one in mine], cache_scope="private")

    async def called(context: Any, params: CallToolRequestParams) -> CallToolResult:
        one = TOOLS.get(params.name)
        if one is None:
            name = codecs.printable(params.name)
            raise MCPError(INVALID_PARAMS, f"There is no tool {name!r}{nearest(name[:64], TOOLS)}",
                           {"code": "unknown_tool", "field": "name"})
        return await _attended(one, door(context), params.arguments)

    return Server("jobsite", title="Jobsite", version="1", instructions=INSTRUCTIONS, on_list_tools=listed,
                  on_call_tool=called, get_tool_input_schema=_schema)


def _schema(name: str) -> dict[str, Any] | None:
    return TOOLS[name].schema if name in TOOLS else None


def _listed(one: Tool) -> Listed:
    return Listed(name=one.name, title=one.title, description=one.means, input_schema=one.schema,
                  annotations=ToolAnnotations(title=one.title, read_only_hint=one.reads, idempotent_hint=one.repeats,
                                              destructive_hint=one.ends, open_world_hint=False))


async def _attended(one: Tool, call: Call, arguments: dict[str, Any] | None) -> CallToolResult:
    """The result. A call that is given up is done to its end, and then undone: what was claimed must be known."""
    work = asyncio.create_task(_answered(one, call, arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        call.left.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({work})
            await call.undone()
        raise


async def _answered(one: Tool, call: Call, arguments: dict[str, Any] | None) -> CallToolResult:
    began, code = clock.monotonic(), "ok"
    try:
        return _result(await _done(one, call, arguments))
    except Exception as error:
        _, body, _ = told(error)
        code = body["code"]
        return _result(_refused(body), is_error=True)
    finally:
        log.info("tool %s: %s", one.name, code, extra={
            "event": "tool", "tool": one.name, "code": code, "ms": round((clock.monotonic() - began) * 1_000, 1)})


async def _done(one: Tool, call: Call, arguments: dict[str, Any] | None) -> Any:
    found = await asked(perform, one, call, arguments)
    if isinstance(found, runtime.Waits):
        brought = await room().wait(found.line, found, found.look, holder=found.holder, seconds=found.seconds,
                                    left=call.left, lost=found.lost)
        found = brought or {"assignments": [], "again": room().closed.is_set()}
    if isinstance(found, Brought):
        call.undo, found = found.undo, found.body
    return found


def _refused(body: dict[str, Any]) -> dict[str, Any]:
    """A problem, as models read it: `message` for `detail`, and nothing of HTTP."""
    facts = {name: value for name, value in body.items() if name not in _OF_HTTP}
    return {"code": body["code"], "message": body["detail"], **facts}


def _result(answer: Any, *, is_error: bool = False) -> CallToolResult:
    text = json.dumps(answer, separators=(",", ":"), ensure_ascii=False, cls=DjangoJSONEncoder)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=json.loads(text),
                          is_error=is_error)
