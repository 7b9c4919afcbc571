"""Lanes in the admin: everybody who may view sees them, and only an operator's own grants let it act (E15, D2)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.test import Client

from jobs.services import grants
from lanes.axes import Standing
from lanes.models import Lane, LaneReceipt, Quorum
from lanes.services import lane_jobs, lanes
from tests.driver import Driver
from tests.edges.admin_people import quick, somebody, told  # noqa: F401
from tests.lanes import making
from tests.lanes.making import conductor, snapshot
from tests.pages.corpus import XSS
from tests.pages.people import person

LANES, QUORUMS = "/admin/lanes/lane/", "/admin/lanes/quorum/"
ACTIONS = {"in-progress": Standing(), "done": Standing("in_progress"), "failed": Standing("in_progress"),
           "cancelled": Standing(), "approve": Standing(review="submitted"),
           "request-changes": Standing(review="approved"), "conflicted": Standing(), "abandoned": Standing()}


def operator(role: str | None = None, *, superuser: bool = False, name: str = "op") -> Client:
    """A client of somebody who may view, with a role if one is said."""
    who = person(name, "view_job", superuser=superuser)
    if role is not None:
        grants.give(making.workspace(), role, by="test", user=who)
    client = Client()
    client.force_login(who)
    return client


def confirm(client: Client, action: str, lane: Lane, **more: Any) -> Any:
    """Confirm what was previewed."""
    return client.post(f"{LANES}answer/{action}/", {"ids": str(lane.pk), "reason": "because", **more}, follow=True)


def test_who_may_view_jobs_sees_lanes_and_nobody_edits_them(driver: Driver) -> None:
    """RELIABILITY 6.2: lists and pages; receipts read-only, jobs and dependencies linked."""
    making.lane("before")
    lane = making.lane("after", Standing("done", "approved", "merged"), depends_on=["before"], title="A title")
    other = making.lane("other", reconcile={"type": "noop"})
    job = driver.enqueue()
    lane_jobs.attach(other.pk, job, by=conductor())
    viewer = somebody("viewer")
    listed = viewer.get(LANES).content.decode()
    assert all(word in listed for word in ("before", "after", "in_progress", "state-completed"))
    page = viewer.get(f"{LANES}{lane.pk}/change/").content.decode()
    for word in ("before</a> (open)", "thread 7", making.COMMIT, "A title", "conductor-default"):
        assert word in page
    assert page.count("<tr><td>") == LaneReceipt.objects.filter(lane=lane).count()
    assert {*re.findall(r'<input type="(\w+)"', page)} <= {"hidden"}
    shown = viewer.get(f"{LANES}{other.pk}/change/").content.decode()
    assert "1 queued" in shown
    assert job in shown
    quorum = viewer.get(f"{QUORUMS}{lane.quorum_id}/change/").content.decode()
    assert f"?quorum={lane.quorum_id}" in quorum
    for address in (LANES, QUORUMS, f"{LANES}{lane.pk}/change/"):
        for name in ("nobody", "keeper"):
            assert somebody(name).get(address).status_code == 403
        assert somebody("stranger").get(address).status_code == 302
    before = snapshot(lane)
    assert viewer.post(f"{LANES}{lane.pk}/change/", {"execution": "open"}).status_code == 403
    assert somebody("root").post(f"{LANES}{lane.pk}/delete/", {"post": "yes"}).status_code == 403
    assert somebody("root").get(f"{LANES}add/").status_code == 403
    assert snapshot(lane) == before


def test_lists_are_narrowed_and_searched() -> None:
    """RELIABILITY 6.2: by axis, quorum and workspace; by id and name exactly; nonsense is no error."""
    a, b = making.lane("a", Standing("in_progress", "submitted")), making.lane("b", of="two", where="far")
    client = somebody("viewer")

    def rows(query: str) -> set[str]:
        page = client.get(f"{LANES}?{query}")
        assert page.status_code == 200, query
        return {lane.name for lane in page.context["cl"].result_list}

    assert rows("") == {"a", "b"}
    assert rows("execution=in_progress") == rows("review=submitted") == rows(f"quorum={a.quorum_id}") == {"a"}
    assert rows(f"workspace={b.workspace_id}") == rows("q=b") == rows(f"q={b.pk}") == {"b"}
    for nonsense in ("execution=x", "quorum=x", "q=%00", "quorum=%00"):
        assert rows(nonsense) <= {"a", "b"}
    assert not rows("quorum=x")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_superuser_without_a_grant_is_refused_and_a_conductor_is_not(action: str) -> None:
    """E15 (D), E2, D2: each verb by the operator's own grant, at the version that was shown."""
    lane = making.placed("lane", ACTIONS[action])
    before = snapshot(lane)
    for client, word in ((operator(superuser=True, name="boss"), "lane not found"),
                         (operator(name="viewer"), "lane not found"),
                         (operator("member", name="member"), "role required"),
                         (operator("assignee", name="ann"), "role required")):
        assert client.get(f"{LANES}answer/{action}/?id={lane.pk}").status_code == 200
        (message,) = told(confirm(client, action, lane))
        assert word in message
        assert snapshot(lane) == before
    boss = operator("conductor", superuser=True, name="boss")
    (message,) = told(confirm(boss, action, lane, revisions="7"))
    assert "lane version changed" in message
    (message,) = told(confirm(boss, action, lane, revisions="1"))
    assert message.startswith("1 ")
    receipt = LaneReceipt.objects.filter(lane=lane).order_by("-number")[0]
    assert (receipt.by, receipt.reason, receipt.number) == ("user:boss", "because", 2)
    assert LogEntry.objects.count() == 1
    assert somebody("stranger").post(f"{LANES}answer/{action}/", {"ids": lane.pk}).status_code == 302
    assert somebody("nobody").post(f"{LANES}answer/{action}/", {"ids": lane.pk}).status_code == 403


