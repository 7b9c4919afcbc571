"""Lists of lanes: what the caller may see, silently, page by page, whatever else there is (D12)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection

from jobs.errors import Invalid
from lanes.actors import Actor, of_user
from lanes.axes import Standing
from lanes.services import lanes, quorums
from tests import database as db
from tests.lanes import making
from tests.lanes.making import conductor, user
from tests.making import statements
from tests.races.threads import LONG

pytestmark = pytest.mark.usefixtures("database")


def names(**asked: Any) -> list[str]:
    """The names of a list, and of all its pages."""
    found, cursor = [], None
    while True:
        page = lanes.listing(**asked, cursor=cursor)
        found += [lane.name for lane in page.items]
        if page.next is None:
            return found
        cursor = page.next


def test_a_list_is_what_its_caller_may_see_and_says_nothing_of_the_rest() -> None:
    """D12, E15: of workspaces without a grant nothing, superusers included; from members on everything."""
    for name in ("a", "b"):
        making.lane(name)
    making.lane("c", where="far")
    both = user("both", "member")
    user("both", "assignee", where="far")
    assert names(by=both) == ["c", "b", "a"]
    assert names(by=user("member", "member")) == names(by=making.key("member")) == ["b", "a"]
    assert names(by=conductor("far")) == ["c"]
    for who in (user("stranger"), user("boss", is_superuser=True), making.key(), of_user(AnonymousUser())):
        assert names(by=who) == []
    far = lanes.listing(by=conductor("far")).items[0]
    assert names(by=conductor(), quorum=far.quorum_id) == names(by=conductor(), workspace_id=far.workspace_id) == []
    assert [one.name for one in quorums.listing(by=both).items] == ["one", "one"]
    assert quorums.listing(by=user("stranger")).items == []
    assert [(place.slug, role) for place, role in quorums.places(by=both)] == [
        ("default", "member"), ("far", "assignee")]


def test_nobody_is_no_grant_without_a_user_or_key() -> None:
    """E2: an actor without an id would find somebody else's, whose other id is none."""
    with pytest.raises(ValueError, match="a user or a key"):
        Actor("nobody")
    with pytest.raises(ValueError, match="a user or a key"):
        Actor("both", user_id="1", key_id=1)
    making.key("member")
    assert lanes.role_in(making.workspace().pk, of_user(AnonymousUser())) is None


def test_a_list_is_narrowed_and_pages_by_key() -> None:
    """D12: each filter by itself and together; a cursor is good for its list alone."""
    making.lane("first", of="two")
    for n, place in enumerate((Standing(), Standing("in_progress"), Standing("done", "approved"),
                               Standing("done", "approved", "merged"), Standing("in_progress", "submitted"))):
        making.placed(f"n{n}", place)
    who = conductor()
    assert names(by=who, limit=1) == names(by=who, limit=2) == names(by=who, limit=6) == [
        "n4", "n3", "n2", "n1", "n0", "first"]
    assert names(by=who, execution="in_progress", limit=1) == ["n4", "n1"]
    assert names(by=who, review="approved") == ["n3", "n2"]
    assert names(by=who, merge="merged") == ["n3"]
    assert names(by=who, quorum=making.quorum("two").pk) == ["first"]
    assert names(by=who, quorum=str(making.quorum("one").pk), execution="open") == ["n0"]
    assert names(by=who, assignee="user:assignee-default", execution="done", review="approved", merge="none") == ["n2"]
    for nobody in ({"assignee": "user:nobody"}, {"assignee": "\x00"}, {"quorum": "x"}, {"quorum": "\x00"}):
        assert names(by=who, **nobody) == []
    cursor = lanes.listing(by=who, limit=2).next
    assert isinstance(cursor, str)
    for other in ({"by": who, "execution": "open"}, {"by": user("member", "member")}, {"by": who, "limit": 2}):
        if other == {"by": who, "limit": 2}:
            assert lanes.listing(**other, cursor=cursor).items[0].name == "n2"
            continue
        with pytest.raises(Invalid) as refusal:
            lanes.listing(**other, cursor=cursor)
        assert refusal.value.reason_code == "invalid_cursor"


