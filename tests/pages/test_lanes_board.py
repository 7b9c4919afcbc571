"""Lanes in the console: who sees what, the board, one lane and its verbs, forms, and what is refused."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

from jobs.models import Job
from jobs.services import grants
from lanes import axes, sightings
from lanes.axes import Axis, Execution, Merge, Review, Role, Standing
from lanes.models import Lane, LaneJob, LaneReceipt, Quorum
from lanes.pages.tracks import DEEDS, tracks
from lanes.services import lane_jobs, lanes, quorums
from tests.lanes import making
from tests.pages import lane_seeds
from tests.pages.corpus import XSS
from tests.pages.people import person
from tests.pages.seeing import asked
from tests.pages.test_links import crawl

_CARD = re.compile(r'<h3><a href="/lanes/([0-9a-f-]{36})/">')
_BUTTON = re.compile(r"/act/\?deed=([a-z-]+)&amp;version=")


@pytest.fixture
def site(database):
    """Somebody of each role in the default workspace, who are nothing anywhere else."""
    for name, role in (("ann", "conductor"), ("bob", "assignee"), ("cia", "member")):
        grants.give(making.workspace(), role, by="test", user=person(name, staff=False))


def as_(name: str) -> Client:
    """A browser of this person's."""
    client = Client()
    client.force_login(get_user_model().objects.get(username=name))
    return client


def read(answer: Any, status: int = 200) -> str:
    """What the page says."""
    assert answer.status_code == status, (answer.status_code, answer.content.decode()[:2000])
    return unescape(re.sub(r"\s+", " ", answer.content.decode()))


def act(client: Client, lane: Lane, deed: str, version: int | None = None, **fields: str) -> Any:
    """The form of a deed, sent as it was shown at this version."""
    return client.post(f"/lanes/{lane.pk}/act/", {"deed": deed, "version": version or lane.version, **fields})


def cards(answer: Any) -> list[str]:
    """The names of the lanes on a board, in order."""
    ids = _CARD.findall(answer.content.decode())
    names = {str(pk): name for pk, name in Lane.objects.filter(pk__in=ids).values_list("pk", "name")}
    return [names[id_] for id_ in ids]


# --- who sees what ---------------------------------------------------------------------------------------------------


def test_a_stranger_is_led_to_the_login_and_whoever_has_no_grant_is_told_how_to_get_one(site):
    """E15: being a superuser, or holding every right over the site, shows no lane; the page says what would."""
    lane = making.lane("secret-one", title="Nobody's business")
    assert Client().get("/lanes/").url == "/login/?next=/lanes/"
    person("root", superuser=True)
    root = as_("root")
    for path in ("/lanes/", f"/lanes/{lane.pk}/", "/lanes/quorums/", f"/lanes/quorums/{lane.quorum_id}/", "/lanes/new/",
                 f"/lanes/{lane.pk}/act/?deed=start&version=1"):
        page = read(root.get(path), 403)
        assert "manage.py grants give member --user root" in page
        assert "/admin/jobs/grant/" in page
        assert "secret-one" not in page
        assert "Nobody's business" not in page
    answer = act(root, lane, "start")
    assert answer.status_code == 403
    lane.refresh_from_db()
    assert lane.execution == "open"


def test_lanes_have_a_place_in_the_head_for_those_with_a_grant_alone(site):
    """E2: whoever sees no jobs, and has a role, is led to lanes from the first page; the rest are as they were."""
    person("root", superuser=True)
    person("viewer", "view_job", staff=False)
    assert 'href="/lanes/"' not in read(as_("root").get("/"))
    assert 'href="/lanes/"' not in read(as_("viewer").get("/"))
    assert as_("cia").get("/").url == "/lanes/"
    page = read(as_("cia").get("/lanes/"))
    assert '<a href="/lanes/" aria-current="page">Lanes</a>' in page
    assert 'href="/jobs/"' not in page
    nowhere = read(as_("cia").get("/jobs/"), 403)
    assert '<a class="button" href="/lanes/">Go to Lanes</a>' in nowhere


