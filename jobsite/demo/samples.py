"""What else there is to look at while a demo stays: two lanes that have its jobs, and a timer that sleeps.

They belong to the demo's own account, which conducts the workspace of its jobs from then on; nobody else is given
anything. The timer is paused: nothing goes on working in somebody's database when the demo has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction
from django.urls import reverse

from jobs.models import Job, Timer, Workspace
from jobs.services import grants, timers
from jobs.services.timers import Draft
from lanes import actors
from lanes.services import lane_jobs, lanes, quorums
from lanes.services.lanes import LaneDraft

BY: Final = "command:demo"
NAME: Final = "demo"
MOST: Final = 20


def put(user: Any, job_ids: Sequence[str], run: str) -> tuple[str, str]:
    """Put them there, all or nothing; the paths of the board and of the timer. Raises JobsError."""
    with transaction.atomic():
        place = Job.objects.select_related("workspace").get(pk=job_ids[-1]).workspace
        grants.give(place, "conductor", by=BY, user=user)
        board = _lanes(place, user, job_ids, run)
        return board, reverse("console:timer", args=[_timer(place).pk])


def _lanes(place: Workspace, user: Any, job_ids: Sequence[str], run: str) -> str:
    by = actors.of_user(user)
    quorum = quorums.create(place, run, "Describe these documents, and read what was written", by=by)
    first = _lane(quorum.pk, "describe", "Describe the documents", by)
    for job_id in job_ids[-MOST:]:
        lane_jobs.attach(first.pk, job_id, by=by)
    lanes.set_state(first.pk, "in_progress", by=by, reason="the workers are ready")
    lanes.set_state(first.pk, "done", by=by, reason="every document has a description")
    lanes.review(first.pk, "submit", by=by, reason="approve it, or ask for changes")
    _lane(quorum.pk, "read", "Read the descriptions", by, depends_on=["describe"])
    return f"{reverse('lanes:board')}?quorum={quorum.pk}"


def _lane(quorum_id: Any, name: str, title: str, by: actors.Actor, **more: Any) -> Any:
    draft = LaneDraft(name=name, title=title, branch=f"{NAME}/{name}", assignee=by.name, task="manage.py demo", **more)
    return lanes.create(quorum_id, draft, by=by)


def _timer(place: Workspace) -> Timer:
    """One that an earlier demo made, or somebody, stays as it is."""
    known = Timer.objects.filter(workspace=place, tenant__subject=None, name=NAME).first()
    if known is not None:
        return known
    made = timers.put_for(place, None, NAME, Draft("noop", cron="0 3 * * *"), by=BY)
    timers.run_now(made, by=BY, reason="to show what a firing looks like")
    return timers.pause(made, by=BY, reason="it only shows what a timer is: run it now, or resume it")
