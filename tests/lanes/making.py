"""People with roles, quorums and lanes in any standing: what the tests of lanes share."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from jobs.clock import Now
from jobs.models import Grant, Workspace
from jobs.services import grants, keys, tenancy
from lanes.actors import Actor, of_key, of_user
from lanes.axes import Standing
from lanes.models import Lane, LaneReceipt, Quorum
from lanes.services import lanes, quorums
from lanes.services.lanes import LaneDraft
from lanes.store import rows

COMMIT = "c0ffee1234"


def workspace(slug: str = "default") -> Workspace:
    """A workspace, made if missing."""
    return tenancy.make_workspace(slug)


def user(name: str, role: str | None = None, *, where: str = "default", **more: Any) -> Actor:
    """A Django user, with a role in a workspace if one is said."""
    User = get_user_model()
    # Users outlive a test, and what they are is this one's word.
    flags = {"is_superuser": False, "is_staff": False, "is_active": True, **more}
    row, _ = User.objects.get_or_create(username=name, defaults=flags)
    if any(getattr(row, flag) != value for flag, value in flags.items()):
        User.objects.filter(pk=row.pk).update(**flags)
    known = Grant.objects.filter(user_id=str(row.pk), workspace__slug=where, role=role)
    if role is not None and not known.exists():
        grants.give(workspace(where), role, by="test", user=row)
    return of_user(row)


def key(role: str | None = None, *, where: str = "default", tenant: str | None = None) -> Actor:
    """A key, with a role in its workspace if one is said."""
    place = workspace(where)
    of = tenancy.tenant(place, tenant, make=True) if tenant else None
    row, _ = keys.make(place, "a key", ["read"], tenant=of)
    if role is not None:
        grants.give(place, role, by="test", key=row)
    return of_key(row)


def conductor(where: str = "default") -> Actor:
    """Who may do everything there."""
    return user(f"conductor-{where}", "conductor", where=where)


def quorum(name: str = "one", *, where: str = "default") -> Quorum:
    """A quorum of this name."""
    found = Quorum.objects.filter(workspace__slug=where, name=name).first()
    return found or quorums.create(workspace(where), name, by=conductor(where))


def draft(name: str = "lane", **said: Any) -> LaneDraft:
    """A good draft, but for what is said."""
    said.setdefault("branch", f"work/{name}")
    said.setdefault("assignee", user("assignee", "assignee").name)
    return LaneDraft(name=name, **{"task": "thread 7", **said})


def lane(name: str = "lane", at: Standing | None = None, *, where: str = "default", of: str = "one",
         **said: Any) -> Lane:
    """A lane of the quorum `of`, by legal verbs where it shall stand."""
    who = conductor(where)
    said.setdefault("assignee", user(f"assignee-{where}", "assignee", where=where).name)
    made = lanes.create(quorum(of, where=where).pk, draft(name, **said), by=who)
    return bring(made, at, who) if at is not None else made


def placed(name: str, at: Standing) -> Lane:
    """A lane that stands there already, without the moves that led there: for tests with many of them."""
    home, who = quorum(), user("assignee-default", "assignee")
    made = Lane(quorum=home, workspace_id=home.workspace_id, name=name, branch=name, task="t", by="test",
                assignee=who.name, assignee_user=who.user_id, **at._asdict())
    made.commit = COMMIT if at.merge == "merged" else None
    made.ended_at = Now() if at.over else None
    made.save(force_insert=True)
    rows.receipt(made.pk, "created", by="test", version=1)
    return made


def bring(made: Lane, to: Standing, who: Actor) -> Lane:
    """By legal verbs to where it shall stand."""
    for verdict in {"submitted": ("submit",), "approved": ("submit", "approve"),
                    "changes_requested": ("submit", "request_changes")}.get(to.review, ()):
        made = lanes.review(made.pk, verdict, by=who)
    early = to.merge in ("conflicted", "abandoned")
    if early:
        made = lanes.merge(made.pk, to.merge, by=who)
    for state in {"in_progress": ("in_progress",), "done": ("in_progress", "done"),
                  "failed": ("in_progress", "failed"), "cancelled": ("cancelled",)}.get(to.execution, ()):
        made = lanes.set_state(made.pk, state, by=who)
    if to.merge == "merged":
        made = lanes.merge(made.pk, "merged", commit=COMMIT, by=who)
    assert made.standing == to
    return made


def snapshot(made: Lane) -> tuple[Any, ...]:
    """All that is stored about a lane."""
    row = Lane.objects.filter(pk=made.pk).values().get()
    told = list(LaneReceipt.objects.filter(lane_id=made.pk).order_by("number").values_list("number", "kind", "after"))
    on = sorted(str(d.on_id) for d in Lane.objects.get(pk=made.pk).dependencies.all())
    return (tuple(sorted(row.items(), key=lambda item: item[0])), told, on)