def test_what_is_foreign_answers_as_what_is_not_there(site):
    """E15 D: byte for byte, by every page and every form; and nothing has changed."""
    foreign = making.lane("foreign", where="elsewhere")
    before = making.snapshot(foreign)
    missing = "01970000-0000-7000-8000-000000000001"
    ann = as_("ann")

    def answers(lane: Any, quorum: Any) -> list[tuple[int, bytes]]:
        told = [ann.get(path) for path in (
            f"/lanes/{lane}/", f"/lanes/{lane}/act/?deed=start&version=1", f"/lanes/{lane}/assign/?version=1",
            f"/lanes/{lane}/depend/?version=1", f"/lanes/{lane}/jobs/attach/", f"/lanes/{lane}/jobs/new/",
            f"/lanes/quorums/{quorum}/",
            f"/lanes/quorums/{quorum}/close/", f"/lanes/new/?quorum={quorum}", f"/lanes/?quorum={quorum}")]
        told += [ann.post(path, fields) for path, fields in (
            (f"/lanes/{lane}/act/", {"deed": "start", "version": "1"}),
            (f"/lanes/{lane}/act/", {"deed": "approve", "version": "7"}),
            (f"/lanes/{lane}/assign/", {"assignee": "user:ann", "version": "1"}),
            (f"/lanes/{lane}/depend/", {"version": "1"}), (f"/lanes/{lane}/jobs/attach/", {"job_id": missing}),
            (f"/lanes/{lane}/jobs/new/", {"type": "echo", "input": "{}"}),
            (f"/lanes/quorums/{quorum}/close/", {}),
            ("/lanes/new/", {"quorum": str(quorum), "name": "x", "branch": "x", "assignee": "user:ann", "task": "x"}))]
        token = re.compile(rb'name="csrfmiddlewaretoken" value="[^"]+"')
        return [(one.status_code, token.sub(b"", one.content)) for one in told]

    theirs, nobodys = answers(foreign.pk, foreign.quorum_id), answers(missing, missing)
    assert {status for status, _ in theirs} == {404}
    assert theirs == nobodys
    assert making.snapshot(foreign) == before
    board = read(ann.get("/lanes/"))
    assert "foreign" not in board
    assert cards(ann.get("/lanes/?assignee=" + foreign.assignee)) == []


def test_a_member_reads_everything_and_presses_nothing(site):
    """E15: no button, no form, and a form that is sent all the same is refused by the role that it takes."""
    lane = making.lane()
    cia = as_("cia")
    page = read(cia.get(f"/lanes/{lane.pk}/"))
    assert not _BUTTON.findall(cia.get(f"/lanes/{lane.pk}/").content.decode())
    assert "<strong>Start</strong>: by a conductor" in page
    assert "<strong>Submit for review</strong>: by a conductor, or its assignee" in page
    assert "/lanes/new/" not in read(cia.get("/lanes/"))
    before = making.snapshot(lane)
    for deed in DEEDS:
        answer = act(cia, lane, deed, commit="c0ffee1")
        assert answer.status_code == 403, deed
        assert "role_required" in answer.content.decode()
    assert cia.post(f"/lanes/{lane.pk}/assign/", {"assignee": "user:ann", "version": "1"}).status_code == 403
    assert read(cia.post("/lanes/quorums/new/", {"workspace": "default", "name": "mine"}), 400)
    assert cia.post(f"/lanes/quorums/{lane.quorum_id}/close/", {}).status_code == 403
    assert cia.post(f"/lanes/{lane.pk}/jobs/new/", {"type": "echo", "input": "{}"}).status_code == 409
    assert making.snapshot(lane) == before
    assert Quorum.objects.filter(closed_at=None).count() == 1


# --- the board -------------------------------------------------------------------------------------------------------


def test_the_board_shows_each_lane_in_its_column_with_what_it_is_and_what_its_jobs_do(site, driver):
    """D7, issue 7: branch, assignee, review, merge, what it waits for, jobs by state, dead letters, last activity."""
    making.lane("first", Standing("in_progress", "submitted"), title="The first of all", assignee="user:bob")
    second = making.lane("second", depends_on=["first"])
    for state in ("done", "failed", "cancelled"):
        making.lane(state, Standing(state))
    for _ in range(3):
        lane_jobs.attach(second.pk, driver.enqueue(), by=making.conductor())
    driver.fail(driver.claim_one(), retryable=False)
    answer = as_("cia").get("/lanes/")
    page = read(answer)
    columns = dict(re.findall(r'<section class="column" aria-labelledby="c-(\w+)">(.*?)</section>', page))
    assert list(columns) == [state.value for state in Execution]
    first, waits = columns["in_progress"], columns["open"]
    for word in (">first</a>", "The first of all", "work/first", "user:bob", "submitted", ">one</p>"):
        assert word in first
    assert 'waits for <a href="/lanes/' in waits
    assert ">first</a></p>" in waits
    assert "2 queued, 1 failed" in waits
    assert "1 dead letter</span>" in waits
    assert "ago" in waits.partition("dead letter")[2] or "just now" in waits
    assert cards(answer) == ["second", "first", "done", "failed", "cancelled"]


