"""One lane: its three axes with what may come next, what it waits for, its jobs, and what happened to it."""

from __future__ import annotations

from typing import Any

from jobs.sightings import patiently
from lanes import selectors, sightings
from lanes.axes import Role
from lanes.models import LaneReceipt
from lanes.pages.access import LanePage, id_of
from lanes.pages.tracks import tracks, words

AXES = {"state": "execution", "review": "review", "merge": "merge"}


class Lane(LanePage):
    """`/lanes/<uuid>/`; `?before=12` shows older receipts, `?jobs_before=<uuid>` older jobs."""

    template_name = "lanes/lane.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the page shows. Raises LaneNotFound."""
        told_of = patiently(lambda: self._told(kwargs.pop("pk")))
        self.live = f"/live/lanes/{told_of['lane'].pk}/"
        return super().get_context_data(**told_of, **kwargs)

    def _told(self, pk: Any) -> dict[str, Any]:
        lane, by = selectors.lane(pk, by=self.actor), self.actor
        role, me = self.roles.get(lane.workspace_id), by.user_id or ""
        history = sightings.history(lane, _number(self.request.GET.get("before", "")))
        return {
            "lane": lane, "role": role, "mine": lane.assignee_user == me, "tracks": tracks(lane, role, me),
            "conducts": role == Role.CONDUCTOR, "over": lane.ended_at is not None,
            "dependents": selectors.dependents(lane.pk), "work": selectors.work([lane.pk], by=by)[lane.pk],
            "jobs": sightings.jobs(lane, id_of(self.request.GET.get("jobs_before")), by), "history": history,
            "receipts": [told(receipt) for receipt in history.rows]}


def _number(said: str) -> int | None:
    return int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 10 else None


def told(receipt: LaneReceipt) -> dict[str, Any]:
    """A receipt in words: what was what before, and what it is now."""
    before, after = receipt.before or "", receipt.after or ""
    match receipt.kind:
        case "created":
            said = "made"
        case "state" | "review" | "merge":
            said = f"{AXES[receipt.kind]}: {words(before)} → {words(after)}"
        case "assignee":
            said = f"given to {after}, before that {before}"
        case "dependencies":
            said = f"waits for {after or 'nothing'}; before that for {before or 'nothing'}"
        case _:
            said = "a job became this lane's"
    return {"row": receipt, "said": said, "job": id_of(after) if receipt.kind == "job" else None}
