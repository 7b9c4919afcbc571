"""Lanes in a real browser: the whole way by its forms, and what others do meanwhile arriving by itself."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from jobs.live import access
from jobs.services import grants, intake
from jobs.services.draft import Options, Request
from lanes import news
from lanes.axes import Standing
from lanes.consumers import guest
from lanes.models import Lane, Quorum
from lanes.services import lane_jobs, lanes
from tests.edges.sockets import Net, net
from tests.lanes import making
from tests.pages.people import person
from tests.pages.site import Console, session_cookie
from tests.pages.test_lanes_board import hostile

PATIENCE_MS = 20_000
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture
def people(database):
    """Somebody of each role in the default workspace."""
    made = {name: person(name, staff=False) for name in ("ann", "bob", "cia")}
    for name, role in (("ann", "conductor"), ("bob", "assignee"), ("cia", "member")):
        grants.give(making.workspace(), role, by="test", user=made[name])
    return made


@pytest.fixture
def browser(served, chromium, people):
    """Opens a browser of somebody's; scripts that fail on a page fail the test."""
    opened: list[Console] = []

    def open_(name: str, **context: object) -> Console:
        opened.append(Console(chromium, served, **context))
        opened[-1].sign_in(people[name])
        return opened[-1]
    yield open_
    for one in opened:
        one.close()


def live(console: Console, path: str) -> Console:
    """Open a page and wait until it says that it is live."""
    console.open(path)
    console.page.wait_for_selector("#live-state.on", timeout=PATIENCE_MS)
    return console


def shows(console: Console, selector: str, words: str) -> None:
    """Wait until this part of the page has these words."""
    console.page.wait_for_function("([at, words]) => document.querySelector(at)?.textContent.includes(words)",
                                   arg=[selector, words], timeout=PATIENCE_MS)


def column(state: str) -> str:
    """A column of the board."""
    return f"section[aria-labelledby=c-{state}]"


def pressed(console: Console, deed: str, **fields: str) -> None:
    """A verb of the lane whose page is open: its button, the form, and back."""
    page = console.page
    page.click(f"main a.button[href*='deed={deed}&']")
    for name, value in fields.items():
        page.fill(f"[name={name}]", value)
    page.click(".ask button")
    page.wait_for_selector(".axes")


def test_from_nothing_to_merged_by_forms_and_the_others_see_it_happen(browser):
    """D7 to D11: two people work, a third looks on and reloads nothing."""
    ann, bob = browser("ann"), browser("bob")
    cia = live(browser("cia"), "/lanes/")
    assert "No lanes yet" in cia.page.inner_text("main")
    page = ann.open("/lanes/")
    page.click("text=Make the first quorum")
    page.fill("#name", "spring")
    page.fill("#title", "What spring needs")
    page.keyboard.press("Enter")
    page.click("text=Make the first lane")
    page.fill("#name", "Not A Name")
    page.fill("#branch", "work/first")
    page.fill("#assignee", "user:bob")
    page.fill("#task", "thread 7")
    page.click("text=Make it")
    assert page.inner_text(".fault").startswith("must be 1 to 100")
    assert page.input_value("#task") == "thread 7"
    page.fill("#name", "first")
    page.click("text=Make it")
    page.wait_for_selector(".axes")
    shows(cia, column("open"), "first")
    pressed(ann, "start", reason="begun")
    shows(cia, column("in_progress"), "first")
    assert "0 open" in cia.page.text_content("#said") or "1 in progress" in cia.page.text_content("#said")
    lane = Lane.objects.get(name="first")
    bob.open(f"/lanes/{lane.pk}/")
    assert bob.page.locator("main a.button[href*=deed]").all_inner_texts() == ["Submit for review"]
    pressed(bob, "submit", reason="ready")
    shows(cia, column("in_progress"), "submitted")
    shows(ann, ".axes", "Approve")
    pressed(ann, "approve")
    pressed(ann, "finish")
    pressed(ann, "merged", commit="c0ffee1234", reason="into main")
    shows(cia, column("done"), "merged")
    shows(bob, "main", "nothing of it changes any more")
    assert ann.page.locator("main a.button[href*=deed]").count() == 0
    assert Lane.objects.get(name="first").standing == Standing("done", "approved", "merged")