def test_a_board_is_narrowed_by_quorum_assignee_and_to_ones_own(site):
    """Issue 7: filters in the URL; what nobody is called shows nothing, and says what to do."""
    making.lane("a", of="one", assignee="user:bob")
    making.lane("b", of="two", assignee="user:ann")
    two = Quorum.objects.get(name="two")
    bob = as_("bob")
    assert cards(bob.get("/lanes/")) == ["b", "a"]
    assert cards(bob.get("/lanes/?mine=1")) == ["a"]
    assert cards(bob.get("/lanes/?assignee=user:ann")) == ["b"]
    assert cards(bob.get(f"/lanes/?quorum={two.pk}")) == ["b"]
    assert cards(bob.get(f"/lanes/quorums/{two.pk}/")) == ["b"]
    assert cards(bob.get("/lanes/?execution=done")) == []
    assert cards(bob.get("/lanes/?execution=none-such&before=x")) == ["b", "a"]
    assert "No lane here fits" in read(bob.get("/lanes/?assignee=user:nobody"))
    assert read(bob.get("/lanes/?quorum=none-such"), 404)
    assert bob.get("/lanes/?assignee=%1b%ff%00").status_code == 200


def test_a_column_shows_its_newest_and_pages_through_all_the_rest(site):
    """Bounded: twenty a column, the whole of it by its ids; each lane once, and none of another state."""
    lane_seeds.seed(420)
    ann = as_("ann")
    answer = ann.get("/lanes/?mine=&assignee=")
    assert len(cards(answer)) <= 100
    page = answer.content.decode()
    assert "20+ open" in read(answer)
    found, link = [], "/lanes/?" + unescape(re.search(r'href="/lanes/\?([^"]*execution=open[^"]*)"', page)[1])
    while link:
        answer = ann.get(link)
        found += cards(answer)
        more = re.search(r'href="/lanes/\?([^"]*before=[^"]*)"', answer.content.decode())
        link = "/lanes/?" + unescape(more[1]) if more else ""
    assert found == [f"lane-{n}" for n in range(420, 320, -1)]
    assert cards(ann.get("/lanes/?execution=open&before=none-such")) == found[:60]


def test_pages_say_what_to_do_where_there_is_nothing(site):
    """Empty states lead on: a conductor to the next step, others to whom they wait for."""
    assert "Make the first quorum" in read(as_("ann").get("/lanes/"))
    assert "A conductor of your workspace makes them" in read(as_("cia").get("/lanes/"))
    assert "No quorums yet" in read(as_("cia").get("/lanes/quorums/"))
    one = making.quorum()
    assert "Make the first lane" in read(as_("ann").get("/lanes/"))
    assert "Make the first lane" in read(as_("ann").get(f"/lanes/quorums/{one.pk}/"))
    assert "There is no open one" not in read(as_("ann").get("/lanes/new/"))
    assert "There is no open one" in read(as_("bob").get("/lanes/new/"))


# --- one lane --------------------------------------------------------------------------------------------------------


def test_the_tracks_offer_what_the_tables_allow_and_nothing_else():
    """D9 to D11: for every standing, every role, the assignee and others: a button iff the service would say yes."""
    seen = 0
    for at in itertools.starmap(Standing, itertools.product(Execution, Review, Merge)):
        lane = Lane(execution=at.execution, review=at.review, merge=at.merge, assignee_user="7")
        for role, me in itertools.product((None, *Role), ("7", "8")):
            offered = {next_.deed for track in tracks(lane, role, me) for next_ in track.nexts
                       if next_.may and not next_.lacks}
            for deed in DEEDS.values():
                try:
                    axes.moved(at, deed.axis, deed.verb)
                    leads = True
                except Exception:
                    leads = False
                may = axes.may(axes.needed(deed.axis, deed.verb), role, me == "7")
                assert (deed in offered) == (leads and may), (at, role, me, deed.name)
                seen += deed in offered
    assert seen > 100
    assert {(deed.axis, deed.verb) for deed in DEEDS.values()} == {
        (axis, verb) for axis in Axis for verb in axes.verbs(axis)}