@pytest.mark.parametrize(("asked", "code", "field"), [
    ({"execution": "finished"}, "unknown_state", "execution"), ({"review": "maybe"}, "unknown_state", "review"),
    ({"merge": 7}, "unknown_state", "merge"), ({"limit": 0}, "invalid_limit", "limit"),
    ({"limit": 201}, "invalid_limit", "limit"), ({"limit": True}, "invalid_limit", "limit"),
    ({"cursor": "x"}, "invalid_cursor", "cursor"), ({"cursor": ""}, "invalid_cursor", "cursor"),
])
def test_what_cannot_be_asked_is_named(asked: dict[str, Any], code: str, field: str) -> None:
    """D12."""
    with pytest.raises(Invalid) as refusal:
        lanes.listing(by=conductor(), **asked)
    assert (refusal.value.reason_code, refusal.value.field) == (code, field)


# As many lanes as a very busy site has, nearly all of one workspace, and a small one whose lanes are the oldest.
_MANY = """INSERT INTO lanes_lane (id, quorum_id, workspace_id, name, title, branch, task, assignee, assignee_user,
        execution, review, merge, version, by, created_at, moved_at, ended_at)
    SELECT gen_random_uuid(), %s, %s, 'n' || n, '', 'b' || n, 't', 'user:' || n %% 1000, n %% 1000,
        CASE WHEN n %% 1000 = 0 THEN 'in_progress' ELSE 'cancelled' END,
        CASE WHEN n %% 500 = 0 THEN 'submitted' ELSE 'none' END, 'none', 1, 'x', now(), now(),
        CASE WHEN n %% 1000 = 0 THEN NULL ELSE now() END
    FROM generate_series(1, %s) n"""


MANY = 100_000 if LONG else 20_000


def test_a_page_costs_the_same_however_many_lanes_there_are() -> None:
    """D12: every filter, for a caller of the large workspace and for one of a small; by indexes, and few buffers."""
    small = making.lane("small", where="far")
    home = making.quorum()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE lanes_lane DISABLE TRIGGER USER")
        cursor.execute(_MANY, [home.pk, home.workspace_id, MANY])
        cursor.execute("ALTER TABLE lanes_lane ENABLE TRIGGER USER")
        cursor.execute("ANALYZE lanes_lane")
    asked: list[dict[str, Any]] = [
        {}, {"execution": "in_progress"}, {"execution": "cancelled"}, {"review": "submitted"}, {"merge": "none"},
        {"assignee": "user:7"}, {"quorum": home.pk}, {"quorum": home.pk, "execution": "in_progress"},
        {"execution": "open"}, {"merge": "merged"}, {"quorum": uuid.uuid4()}, {"quorum": small.quorum_id},
        {"execution": "done", "assignee": small.assignee}, {"execution": "cancelled", "assignee": "user:7"}]
    both = user("both", "member")
    user("both", "member", where="far")
    for who in (conductor(), conductor("far"), both, user("stranger")):
        for filters in asked:
            with statements() as found:
                lanes.listing(by=who, **filters)
            pages = [(sql, params) for sql, params in found if "x.id DESC" in sql]
            # Whose grants lead to none of what is asked for, for them no lane is looked at.
            assert pages or who not in (conductor(), both) or "quorum" in filters
            for sql, params in pages:
                plan = "\n".join(line for line, in db.rows(f"EXPLAIN (ANALYZE, BUFFERS) {sql}", *params))
                assert "Seq Scan on lanes_lane" not in plan, plan
                assert _buffers(plan) < 2_000, plan
            # Lists, prefetches and the patience: not one statement a lane.
            assert len(found) <= 5, [sql for sql, _ in found]


def _buffers(plan: str) -> int:
    top = next(line for line in plan.splitlines() if "Buffers: shared" in line)
    return sum(int(word.partition("=")[2]) for word in top.split() if word.startswith(("hit=", "read=")))
