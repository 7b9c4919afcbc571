"""What a tool refuses is what its route refuses: the same code, field, words and facts (E2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobs.api.errors import told
from jobs.services import keys
from lanes.mcp import job_tools, lane_tools  # noqa: F401
from lanes.mcp.calls import Call
from lanes.mcp.tools import TOOLS, perform
from tests.edges.caller import Caller, everything
from tests.lanes.calling import World

# What no field takes that has a meaning of its own; a few of them are good in some.
VALUES: tuple[Any, ...] = (None, True, -1, 1.5, 10**12, 2**53, "", "x" * 3_000, "a\u0001b", ["x"], [7], ["x"] * 101,
                           {"a": 1}, "2030-01-01T00:00:00")
HELD = ("job_extend", "job_complete", "job_release")
MOVES = {"lane_set_state": "state", "lane_review": "review", "lane_merge": "merge"}
# Of the protocol or of the answer's language.
OURS = {"type", "title", "status", "request_id"}


@pytest.fixture
def world(world: World, settings: Any) -> World:
    settings.ROOT_URLCONF = "tests.edges.urls"
    return world


def bad(tool: str, world: World, held: str) -> list[tuple[str, dict[str, Any]]]:
    """Arguments with one field each that is none, and one that has a value that it does not take."""
    good: dict[str, dict[str, Any]] = {
        "job_create": {"type": "outside"}, "job_claim": {}, "lane_create": world.body("other"),
        "lane_set_state": {"lane": world.lane, "state": "in_progress"},
        "lane_review": {"lane": world.lane, "review": "submit"},
        "lane_merge": {"lane": world.lane, "outcome": "merged"}, **{name: {"assignment_id": held} for name in HELD}}
    base, schema = good[tool], Draft202012Validator(TOOLS[tool].schema)
    fields = [name for name in (*TOOLS[tool].fields, "unheard_of")
              if name not in ("lane", "assignment_id", "version", "outcome")]
    # What the schema takes may be good, and then it would be done.
    return [("", base)] * (tool == "lane_merge") + [
        (name, {**base, name: value}) for name in fields for value in VALUES
        if not schema.is_valid({**base, name: value})]


def of_tool(tool: str, caller: Caller, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the tool refuses it by."""
    with pytest.raises(Exception) as refused:
        perform(TOOLS[tool], Call(lambda: caller.key), arguments)
    return {name: value for name, value in told(refused.value)[1].items() if name not in OURS}


def of_route(tool: str, caller: Caller, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the route says to the same words."""
    rest = {name: value for name, value in arguments.items() if name not in ("assignment_id", "lane")}
    if tool in HELD:
        path = f"/assignments/{arguments['assignment_id']}/{tool.removeprefix('job_')}"
    elif tool in MOVES:
        path = f"/lanes/{arguments['lane']}/{MOVES[tool]}"
    else:
        path = {"job_create": "/jobs", "job_claim": "/runtime/claim", "lane_create": "/lanes"}[tool]
    answer = caller.post(path, rest)
    assert answer.status_code >= 400, (tool, arguments)
    return {name: value for name, value in json.loads(answer.content).items() if name not in OURS}


@pytest.mark.parametrize("tool", ["job_create", "job_claim", *HELD, "lane_create", *MOVES])
def test_what_a_schema_does_not_take_tool_and_route_refuse_in_the_same_words(world: World, tool: str) -> None:
    """E2, B8: every field, and what schemas promise is kept; nothing is written."""
    caller = world.conductor
    caller.key = keys.live(caller.secret)
    caller.enqueue()
    held = caller.claim_one()["assignment_id"]
    caller.enqueue()
    before = everything()
    cases = bad(tool, world, held)
    assert len(cases) > 20
    for name, arguments in cases:
        mine = of_tool(tool, caller, arguments)
        assert mine["code"] != "internal_error", (name, arguments)
        assert mine == of_route(tool, caller, arguments), (name, arguments)
    assert everything() == before