def test_a_lane_goes_its_way_by_buttons_and_each_leaves_a_receipt_with_its_reason(site):
    """D9 to D11: started, submitted by its assignee, approved, done, merged; then nothing more is offered."""
    lane = making.lane(assignee="user:bob")
    ways = [("ann", "start", "begun", {}), ("bob", "submit", "ready", {}), ("ann", "request-changes", "tests", {}),
            ("bob", "submit", "", {}), ("ann", "approve", "fine", {}), ("ann", "finish", "", {}),
            ("ann", "merged", "into main", {"commit": "C0FFEE1234"})]
    for who, deed, reason, fields in ways:
        client = as_(who)
        lane.refresh_from_db()
        page = client.get(f"/lanes/{lane.pk}/").content.decode()
        assert f"deed={deed}&amp;version={lane.version}" in page, (deed, _BUTTON.findall(page))
        assert 'name="reason"' in read(client.get(f"/lanes/{lane.pk}/act/?deed={deed}&version={lane.version}"))
        assert act(client, lane, deed, reason=reason, **fields).url == f"/lanes/{lane.pk}/"
    told = list(LaneReceipt.objects.filter(lane=lane).order_by("number").values_list("by", "reason", "after"))[1:]
    assert [(by, why) for by, why, _ in told] == [(f"user:{who}", why) for who, _, why, _ in ways]
    answer = as_("ann").get(f"/lanes/{lane.pk}/")
    page = read(answer)
    assert not _BUTTON.findall(answer.content.decode())
    assert "give to another" not in page
    for word in ("It is merged: nothing of it changes any more.", "c0ffee1234", "review: submitted → approved",
                 "into main", "merge: none → merged"):
        assert word in page


def test_what_cannot_be_is_said_and_changes_nothing(site):
    """D9 to D11: done before it is begun, merged before it is approved or without its commit, no commit at all."""
    lane = making.lane(assignee="user:bob")
    before = making.snapshot(lane)
    ann = as_("ann")
    assert "lane_move_refused" in read(act(ann, lane, "finish"), 409)
    assert "It cannot be done now" in read(ann.get(f"/lanes/{lane.pk}/act/?deed=finish&version=1"))
    assert "takes a lane that is done and approved" in read(act(ann, lane, "merged", commit="c0ffee1"), 409)
    assert "takes a lane that is done and approved" in read(ann.get(f"/lanes/{lane.pk}/"))
    # The fault stands at its field.
    made = making.bring(making.lane("ready"), Standing("done", "approved"), making.conductor())
    for commit in ("", "xyz", "c0ffee", "c" * 65):
        page = read(act(ann, made, "merged", commit=commit), 400)
        assert re.search(r'name="commit"[^>]*aria-invalid="true".*class="fault"', page)
    assert "512" in read(act(ann, lane, "start", reason="x" * 513), 400)
    for deed, version in (("start", "0"), ("start", "x"), ("start", ""), ("nothing", "1"), ("start", "9" * 12)):
        assert ann.post(f"/lanes/{lane.pk}/act/", {"deed": deed, "version": version}).status_code == 400
    assert making.snapshot(lane) == before


def test_a_form_that_was_overtaken_says_what_has_changed_and_overwrites_nothing(site):
    """Issue 7: guarded by the version that was shown; the second try means the lane as it is now."""
    lane = making.lane(assignee="user:bob")
    ann = as_("ann")
    lanes.set_state(lane.pk, "in_progress", by=making.conductor(), reason="began without you")
    page = read(act(ann, lane, "cancel", version=1, reason="not needed"), 409)
    for word in ("The lane has changed since you looked", "execution: open → in progress", "user:conductor-default",
                 "began without you", 'value="not needed"'):
        assert word in page
    assert Lane.objects.get(pk=lane.pk).execution == "in_progress"
    assert 'name="version" value="2"' in page
    assert act(ann, lane, "cancel", version=2, reason="not needed").status_code == 302
    assert Lane.objects.get(pk=lane.pk).execution == "cancelled"
    # And where it cannot be done any more: no form, but why.
    page = read(act(ann, lane, "finish", version=2), 409)
    assert "in progress → cancelled" in page
    assert "It cannot be done now" in page
    assert '<button class="primary">Finish' not in page
    assert "The lane has changed since you looked" in read(ann.get(f"/lanes/{lane.pk}/act/?deed=cancel&version=1"))