def test_a_form_that_another_person_overtook_is_told_so_in_the_browser(browser):
    """Issue 7: what has changed meanwhile, and nothing overwritten."""
    lane = making.lane(assignee="user:bob")
    ann = browser("ann")
    ann.open(f"/lanes/{lane.pk}/")
    ann.page.click("text=Cancel the lane")
    lanes.set_state(lane.pk, "in_progress", by=making.conductor(), reason="I began")
    ann.page.fill("[name=reason]", "not needed")
    ann.page.click(".ask button")
    notice = ann.page.inner_text("[role=alert]")
    assert "The lane has changed since you looked" in notice
    assert "I began" in notice
    assert Lane.objects.get().execution == "in_progress"
    ann.page.click(".ask button")
    ann.page.wait_for_selector(".axes")
    assert Lane.objects.get().execution == "cancelled"


def test_what_others_do_reaches_the_board_and_the_lane_within_a_second(browser, driver):
    """Issue 7: lanes' own moves, and those of jobs that belong to them; the truth is about 0.2 s."""
    lane = making.lane("first", assignee="user:bob")
    ann, bob = browser("ann"), browser("bob")
    live(ann, "/lanes/")
    live(bob, f"/lanes/{lane.pk}/")
    ann.page.wait_for_timeout(700)
    took = []
    for verdict, word in (("submit", "submitted"), ("request_changes", "changes requested"), ("submit", "submitted")):
        begun = time.monotonic()
        lanes.review(lane.pk, verdict, by=making.conductor())
        shows(ann, column("open"), word)
        took.append(time.monotonic() - begun)
        shows(bob, ".track .here .axis-" + word.replace(" ", "_"), word)
        ann.page.wait_for_timeout(600)
    assert sorted(took)[1] < 1.0, took
    job = lane_jobs.enqueue(lane.pk, Request("echo", {}, Options()), by=making.conductor())
    shows(ann, column("open"), "1 queued")
    driver.claim_one()
    shows(ann, column("open"), "1 leased")
    shows(bob, "main", "leased")
    assert job.id[-12:] in bob.page.inner_text("main")


def test_news_of_what_is_not_shown_moves_no_page(browser):
    """E2: neither lanes of other workspaces nor jobs without a lane; a lane's page not even by other lanes' jobs."""
    lane = making.lane("first", assignee="user:bob")
    other = making.lane("second", of="two")
    foreign = making.lane("foreign", where="elsewhere")
    ann, bob = live(browser("ann"), "/lanes/"), live(browser("bob"), f"/lanes/{lane.pk}/")
    asked: dict[str, int] = {"ann": 0, "bob": 0}
    ann.page.wait_for_timeout(1_500)
    for name, console in (("ann", ann), ("bob", bob)):
        console.page.on("request", lambda sent, name=name: asked.update({name: asked[name] + 1})
                        if sent.resource_type == "fetch" else None)
    lanes.set_state(foreign.pk, "in_progress", by=making.conductor("elsewhere"))
    lane_jobs.enqueue(foreign.pk, Request("echo", {}, Options()), by=making.conductor("elsewhere"))
    intake.enqueue("echo", {})
    ann.page.wait_for_timeout(1_500)
    assert asked == {"ann": 0, "bob": 0}
    lane_jobs.enqueue(other.pk, Request("echo", {}, Options()), by=making.conductor())
    shows(ann, column("open"), "1 queued")
    assert asked["ann"] >= 1
    assert asked["bob"] == 0


def test_a_board_that_was_cut_off_is_right_again(browser):
    """Issue 7: offline it says so; back it shows what happened meanwhile."""
    lane = making.lane("first", assignee="user:bob")
    cia = live(browser("cia"), "/lanes/")
    cia.context.set_offline(True)
    cia.page.wait_for_selector("#live-state.off", timeout=PATIENCE_MS)
    lanes.set_state(lane.pk, "in_progress", by=making.conductor())
    cia.context.set_offline(False)
    shows(cia, column("in_progress"), "first")


