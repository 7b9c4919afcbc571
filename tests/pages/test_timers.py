"""Timers on pages: which there are, what each will do and did, and its buttons (D13)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import clock
from jobs.models import Firing, Job, Timer
from jobs.services import overview, tenancy, timers, timetable
from jobs.services.timers import Draft
from tests import database as db
from tests.pages.corpus import XSS
from tests.pages.people import person


@pytest.fixture(autouse=True)
def quick(driver, settings):
    """Passwords that cost nothing."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def put(name: str = "nightly", tenant: str | None = "acme", **more: Any) -> Timer:
    draft = Draft("echo", {"value": "x"}, **({"cron": "0 3 * * *", "zone": "Europe/Berlin"} | more))
    return timers.put(tenancy.tenant(tenancy.workspace(), tenant, make=True), name, draft, by="user:ann")


def fired(row: Timer, ago: int = 0, **said: Any) -> Firing:
    return Firing.objects.create(timer=row, tenant_id=row.tenant_id, moment=clock.now() - timedelta(minutes=ago),
                                 **({"outcome": "enqueued"} | said))


def client(*permissions: str) -> Client:
    found = Client()
    found.force_login(person("-".join(("view_job", *permissions)), "view_job", *permissions, staff=False))
    return found


def read(path: str, *permissions: str) -> str:
    answer = client(*permissions).get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_without_timers_the_page_says_how_to_make_one() -> None:
    page = read("/timers/")
    assert "There are no timers yet" in page
    assert "manage.py timers put" in page


def test_the_list_shows_the_schedule_in_words_what_is_next_and_what_was_refused(driver) -> None:
    """D13: a notice counts those that made no job at their last moment; a filter finds them."""
    put()
    paused = put("paused", None)
    timers.pause(paused, by="user:bob", reason="too many mails")
    bad = put("bad", every_s=900, cron=None, zone="UTC")
    fired(bad, 15)
    fired(bad, 1, outcome="refused", code="queue_saturated", detail="full")
    driver.enqueue()
    overview.look.forget()
    assert "<strong>1 timer</strong> made no job at its last moment." in read("/")
    page = read("/timers/")
    assert "At 03:00 every day, Europe/Berlin" in page
    assert "Every 15 minutes" in page
    assert "too many mails" in page
    assert "1 of these timers made no job at its last moment." in page
    assert "queue_saturated" in page
    names = {"?state=refused+last": ["bad"], "?state=paused": ["paused"], "?state=active": ["bad", "nightly"],
             "?tenant=acme": ["bad", "nightly"], "?search=night": ["nightly"],
             "?search=echo": ["bad", "paused", "nightly"], "?search=nothing": [],
             "?state=rubbish": ["bad", "paused", "nightly"]}
    for query, wanted in names.items():
        page = read(f"/timers/{query}")
        assert [name for name in ("bad", "paused", "nightly") if f">{name}</a>" in page] == wanted, query
    assert "New timer" not in page
    assert "No timer matches" in read("/timers/?search=nothing")


def test_the_list_pages_by_id_and_its_statements_do_not_grow(monkeypatch) -> None:
    """Nothing O(timers): the newest first, and what each did last comes with one statement."""
    for n in range(4):
        fired(put(f"t{n}"))
    viewer = client()

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get("/timers/").status_code == 200
        return len(queries)

    many = count()
    assert "Older" not in viewer.get("/timers/").content.decode()
    found = timetable.listed(timetable.Filter(), limit=3)
    assert [line.timer.name for line in found.lines] == ["t3", "t2", "t1"]
    assert ">t0</a>" in viewer.get(f"/timers/?before={found.more}").content.decode()
    assert viewer.get("/timers/?before=rubbish").status_code == 200
    for n in range(3):
        timers.remove(Timer.objects.get(name=f"t{n}"), by="x")
    assert count() == many


def test_a_timers_page_shows_its_next_moments_its_history_and_what_is_wrong() -> None:
    """D13: in its zone and in UTC; jobs as links where they are kept."""
    row = put(catch_up="last", options={"priority": 5})
    made = timers.run_now(row, by="user:ann", reason="they asked for it")
    fired(row, 60, job_id=uuid.uuid4())
    fired(row, 120, outcome="missed", missed=3)
    page = read(f"/timers/{row.pk}/")
    assert page.count(" 03:00:00 +0") == 5
    assert page.count('data-moment="') == 5
    assert f"/jobs/{made.job_id}/" in page
    assert "they asked for it" in page
    assert "not kept any more" in page
    assert "3 moments, from this one on" in page
    assert "the last of the missed moments is made up for" in page
    assert "were refused" not in page
    for n in range(3):
        fired(row, -n - 1, outcome="refused", code="tenant_archived", detail="This tenant is archived.")
    page = read(f"/timers/{row.pk}/")
    assert "Its last 3 moments were refused." in page
    assert "This tenant is archived." in page
    assert "<button" not in page.partition("<main")[2]
    for before in ("1", "x", "9" * 18, "0"):
        assert client().get(f"/timers/{row.pk}/?before={before}").status_code == 200
    assert client().get(f"/timers/{uuid.uuid4()}/").status_code == 404