def test_a_lane_is_given_to_another_who_may_have_it(site):
    """D7, D8: one assignee, with the role for it at this moment; the names to choose from are those."""
    lane = making.lane(assignee="user:bob")
    ann = as_("ann")
    page = read(ann.get(f"/lanes/{lane.pk}/assign/?version=1"))
    assert '<option value="user:ann">' in page
    assert '<option value="user:cia">' not in page
    fault = read(ann.post(f"/lanes/{lane.pk}/assign/", {"version": "1", "assignee": "user:cia"}), 400)
    assert re.search(r'name="assignee"[^>]*aria-invalid="true".*role of assignee or conductor', fault)
    answer = ann.post(f"/lanes/{lane.pk}/assign/", {"version": "1", "assignee": "user:ann", "reason": "bob is away"})
    assert answer.url == f"/lanes/{lane.pk}/"
    page = read(ann.get(f"/lanes/{lane.pk}/"))
    assert "given to user:ann, before that user:bob" in page
    assert "bob is away" in page


def test_a_lane_shows_what_it_waits_for_and_what_waits_for_it(site):
    """D8: both ways, with where the others stand; what is not done is told."""
    making.lane("base", Standing("done"))
    making.lane("middle", depends_on=["base"])
    making.lane("top", depends_on=["middle", "base"])
    page = read(as_("cia").get(f"/lanes/{Lane.objects.get(name='middle').pk}/"))
    waits, _, waited = page.partition("What waits for it")
    assert ">base</a>" in waits
    assert ">top</a>" in waited
    assert "1 of 2 not done yet" in read(as_("cia").get(f"/lanes/{Lane.objects.get(name='top').pk}/"))


def test_history_and_jobs_are_read_page_by_page(site, driver, monkeypatch):
    """Bounded, newest first; ids lead to jobs for who may see jobs, are words for others, and gone jobs are told."""
    monkeypatch.setattr(sightings, "RECEIPTS", 5)
    monkeypatch.setattr(sightings, "JOBS", 3)
    lane = making.lane()
    for _ in range(7):
        lane_jobs.attach(lane.pk, driver.enqueue(), by=making.conductor())
    LaneJob.objects.filter(lane=lane).latest("pk").delete()
    LaneJob.objects.create(lane=lane, job_id=uuid.UUID("f" * 32), by="test")
    ann = as_("ann")
    page = read(ann.get(f"/lanes/{lane.pk}/"))
    assert re.findall(r'<td class="num">(\d+)</td>', page) == ["8", "7", "6", "5", "4"]
    assert "deleted after its retention" in page
    assert "6 queued, 1 gone" in page
    further = read(ann.get(f"/lanes/{lane.pk}/" + re.search(r'href="(\?before=\d+)"', page)[1]))
    assert re.findall(r'<td class="num">(\d+)</td>', further) == ["3", "2", "1"]
    link = re.search(r'href="(\?jobs_before=[^"]+)"', page)[1]
    assert read(ann.get(f"/lanes/{lane.pk}/{link}")).count("state-queued") == 3
    assert ann.get(f"/lanes/{lane.pk}/?jobs_before=x&before=-1").status_code == 200
    job = LaneJob.objects.filter(lane=lane).order_by("-pk")[1]
    assert f"/jobs/{job.pk}/" not in page
    assert f'title="{job.pk}">{str(job.pk)[-12:]}<' in page
    person("dan", "view_job", staff=False)
    grants.give(making.workspace(), "member", by="test", user=get_user_model().objects.get(username="dan"))
    assert f'href="/jobs/{job.pk}/"' in read(as_("dan").get(f"/lanes/{lane.pk}/"))


def test_what_a_lane_waits_for_is_changed_and_never_to_a_circle(site):
    """D8: of the same quorum; a circle is named at the field, and what was ticked is kept."""
    base, top = making.lane("base"), making.lane("top", depends_on=["base"])
    foreign = making.lane("foreign", of="two")
    ann, path = as_("ann"), f"/lanes/{base.pk}/depend/"
    form = read(ann.get(path + "?version=1"))
    assert re.search(rf'name="depends_on" value="{top.pk}"> top', form)
    assert "foreign" not in form
    for other, word in ((top, "wait for each other"), (foreign, "no lane")):
        page = read(ann.post(path, {"version": "1", "depends_on": [str(other.pk)]}), 400)
        assert re.search(rf'class="fault" role="alert">[^<]*{word}', page), page
    assert f'value="{top.pk}" checked' in read(ann.post(path, {"version": "1", "depends_on": [str(top.pk)]}), 400)
    assert ann.post(f"/lanes/{top.pk}/depend/", {"version": "1", "reason": "not any more"}).status_code == 302
    assert ann.post(path, {"version": "1", "depends_on": [str(top.pk)]}).status_code == 302
    assert "waits for top; before that for nothing" in read(ann.get(f"/lanes/{base.pk}/"))
    assert as_("cia").post(path, {"version": "2"}).status_code == 403