def test_pages_of_lanes_fit_a_phone_need_no_script_and_keep_the_policy(browser, driver):
    """Issue 7: nothing wider than the screen; by keyboard and without JavaScript; no text runs."""
    paths = hostile()
    phone, plain = browser("bob", **PHONE), browser("ann", java_script_enabled=False)
    for path in [*paths[:9], "/lanes/new/"]:
        page = phone.open(path)
        assert phone.status == 200, path
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    lane = making.lane("first", assignee="user:bob")
    page = plain.open(f"/lanes/{lane.pk}/")
    page.click("text=Start")
    page.fill("[name=reason]", "by hand")
    page.keyboard.press("Enter")
    page.wait_for_selector(".axes")
    assert "The lane is started." in page.inner_text("main")
    assert Lane.objects.get(pk=lane.pk).execution == "in_progress"
    # Every field has a name for those who hear it.
    page = phone.open(f"/lanes/new/?quorum={lane.quorum_id}")
    assert page.evaluate("""[...document.querySelectorAll("main input:not([type=hidden]), main select, main textarea")]
        .filter(one => !one.labels.length).map(one => one.name)""") == []


# --- websockets ------------------------------------------------------------------------------------------------------


@pytest.fixture
def wires(served, people):
    with net(served) as made:
        yield made


def opened(wires: Net, path: str, user: object | None) -> int | str:
    """The code of a close, or the first frame's type."""
    told = {"Origin": f"http://127.0.0.1:{wires.port}"}
    if user is not None:
        told["Cookie"] = f"sessionid={session_cookie(user)}"
    client = wires.connect(path, **told)
    frame = wires.take(client)
    return wires.end(client) if frame["type"] == "error" else frame["type"]


def test_who_may_follow_lanes(wires, people):
    """E2: whoever is signed in and has a grant; a foreign lane ends as a missing one does; superusers are nobody."""
    lane, foreign = making.lane(), making.lane("foreign", where="elsewhere")
    root = person("root", superuser=True)
    missing = "01970000-0000-7000-8000-000000000001"
    assert opened(wires, "/live/lanes/", people["cia"]) == "init"
    assert opened(wires, f"/live/lanes/{lane.pk}/", people["cia"]) == "init"
    assert opened(wires, f"/live/lanes/{foreign.pk}/", people["cia"]) == 4404
    assert opened(wires, f"/live/lanes/{missing}/", people["cia"]) == 4404
    assert opened(wires, "/live/lanes/", root) == 4403
    assert opened(wires, f"/live/lanes/{lane.pk}/", root) == 4403
    assert opened(wires, "/live/lanes/", None) == 4401


def test_frames_say_nothing_of_lanes(wires, people):
    """DESIGN 1.8: that there is news, and no more; what nobody of ours would notify is passed over."""
    lane = making.lane()
    client = wires.connect("/live/lanes/", Origin=f"http://127.0.0.1:{wires.port}",
                           Cookie=f"sessionid={session_cookie(people['cia'])}")
    assert wires.take(client) == {"type": "init"}
    assert wires.take(client) == {"type": "resync"}
    with connection.cursor() as cursor:
        for payload in ("", "x", "1 2 3 4", "* * - -", f"1 {lane.quorum_id.hex}", "🙂 - - -"):
            cursor.execute("SELECT pg_notify(%s, %s)", [news.CHANNEL, payload])
    lanes.set_state(lane.pk, "in_progress", by=making.conductor())
    assert wires.take(client) == {"type": "resync"}


def test_a_grant_that_is_taken_or_given_ends_what_was_followed_by_it(people):
    """RELIABILITY 6.2: looked at again and again; with another set of workspaces the page comes back and asks anew."""
    cia = people["cia"]
    held, looking = guest(session_cookie(cia), None)
    assert looking.workspaces == {making.workspace().pk}
    assert access.ended([held]) == {}
    grants.give(making.workspace("elsewhere"), "member", by="test", user=cia)
    assert access.ended([held])[held].reason_code == "unavailable"
    for slug in ("default", "elsewhere"):
        grants.take(making.workspace(slug), user=cia)
    assert access.ended([held])[held].reason_code == "permission_denied"
    get_user_model().objects.filter(pk=cia.pk).update(is_active=False)
    assert access.ended([held])[held].reason_code == "unauthenticated"
    assert Quorum.objects.count() == 0
