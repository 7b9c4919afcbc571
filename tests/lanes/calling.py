"""A world of quorums and lanes for callers of the API: a key for each role, and a lane to say something to."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from jobs.services import grants
from tests.edges.caller import Caller

COMMIT = "9FCEB02D0AE598E95DC970B74767F19372D61AF8"

# A good body for each verb of a lane.
MOVES: dict[str, dict[str, Any]] = {
    "state": {"state": "in_progress"}, "review": {"review": "submit"}, "merge": {"outcome": "conflicted"},
    "dependencies": {"depends_on": []}, "jobs": {"type": "outside", "input": {}}}


class World:
    """A key for each role in the default workspace, a quorum, and a lane that the assignee's key has."""

    def __init__(self) -> None:
        self.conductor, self.assignee, self.member = (self.key(role) for role in ("conductor", "assignee", "member"))
        self.nobody, self.foreign = Caller("nobody"), self.key("conductor", "elsewhere")
        self.quorum = self.conductor.post("/quorums", {"name": "search", "title": "The new search"}).json()["id"]
        self.lane = self.made()["id"]

    @staticmethod
    def key(role: str, workspace: str | None = None, **more: Any) -> Caller:
        made = Caller(role, workspace=workspace, **more)
        grants.give(made.key.workspace, role, by="test", key=made.key)
        return made

    def body(self, name: str = "parser", **said: Any) -> dict[str, Any]:
        return {"quorum": self.quorum, "name": name, "branch": f"lane/{name}", "task": "TRACK-7",
                "assignee": f"key:{self.assignee.key.prefix}", **said}

    def made(self, name: str = "parser", **said: Any) -> dict[str, Any]:
        answer = self.conductor.post("/lanes", self.body(name, **said))
        assert answer.status_code == 201, answer.content
        return dict(answer.json())

    def say(self, verb: str, body: dict[str, Any], by: Caller | None = None, lane: str | None = None,
            **headers: str) -> HttpResponse:
        return (by or self.conductor).post(f"/lanes/{lane or self.lane}/{verb}", body, **headers)

    def ready(self) -> None:
        """Done and approved."""
        for verb, body in (("state", {"state": "in_progress"}), ("state", {"state": "done"}),
                           ("review", {"review": "submit"}), ("review", {"review": "approve"})):
            assert self.say(verb, body).status_code == 200