# --- forms -----------------------------------------------------------------------------------------------------------


def test_a_quorum_and_a_lane_are_made_by_forms(site):
    """D7, D8: from nothing to a lane that waits for another."""
    ann = as_("ann")
    made = ann.post("/lanes/quorums/new/", {"workspace": "default", "name": "spring", "title": "What spring needs"})
    quorum = Quorum.objects.get(name="spring")
    assert made.url == f"/lanes/quorums/{quorum.pk}/"
    first = {"quorum": str(quorum.pk), "name": "first", "branch": "work/first", "assignee": "user:bob", "task": "T 1"}
    assert ann.post("/lanes/new/", first).status_code == 302
    base = Lane.objects.get(name="first")
    second = {**first, "name": "second", "branch": "work/second", "title": "Then this", "depends_on": str(base.pk),
              "reconcile_type": "echo", "reconcile_input": '{"value": "x"}'}
    answer = ann.post("/lanes/new/", second)
    lane = Lane.objects.get(name="second")
    assert answer.url == f"/lanes/{lane.pk}/"
    assert (lane.by, lane.assignee, lane.reconcile_type, lane.workspace_id) == (
        "user:ann", "user:bob", "echo", quorum.workspace_id)
    assert [other.on_id for other in lane.dependencies.all()] == [base.pk]


@pytest.mark.parametrize(("fields", "field"), [
    ({"name": "No Blanks"}, "name"), ({"name": "taken"}, "name"), ({"title": "x" * 201}, "title"),
    ({"branch": "work/.."}, "branch"), ({"branch": ""}, "branch"), ({"branch": "work/taken"}, "branch"),
    ({"assignee": "user:cia"}, "assignee"), ({"assignee": "nobody"}, "assignee"), ({"task": ""}, "task"),
    ({"task": "\x1b"}, "task"), ({"depends_on": "none-such"}, "depends_on"),
    ({"reconcile_type": "echo", "reconcile_input": '{"other": 1}'}, "reconcile"),
    ({"reconcile_type": "echo", "reconcile_input": "{"}, "reconcile"), ({"reconcile_type": "none-such"}, "reconcile")])
def test_what_a_new_lane_cannot_be_stands_at_its_field_and_what_was_typed_is_kept(site, fields, field):
    """D8: refused now, not later; nothing is written."""
    taken = making.lane("taken")
    before = Lane.objects.count()
    answer = as_("ann").post("/lanes/new/", {"quorum": str(taken.quorum_id), "name": "fresh", "branch": "work/fresh",
                                             "assignee": "user:bob", "task": "what I typed", **fields})
    page = read(answer, answer.status_code)
    assert answer.status_code in (400, 404, 409), page
    assert f"<code>{field}</code>" in page, page
    assert 'class="fault"' in page
    assert "task" in fields or 'value="what I typed"' in page
    assert Lane.objects.count() == before


def test_a_quorum_is_refused_at_its_field_and_closed_with_a_reason(site):
    """D7: of workspaces where one conducts; a closed quorum takes no lane, by no form."""
    making.workspace("elsewhere")
    ann = as_("ann")
    for fields in ({"workspace": "elsewhere", "name": "x"}, {"workspace": "none-such", "name": "x"},
                   {"workspace": "default", "name": "X"}):
        assert 'class="fault"' in read(ann.post("/lanes/quorums/new/", fields), 400)
    one = making.quorum()
    assert "quorum_exists" in read(ann.post("/lanes/quorums/new/", {"workspace": "default", "name": "one"}), 409)
    assert ann.post(f"/lanes/quorums/{one.pk}/close/", {"reason": "all agreed"}).status_code == 302
    page = read(ann.get(f"/lanes/quorums/{one.pk}/"))
    assert "all agreed" in page
    assert "/lanes/new/" not in page
    assert "quorum_closed" in read(ann.post(f"/lanes/quorums/{one.pk}/close/", {}), 409)
    assert "It is closed." in read(ann.get(f"/lanes/new/?quorum={one.pk}"))
    fields = {"quorum": str(one.pk), "name": "x", "branch": "x", "assignee": "user:bob", "task": "x"}
    assert "It is closed." in read(ann.post("/lanes/new/", fields), 409)
    assert Lane.objects.count() == 0