def test_history_pages_by_moment() -> None:
    """Keyset: the latest first."""
    row = put()
    for n in range(5):
        fired(row, n)
    first = timetable.history(row, limit=3)
    second = timetable.history(row, first.more, limit=3)
    moments = [one.firing.moment for page in (first, second) for one in page.lines]
    assert (len(moments), moments, second.more) == (5, sorted(moments, reverse=True), None)


def test_inputs_are_for_who_may_see_them_and_secrets_for_nobody() -> None:
    """6.2: as everywhere else."""
    row = put()
    Timer.objects.filter(pk=row.pk).update(input='{"token":"s3cret","value":"wordy"}')
    assert "wordy" not in read(f"/timers/{row.pk}/")
    seen = read(f"/timers/{row.pk}/", "view_payload")
    assert "wordy" in seen
    assert "s3cret" not in seen


def test_whoever_manages_timers_pauses_resumes_and_runs_one_with_a_reason() -> None:
    """D13, E12: nobody else does, and a form that is sent twice makes one job."""
    row = put()
    base = f"/timers/{row.pk}"
    for verb in ("pause", "resume", "run"):
        assert client().post(f"{base}/{verb}/", {"reason": "x"}).status_code == 403
        assert client("manage_timers").get(f"{base}/{verb}/").status_code == 405
    someone = client("manage_timers")

    def press(verb: str, **said: str) -> str:
        return " ".join(someone.post(f"{base}/{verb}/", said, follow=True).content.decode().split())

    assert "reason: must be 1 to 512 printable characters" in press("pause", reason="")
    assert "Paused by user:view_job-manage_timers" in press("pause", reason="too loud", for_s="3600")
    row.refresh_from_db()
    assert row.paused_until is not None
    assert "Resumed." in press("resume", reason="it is back")
    assert "This timer is not paused." in press("resume", reason="x")
    key = str(uuid.uuid4())
    assert "It has made its job." in press("run", reason="they asked", key=key)
    press("run", reason="they asked", key=key)
    assert Job.objects.count() == 1
    assert Firing.objects.get().detail == "they asked"
    tenancy.demand_grant(tenancy.workspace(), True, by="test")
    assert "only conductors enqueue" in press("run", reason="x")


def test_buttons_need_the_token_of_the_page() -> None:
    """6.2: a stranger's page cannot press them."""
    row = put()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person("strict", "view_job", "manage_timers"))
    assert strict.post(f"/timers/{row.pk}/run/", {"reason": "x"}).status_code == 403
    assert not Firing.objects.exists()


def test_words_that_would_be_markup_are_text() -> None:
    """6.2 XSS: reasons, refusals, actors, zones and types that a hand has spoilt."""
    row = put()
    someone = client("view_payload", "manage_timers")
    for word in XSS[::3]:
        Timer.objects.filter(pk=row.pk).update(
            type=word[:64], by=word, paused_at=clock.now(), paused_by=word, paused_reason=word)
        Firing.objects.all().delete()
        fired(row, outcome="refused", code=word[:64], detail=word, manual=True, by=word)
        for path in ("/timers/", f"/timers/{row.pk}/"):
            page = someone.get(path).content.decode()
            assert "<script>alert" not in page
            assert "<img src=x" not in page
            assert "onerror=alert(1)>" not in page


def test_a_zone_that_this_machine_does_not_know_is_a_word_and_no_error() -> None:
    """Rows outlive the machine's time zones."""
    row = put()
    Timer.objects.filter(pk=row.pk).update(zone="Mars/Olympus")
    assert "which this machine does not know" in read("/timers/")
    assert "which this machine does not know" in read(f"/timers/{row.pk}/")


def test_a_database_that_takes_too_long_is_a_notice(monkeypatch) -> None:
    """G02: never an error."""
    put()
    monkeypatch.setattr(timetable, "patiently", lambda work: _slow())
    assert "takes too long" in read("/timers/")


def _slow() -> Any:
    from jobs.selectors import TooSlow

    raise TooSlow()


def test_a_timer_in_a_browser(console) -> None:
    """D13: the moments in the viewer's own zone, a pause pressed and resumed; no script is needed for that."""
    row = put()
    page = console.open(f"/timers/{row.pk}/")
    page.wait_for_selector("td.here:not([hidden])")
    assert page.locator("th.here").inner_text().startswith("Here (")
    page.fill("#pause-reason", "too loud: " + "w" * 490)
    page.click("button:has-text('Pause')")
    page.wait_for_selector("text=Paused by user:operator")
    # A word without blanks makes no page wider than its screen, and on a phone each place is within reach.
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    places = page.locator("nav[aria-label=Places] a")
    assert max(box["x"] + box["width"] for box in (place.bounding_box() for place in places.all())) <= 390
    page.fill("#resume-reason", "it is back")
    page.click("button:has-text('Resume')")
    page.wait_for_selector("#pause-reason")
    assert db.rows("SELECT count(*) FROM jobs_timer WHERE paused_at IS NULL")[0][0] == 1