def test_what_does_not_lead_on_is_foreseen_and_skipped() -> None:
    """D9: the confirmation says so before, and the service again."""
    lane = making.placed("lane", Standing("cancelled"))
    client = operator("conductor")
    page = client.get(f"{LANES}answer/done/?id={lane.pk}")
    assert "lane ended" in page.content.decode()
    (message,) = told(confirm(client, "done", lane))
    assert "lane ended" in message


def test_a_quorum_is_made_and_closed_in_the_admin_by_conductors() -> None:
    """D7, E15: a superuser without a grant does not learn whether the workspace is there."""
    making.workspace()
    new = {"workspace": "default", "name": "plan", "title": "The plan"}
    boss = operator(superuser=True, name="boss")
    assert "as conductor" in boss.get(f"{QUORUMS}add/").content.decode()
    refused = boss.post(f"{QUORUMS}add/", new)
    assert "There is no such workspace, or it is not yours." in refused.content.decode()
    assert "Only a conductor" in operator("member", name="m").post(f"{QUORUMS}add/", new).content.decode()
    grants.give(making.workspace(), "conductor", by="test", user=get_user_model().objects.get(username="boss"))
    for wrong, word in (({"name": "Not so"}, "a-z 0-9"), ({"workspace": "far"}, "no workspace"),
                        ({"title": "x" * 201}, "at most 200")):
        assert word in boss.post(f"{QUORUMS}add/", {**new, **wrong}).content.decode()
    assert not Quorum.objects.exists()
    assert boss.post(f"{QUORUMS}add/", new).status_code == 302
    made = Quorum.objects.get()
    assert (made.name, made.title, made.by) == ("plan", "The plan", "user:boss")
    assert "has a quorum of this name" in boss.post(f"{QUORUMS}add/", new).content.decode()
    address = f"{QUORUMS}answer/close/"
    (message,) = told(operator(name="v").post(address, {"ids": made.pk, "reason": "x"}, follow=True))
    assert "quorum not found" in message
    (message,) = told(boss.post(address, {"ids": made.pk, "reason": "agreed"}, follow=True))
    assert message.startswith("1 closed")
    made.refresh_from_db()
    assert (made.closed_by, made.close_reason) == ("user:boss", "agreed")


def test_hostile_words_are_text() -> None:
    """RELIABILITY 6.2 "Admin XSS": in every field that a person writes, on list and page."""
    lane = making.lane("a", title="".join(XSS[:5]), task="".join(XSS[5:12]), branch="a<b>'\"&c")
    lanes.set_state(lane.pk, "cancelled", by=conductor(), reason="".join(XSS[12:20]))
    client = somebody("viewer")
    for address in (LANES, f"{LANES}{lane.pk}/change/"):
        page = client.get(address).content.decode()
        assert not [word for word in (*XSS[:20], "a<b>") if "<" in word and word in page and word != "</"]