def test_jobs_are_enqueued_into_a_lane_and_attached_to_it(site, driver):
    """D2, D6: both or neither, sent twice once; a job of another lane, or of elsewhere, is not taken."""
    lane, other = making.lane(), making.lane("other")
    ann = as_("ann")
    form = read(ann.get(f"/lanes/{lane.pk}/jobs/new/"))
    assert 'name="workspace"' not in form
    key = re.search(r'name="idempotency_key" value="([^"]+)"', form)[1]
    fields = {"type": "echo", "input": '{"value": "1"}', "priority": "7", "idempotency_key": key,
              "workspace": "elsewhere"}
    for _ in range(2):
        assert ann.post(f"/lanes/{lane.pk}/jobs/new/", fields).url == f"/lanes/{lane.pk}/"
    job = Job.objects.get()
    assert (job.priority, job.origin, job.workspace.slug) == (7, "user", "default")
    assert LaneJob.objects.get().lane_id == lane.pk
    for wrong in ({"input": "{"}, {"input": '{"other": 1}'}, {"type": "none-such"}, {"priority": "many"}):
        read(ann.post(f"/lanes/{lane.pk}/jobs/new/", {**fields, "idempotency_key": "x", **wrong}), 400)
    assert Job.objects.count() == 1
    assert "job_in_other_lane" not in read(ann.get(f"/lanes/{other.pk}/jobs/attach/"))
    assert 'class="fault"' in read(ann.post(f"/lanes/{other.pk}/jobs/attach/", {"job_id": str(job.pk)}), 409)
    assert 'class="fault"' in read(ann.post(f"/lanes/{other.pk}/jobs/attach/", {"job_id": "none-such"}), 409)
    second = driver.enqueue()
    assert ann.post(f"/lanes/{other.pk}/jobs/attach/", {"job_id": second}).status_code == 302
    assert ann.post(f"/lanes/{other.pk}/jobs/attach/", {"job_id": second}).status_code == 302
    assert LaneJob.objects.filter(lane=other).count() == 1


def test_a_form_without_its_token_changes_nothing(site):
    """RELIABILITY 6.2 CSRF: as a conductor, whose every form would be followed; and a GET never acts."""
    lane = making.lane(assignee="user:bob")
    before, quorum = making.snapshot(lane), lane.quorum_id
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(get_user_model().objects.get(username="ann"))
    forms: list[tuple[str, dict[str, str]]] = [
        (f"/lanes/{lane.pk}/act/", {"deed": "start", "version": "1"}),
        (f"/lanes/{lane.pk}/assign/", {"assignee": "user:ann", "version": "1"}),
        (f"/lanes/{lane.pk}/jobs/new/", {"type": "echo", "input": "{}"}),
        (f"/lanes/quorums/{quorum}/close/", {}), ("/lanes/quorums/new/", {"workspace": "default", "name": "x"}),
        ("/lanes/new/", {"quorum": str(quorum), "name": "x", "branch": "x", "assignee": "user:bob", "task": "x"})]
    for path, fields in forms:
        assert strict.post(path, fields).status_code == 403, path
        strict.get(path, fields)
    assert making.snapshot(lane) == before
    assert (Lane.objects.count(), Quorum.objects.count(), Job.objects.count()) == (1, 1, 0)
    assert Quorum.objects.get().closed_at is None


# --- hostile, large, slow --------------------------------------------------------------------------------------------


def hostile() -> list[str]:
    """Lanes with every word of the corpus in every text that takes them; the paths that show them."""
    ann = making.user("ann")
    texts, paths = [""], ["/lanes/", "/lanes/quorums/", "/lanes/new/", "/lanes/?execution=in_progress"]
    for word in XSS:
        if len(texts[-1]) + len(word) > 145:
            texts.append("")
        texts[-1] += word
    for n, text in enumerate(texts):
        bad, _ = get_user_model().objects.get_or_create(username=text)
        grants.give(making.workspace(), "assignee", by="test", user=bad)
        quorum = quorums.create(making.workspace(), f"q-{n}", text, by=ann)
        branch = re.sub(r"[\x00-\x20~^:?*\[\\]+|\.+|/+", "-", text).strip("-")
        said = {"title": text, "task": text, "branch": branch, "assignee": f"user:{text}"}
        lane = lanes.create(quorum.pk, making.draft(f"l-{n}", **said), by=ann)
        lanes.set_state(lane.pk, "in_progress", by=ann, reason=text)
        quorums.close(quorum.pk, by=ann, reason=text)
        paths += [f"/lanes/{lane.pk}/", f"/lanes/quorums/{quorum.pk}/", f"/lanes/{lane.pk}/assign/?version=2",
                  f"/lanes/{lane.pk}/act/?deed=finish&version=1", f"/lanes/?quorum={quorum.pk}"]
    return paths


