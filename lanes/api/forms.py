"""The schemas of what is answered about quorums and lanes, by name: what `shapes` makes."""

from __future__ import annotations

from typing import Final

from jobs.api.describing import Fields, Schema, anything, boolean, listed, moment, or_null, ref, text, thing, whole
from jobs.api.forms import STATES, STATUSES
from lanes.axes import Axis, Execution, Merge, Review, verbs
from lanes.models.receipt import KINDS

_AT = or_null(moment())
_QUORUM: Fields = {
    "id": text(), "workspace": text("Its slug"), "name": text("Once in its workspace"), "title": text(), "by": text(),
    "created_at": moment(), "closed": boolean("It takes no new lanes"), "closed_at": _AT, "closed_by": or_null(text()),
    "close_reason": or_null(text())}
_OTHER = thing({"id": text(), "name": text(), "execution": text(among=tuple(Execution))})
_JOBS = thing({
    "counts": {"type": "object", "additionalProperties": whole(0), "description": "By state"},
    "active": whole(0, means="Those that have not ended"), "gone": whole(0, means="Those that are deleted"),
    "capped": boolean("There are more, which are not counted"), "dead_letters": whole(0, means="Open ones"),
    "last_activity_at": or_null(moment("The latest sign of life of any of them"))},
    "What its jobs, as far as the caller may see them, come to: read, and stored nowhere")
_OF_JOB: Fields = {
    "job_id": or_null(text("The caller's own")), "type": text(), "version": whole(1),
    "status": text(among=STATUSES), "state": text(among=STATES), "reason": or_null(text()),
    "tenant_subject": or_null(text()), "claims": whole(0), "failures": whole(0), "created_at": moment(),
    "started_at": _AT, "ended_at": _AT}
_LANE_JOB = thing({
    "id": text(), "by": text("Who made it the lane's"), "attached_at": moment(),
    "gone": boolean("It is deleted: no more is known"), **_OF_JOB}, optional=tuple(_OF_JOB))
_LANE: Fields = {
    "id": text(), "workspace": text("Its slug"), "quorum": thing({"id": text(), "name": text()}),
    "name": text("Once in its quorum"), "title": text(), "branch": text(), "assignee": text("As `user:ann`"),
    "task": text("Its one task thread"), "execution": text(among=tuple(Execution)), "review": text(among=tuple(Review)),
    "merge": text(among=tuple(Merge)), "commit": or_null(text("Of the latest outcome that named one")),
    "depends_on": listed(_OTHER, "Lanes of the same quorum"),
    "reconcile": or_null(thing({"type": text(), "input": anything()}, "The job that puts it right when it stalls")),
    "jobs": _JOBS, "version": whole(1, means="Its changes: the ETag is `\"v<version>\"`"), "by": text("Who made it"),
    "created_at": moment(), "moved_at": moment(), "ended_at": or_null(moment("Since when nothing of it changes"))}
_RECEIPT: Fields = {
    "number": whole(1), "kind": text(among=KINDS), "axis": or_null(text(among=tuple(Axis))),
    "before": or_null(text()), "after": or_null(text("A state, an assignee, names of lanes, the id of a job")),
    "commit": or_null(text()), "by": text(), "reason": text(), "version": whole(1), "at": moment()}
_NEXT = {axis.value: listed(text(among=verbs(axis))) for axis in Axis}

FORMS: Final[dict[str, Schema]] = {
    "Quorum": thing(_QUORUM, "One agreement of a workspace, from which lanes go out"),
    "Quorums": thing({"quorums": listed(ref("Quorum")), "next_cursor": or_null(text())}),
    "Lane": thing(_LANE, "A named stream of work: one branch, one assignee, one task thread, three axes"),
    "LaneInFull": thing({**_LANE, "next": thing(_NEXT, "What leads on from here on each axis, for whoever may")}),
    "Lanes": thing({"lanes": listed(ref("Lane")), "next_cursor": or_null(text())}),
    "LaneReceipts": thing({"receipts": listed(thing(_RECEIPT)), "next_after": or_null(whole(1))}),
    "LaneJobs": thing({"jobs": listed(_LANE_JOB), "next_before": or_null(text())}),
    "LaneJob": thing({"lane": text(), "job_id": text(), "repeated": boolean("It was so before")}),
}