def test_no_text_of_a_lane_becomes_markup(site):
    """G07: titles, tasks, branches, names, reasons with everything that would run; each page has its own tags alone."""
    paths = hostile()
    ann = as_("ann")
    for path in [*paths, "/lanes/?assignee=<script>alert(1)</script>", "/lanes/?assignee=\"><svg onload=x>"]:
        tags = re.findall(r"<[a-z][^<>]*>", ann.get(path).content.decode())
        assert tags
        for tag in tags:
            # Texts in an attribute are quoted; none begins a tag or an attribute of its own.
            bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", tag)
            assert not re.search(r"\bon[a-z]+=|alert|srcdoc|javascript:", bare), (path, tag)
            assert not re.match(r"<(svg|iframe|style|base|math|details open ontoggle)\b", tag), (path, tag)
            assert not tag.startswith("<img") or "/static/" in tag, (path, tag)
            assert not tag.startswith("<script") or 'src="/static/' in tag, (path, tag)


def test_every_link_of_lanes_leads_somewhere_for_every_role(site, driver):
    """Nobody is shown a link that answers 403, 404 or 500."""
    lane = making.lane("first", Standing("in_progress", "submitted"), assignee="user:bob")
    making.lane("second", depends_on=["first"])
    lane_jobs.attach(lane.pk, driver.enqueue(), by=making.conductor())
    driver.fail(driver.claim_one(), retryable=False)
    person("eve", "view_job", staff=False)
    grants.give(making.workspace(), "conductor", by="test", user=get_user_model().objects.get(username="eve"))
    for name in ("cia", "eve"):
        found = crawl(as_(name), "/lanes/")
        assert {at: status for at, status in found.items() if status not in (200, 302)} == {}, name
        assert len(found) >= 5


def test_a_page_costs_as_many_statements_for_many_lanes_as_for_few(site, driver):
    """Bounded: a fixed number, whatever there is."""
    making.lane("first", assignee="user:bob")
    making.lane("second", depends_on=["first"])
    few = {path: len(asked(as_("ann"), path)[1]) for path in ("/lanes/", f"/lanes/{Lane.objects.latest('pk').pk}/")}
    quorum = lane_seeds.seed(2_000)
    newest = Lane.objects.filter(quorum=quorum, execution="in_progress").latest("pk")
    many = {"/lanes/": 0, f"/lanes/{newest.pk}/": 0}
    for path in many:
        many[path] = len(asked(as_("ann"), path)[1])
    # Each column that shows some asks for their rows, and for what those wait for.
    assert max(few.values()) <= 40
    assert max(many.values()) <= 40, many


def test_a_board_of_very_many_lanes_looks_at_what_it_shows(site):
    """Bounded: 20,000 lanes here, 100,000 in `python -m tests.pages.scale --lanes 100000`; no statement reads all.

    Neither for a column that is full, nor for a small workspace beside a large one.
    """
    quorum = lane_seeds.seed_for(get_user_model().objects.get(username="ann"), 20_000)
    ann = as_("ann")
    for path in lane_seeds.paths(quorum):
        with connection.execute_wrapper(_not_all):
            assert ann.get(path).status_code == 200, path


def _not_all(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    if "lanes_lane" in sql and sql.lstrip("( ").startswith(("SELECT", "WITH")):
        with connection.cursor() as cursor:
            # Past the wrappers.
            cursor.cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, params)
            _check(cursor.cursor.fetchone()[0][0]["Plan"], sql)
    return execute(sql, params, many, context)


def _check(node: dict[str, Any], sql: str) -> None:
    read_ = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    assert node.get("Relation Name") != "lanes_lane" or read_ * node["Actual Loops"] < 2_000, (sql, node)
    for part in node.get("Plans", ()):
        _check(part, sql)


def test_a_database_that_takes_too_long_is_a_notice_and_no_error(site):
    """As on the other pages: within 250 ms a statement; and what jobs do may be missing where lanes are not."""
    lane = making.lane()
    ann = as_("ann")
    with locked("lanes_lane"):
        for path in ("/lanes/", f"/lanes/{lane.pk}/", f"/lanes/quorums/{lane.quorum_id}/"):
            assert "This takes too long just now" in read(ann.get(path))
    with locked("lanes_job"):
        page = read(ann.get("/lanes/"))
        assert "took too long to say what the jobs of these lanes do" in page
        assert ">lane</a>" in page


@contextmanager
def locked(table: str) -> Iterator[None]:
    """Nobody else reads this table meanwhile."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield
    finally:
        other.rollback()
        other.close()
