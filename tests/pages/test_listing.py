"""The job list: every filter, pages that hold still under inserts, bounded reads, actions on a selection (E1, E12)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from jobs import sightings
from jobs.models import Job, Receipt
from jobs.services import intake
from jobs.services.draft import Options
from jobs.states import State
from tests import database
from tests.making import in_state
from tests.pages import scale
from tests.pages.people import person
from tests.pages.seeing import asked, link, listed


@pytest.fixture
def seen(client, driver):
    """A client of somebody who may look and nothing more."""
    client.force_login(person("viewer", "view_job", staff=False))
    return client


def test_the_newest_job_stands_first_and_the_house_s_own_are_hidden(seen, driver):
    """Operators see the whole site, in the order of the ids; system jobs only when asked for."""
    ids = [driver.enqueue("echo", tenant=name) for name in ("a", "b", None)]
    own = driver.enqueue("echo")
    database.rows("UPDATE jobs_job SET worker_group = 'system' WHERE id = %s RETURNING 1", own)
    assert listed(seen.get("/jobs/")) == ids[::-1]
    assert 'data-live="/live/site/"' in seen.get("/jobs/").content.decode()
    assert listed(seen.get("/jobs/?system=1")) == [own, *ids[::-1]]
    assert listed(seen.get("/jobs/?group=system")) == [own]


@pytest.mark.parametrize("state", list(State))
def test_a_list_by_state_has_this_state_alone(seen, driver, state):
    """E1: the console shows states, not statuses; what runs is found by the index of live attempts."""
    made = {each: in_state(driver, each, target=f"thing {each}").id for each in
            sorted(State, key=lambda s: s in (State.QUEUED, State.SUPERSEDED))}
    assert made[state] in listed(seen.get(f"/jobs/?state={state}"))
    assert {Job.objects.get(pk=pk).state for pk in listed(seen.get(f"/jobs/?state={state}"))} == {state}
    both = listed(seen.get(f"/jobs/?state={state}&state=paused"))
    assert {made[state], made[State.PAUSED]} <= set(both)


FILTERS = ["type=echo", "type=echo@1", "queue=chat", "group=runners", "workspace=default&tenant=acme", "tenant=acme",
           "reason=not%20need", "q={external}", "q={key}", "q={session}", "q={id}", "q={end}", "q={end}&tenant=acme",
           "tenant=acme&q={external}", "tenant=acme&q={key}", "tenant=acme&q={session}", "tenant=acme&q=echo:thing",
           "tenant=acme&type=echo&q=thing"]


@pytest.mark.parametrize("query", FILTERS)
def test_each_filter_finds_its_job_and_no_other(seen, driver, query):
    """Every filter of the list, and every name that the search knows."""
    other = driver.enqueue("staged", tenant="globex")
    wanted = driver.enqueue("echo", tenant="acme", queue="chat", job_id="order-1", idempotency_key="key-1",
                            session_key="session-1", target="thing")
    outside = driver.enqueue("outside", tenant="other")
    if "reason" in query:
        driver.pause(wanted, reason="it is Not needed now")
    asked_for = query.format(external="order-1", key="key-1", session="session-1", id=wanted, end=wanted[-12:])
    expected = [outside] if "runners" in query else [wanted]
    if query == "queue=chat":
        assert other not in listed(seen.get(f"/jobs/?{asked_for}"))
    assert listed(seen.get(f"/jobs/?{asked_for}")) == expected
    assert listed(seen.get(f"/jobs/?{asked_for}&state=superseded")) == []


def test_moments_narrow_the_list_by_the_time_that_ids_hold(seen, driver):
    """A UUIDv7 begins with its moment: created from and before are ranges of ids."""
    first = driver.enqueue("echo")
    moment = Job.objects.get(pk=first).created_at
    ahead, behind = (f"{moment + timedelta(minutes=m):%Y-%m-%dT%H:%M}" for m in (2, -2))
    assert listed(seen.get(f"/jobs/?since={behind}&until={ahead}")) == [first]
    assert listed(seen.get(f"/jobs/?since={ahead}")) == []
    assert listed(seen.get(f"/jobs/?until={behind}")) == []


@pytest.mark.parametrize("query", ["state=odd", "since=yesterday", "type=echo@two", "before=1", "after=x", "q=%00",
                                   "tenant=" + "x" * 300, "type=a%20b", "until=9999999-01-01", "type=echo@9999999999"])
def test_what_makes_no_sense_is_refused_with_words_and_never_ignored(seen, driver, query):
    """Bad input gets a clear error, never a 500, and never a list that is wider than what was asked for."""
    driver.enqueue("echo")
    answer = seen.get(f"/jobs/?{query}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.content.decode()
    assert "/jobs/0" not in answer.content.decode()


@pytest.mark.parametrize("query", ["type=echo@999999999", "tenant=nobody", "workspace=nowhere", "q=%25_%5C", "q=---f",
                                   "tenant=acme&q=%25", "until=0001-01-01", "until=9998-01-01&since=9997-01-01"])
def test_what_nothing_fits_is_an_empty_page_that_says_what_to_do(seen, driver, query):
    """Empty states say what to do; a wildcard is a letter like any other."""
    driver.enqueue("echo", tenant="acme")
    answer = seen.get(f"/jobs/?{query}")
    assert listed(answer) == []
    assert "No job here fits these filters" in answer.content.decode()


def test_pages_hold_still_while_jobs_come_in(seen, driver):
    """Keyset paging: no job is shown twice or left out, whatever is enqueued between two pages; and back again."""
    ids = [answer.id for answer in intake.enqueue_many([intake.Request("echo", {}) for _ in range(120)])][::-1]
    first = seen.get("/jobs/")
    assert listed(first) == ids[:50]
    for _ in range(7):
        driver.enqueue("echo")
    second = seen.get(f"/jobs/{link(first, 'Older')}")
    third = seen.get(f"/jobs/{link(second, 'Older')}")
    assert listed(second) + listed(third) == ids[50:]
    assert link(third, "Older") is None
    back = seen.get(f"/jobs/{link(third, 'Newer')}")
    assert listed(back) == ids[50:100]
    assert listed(seen.get(f"/jobs/{link(back, 'Newer')}"))[-1] == ids[49]
    assert len(listed(seen.get(f"/jobs/{link(third, 'Newest')}"))) == 50


def test_filters_are_kept_from_page_to_page_and_taken_away_by_their_chips(seen, driver):
    """Chips of the active filters, each a link to the list without it."""
    intake.enqueue_many([intake.Request("echo", {}, Options(tenant="acme")) for _ in range(60)])
    driver.enqueue("staged", tenant="acme")
    first = seen.get("/jobs/?type=echo&tenant=acme&state=queued&state=failed")
    second = seen.get(f"/jobs/{link(first, 'Older')}")
    assert len(listed(second)) == 10
    assert "?tenant=acme&amp;state=queued&amp;state=failed" in second.content.decode()
    assert "?type=echo&amp;tenant=acme&amp;state=failed" in second.content.decode()


@pytest.mark.parametrize("name", ["q", "state", "reason", "odd"])
def test_an_address_with_a_thousand_values_costs_no_more_than_another(seen, driver, name):
    """What counts is the last of them; a page that repeats all of them for each of them would be 10 MB."""
    driver.enqueue("echo", job_id="x")
    page = seen.get("/jobs/?" + "&".join(f"{name}=x{n}" for n in range(900)) + f"&{name}=x")
    assert len(page.content) < 200_000
    assert page.status_code == (400 if name == "state" else 200)
    assert name == "state" or len(listed(page)) == (0 if name == "reason" else 1)


def test_a_look_ends_after_so_many_jobs_and_goes_on_from_there(seen, driver, monkeypatch):
    """A rare job behind very many others: never an error, never a page that does not come."""
    monkeypatch.setattr(sightings, "NEAR", 10)
    monkeypatch.setattr(sightings, "FAR", 40)
    rare = driver.enqueue("staged")
    intake.enqueue_many([intake.Request("echo", {}) for _ in range(95)])
    answer = seen.get("/jobs/?type=staged")
    looks = 1
    while not listed(answer):
        assert "looked through 40 jobs" in answer.content.decode()
        assert "data-live" not in answer.content.decode()
        answer = seen.get(f"/jobs/{link(answer, 'Look further')}")
        looks += 1
    assert (listed(answer), looks) == ([rare], 3)
    up = seen.get(f"/jobs/?type=nothing&after={rare}")
    assert link(up, "Look further")
    assert "before=" not in str(link(up, "Look further"))


def test_a_database_that_takes_too_long_costs_a_page_of_few_and_then_a_notice(seen, driver, monkeypatch):
    """A statement time-out is no error page: what was found near is shown, or what to do is said."""
    monkeypatch.setattr(sightings, "NEAR", 2)
    for _ in range(5):
        driver.enqueue("echo")
    page = sightings._page

    def slow(narrowed, place, window):
        if window >= limit:
            database.rows("SELECT pg_sleep(5)")
        return page(narrowed, place, window)

    monkeypatch.setattr(sightings, "_page", slow)
    limit = 3
    assert "only the newest 2 jobs were looked through" in seen.get("/jobs/?type=staged").content.decode()
    limit = 0
    answer = seen.get("/jobs/?type=staged")
    assert answer.status_code == 200
    assert "This takes too long just now" in answer.content.decode()


def test_the_number_of_statements_does_not_grow_with_the_jobs(seen, driver):
    """Query counts are bounded and constant."""
    in_state(driver, State.RUNNING)
    driver.enqueue("echo", tenant="a")
    _, few = asked(seen, "/jobs/")
    for n in range(45):
        driver.enqueue("echo", tenant=f"tenant {n}")
    for job in driver.claim(5):
        driver.start(job)
    answer, many = asked(seen, "/jobs/")
    assert len(listed(answer)) > 40
    assert len(many) == len(few) <= 14
    assert not [sql for sql in many if "COUNT(" in sql]


# --- actions on a selection ----------------------------------------------------------------------------------------

MAY = {"cancel": "cancel_job", "pause": "pause_job", "resume": "pause_job"}


@pytest.fixture
def acting(client, driver):
    """A client of somebody who may cancel, pause and resume."""
    client.force_login(person("boss", "view_job", "cancel_job", "pause_job", staff=False))
    return client


def act(client, verb, ids, reason="no longer wanted", **more):
    return client.post("/jobs/act/", {"verb": verb, "id": ids, "reason": reason, **more}, follow=True)


def test_a_selection_is_looked_at_before_it_is_cancelled_with_a_reason_and_a_name(acting, driver):
    """The confirmation counts and shows; the receipts keep who and why; the answer says what was skipped and why."""
    done = in_state(driver, State.COMPLETED, target="x").id
    ids = [driver.enqueue("echo") for _ in range(3)]
    path = "/jobs/act/?verb=cancel&list=state%3Dqueued" + "".join(f"&id={pk}" for pk in [*ids[1:], done])
    page = acting.get(path).content.decode()
    assert "Cancel 2 jobs?" in page
    assert "Left alone: 1 completed." in page
    assert [driver.state(pk) for pk in ids[1:]].count("cancelled") == 0
    answer = act(acting, "cancel", [*ids[1:], done], list="state=queued")
    assert answer.redirect_chain == [("/jobs/?state=queued", 302)]
    said = answer.content.decode()
    assert "2 cancelled." in said
    assert [driver.state(pk) for pk in [*ids, done]] == ["queued", "cancelled", "cancelled", "completed"]
    assert "1 skipped. 1 \N{MULTIPLICATION SIGN} The job is completed." in said
    body = Receipt.objects.filter(job_id=ids[1], kind="job.cancelled").get().body
    assert '"by":"user:boss"' in body
    assert '"reason":"no longer wanted"' in body


def test_pause_and_resume_are_verbs_on_many(acting, driver):
    """B19, B28, E1: paused ones wait for somebody; a resume refuses what this site cannot run any more."""
    ids = [driver.enqueue("echo") for _ in range(3)]
    assert "3 paused." in act(acting, "pause", ids).content.decode()
    again = act(acting, "pause", ids).content.decode()
    assert "3 skipped. 3 \N{MULTIPLICATION SIGN} The job is paused; pause is not possible." in again
    database.rows("UPDATE jobs_job SET version = 9 WHERE id = %s RETURNING 1", ids[0])
    said = act(acting, "resume", ids).content.decode()
    assert "2 resumed." in said
    assert "1 skipped. 1 \N{MULTIPLICATION SIGN} echo@9 is not registered any more." in said
    assert [driver.state(pk) for pk in ids] == ["paused", "queued", "queued"]


@pytest.mark.parametrize(("verb", "state"), [("pause", State.QUEUED), ("resume", State.PAUSED)])
def test_what_has_moved_on_since_it_was_shown_is_left_alone(acting, driver, verb, state):
    """B28: a person means the job as the confirmation shows it; a cancel means it however it stands."""
    moved, other = in_state(driver, state, target="a").id, in_state(driver, state, target="b").id
    page = acting.get(f"/jobs/act/?verb={verb}&id={moved}&id={other}").content.decode()
    shown = re.findall(r'name="revision" value="([^"]+)"', page)
    assert {said.partition(":")[0] for said in shown} == {moved, other}
    for one in ("resume", "pause") if verb == "resume" else ("pause", "resume"):
        getattr(driver, one)(moved)
    said = act(acting, verb, [moved, other], revision=shown).content.decode()
    assert f"1 {verb}d." in said
    assert "1 skipped. 1 \N{MULTIPLICATION SIGN} The job has moved on since it was read." in said
    assert driver.state(moved) == state
    assert driver.state(other) != state
    assert "2 cancelled." in act(acting, "cancel", [moved, other], revision=shown).content.decode()


def test_the_same_press_twice_changes_nothing_more(acting, driver):
    """A form that is sent again: cancelled already, one receipt."""
    pk = driver.enqueue("echo")
    act(acting, "cancel", [pk], list="")
    assert "1 cancelled already." in act(acting, "cancel", [pk], list="").content.decode()
    assert Receipt.objects.filter(job_id=pk).count() == 2


@pytest.mark.parametrize("verb", list(MAY))
def test_a_verb_without_its_permission_is_refused_and_not_offered(client, driver, verb):
    """RELIABILITY, admin power: a viewer who posts an action is refused."""
    pk = driver.enqueue("echo") if verb != "resume" else in_state(driver, State.PAUSED).id
    client.force_login(person("viewer", "view_job", *set(MAY.values()) - {MAY[verb]}))
    assert f'value="{verb}"' not in client.get("/jobs/?select=1").content.decode()
    before = database.row_hash(pk)
    for answer in (client.get(f"/jobs/act/?verb={verb}&id={pk}"), act(client, verb, [pk])):
        assert answer.status_code == 403
    assert database.row_hash(pk) == before
    client.logout()
    assert client.post("/jobs/act/", {"verb": verb, "id": pk, "reason": "x"}).status_code == 302
    assert database.row_hash(pk) == before


def test_nobody_presses_a_button_from_another_site(driver):
    """CSRF: a POST without the token is refused; a GET never acts."""
    from django.test import Client

    pk = driver.enqueue("echo")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(person("boss", "view_job", "cancel_job"))
    assert strict.post("/jobs/act/", {"verb": "cancel", "id": pk, "reason": "x"}).status_code == 403
    assert strict.get(f"/jobs/act/?verb=cancel&id={pk}&reason=x").status_code == 200
    assert driver.state(pk) == "queued"


@pytest.mark.parametrize("said", [
    {"verb": "delete"}, {"id": "nonsense"}, {"id": ["01a2299c-5279-708e-a087-1a658f75c71d"] + [
        f"01a2299c-5279-708e-a087-{n:012x}" for n in range(100)]}, {"verb": "requeue", "id": [
            f"01a2299c-5279-708e-a087-{n:012x}" for n in range(2)]}])
def test_what_no_button_asks_is_a_bad_request(client, operator, said):
    """Bad input gets a clear error, never a 500."""
    client.force_login(operator)
    asked_for = {"verb": "cancel", "id": "01a2299c-5279-708e-a087-1a658f75c71d", **said}
    assert client.get("/jobs/act/", asked_for).status_code == 400
    assert client.post("/jobs/act/", {**asked_for, "reason": "x"}).status_code == 400


@pytest.mark.parametrize("reason", ["", "   ", "x" * 513, "two\nlines"])
def test_a_reason_is_asked_for_again_where_it_cannot_be_kept(acting, driver, reason):
    """E1: a reason is 1 to 512 printable characters."""
    pk = driver.enqueue("echo")
    answer = act(acting, "cancel", [pk], reason=reason)
    assert answer.status_code == 400
    assert "must be 1 to 512 printable characters" in answer.content.decode()
    assert driver.state(pk) == "queued"


def test_the_way_back_leads_to_the_list_alone(acting, driver):
    """No open redirect: what is sent along is a query of the list and nothing else."""
    pk = driver.enqueue("echo")
    for place in ("//evil.invalid/", "https://evil.invalid", "\r\nLocation: x"):
        answer = acting.post("/jobs/act/", {"verb": "cancel", "id": pk, "reason": "x", "list": place})
        assert answer.status_code == 302
        assert answer["Location"].startswith("/jobs/?")


def test_jobs_are_chosen_and_cancelled_without_a_script(served, chromium, operator, driver):
    """The whole way in a browser that runs no script: choose, look, say why, done."""
    from tests.pages.site import Console

    ids = [driver.enqueue("echo", tenant="acme") for _ in range(3)]
    opened = Console(chromium, served, java_script_enabled=False)
    opened.sign_in(operator)
    page = opened.open("/jobs/?tenant=acme")
    page.click("text=Choose")
    for pk in ids[:2]:
        page.check(f"input[value='{pk}']")
    page.click("button[value=cancel]")
    assert "Cancel 2 jobs?" in page.inner_text("main")
    page.fill("#reason", "nobody needs these")
    page.click("button.danger")
    assert page.url == f"{opened.url}/jobs/?tenant=acme"
    assert "2 cancelled." in page.inner_text(".messages")
    assert page.inner_text("tbody").count("nobody needs these") == 2
    page.fill("#q", ids[2][-8:])
    page.click(".search button")
    assert page.locator("tbody tr").count() == 1
    assert page.inner_text("tbody .id") == ids[2][-12:]
    opened.close()
    assert [driver.state(pk) for pk in ids] == ["cancelled", "cancelled", "queued"]


# --- very many -----------------------------------------------------------------------------------------------------

BOUND_MS = 300


def test_no_page_reads_the_table_of_very_many_jobs(client, operator, database, monkeypatch):
    """Issue 4: keyset and windows; each statement under 300 ms and none a sequential scan of the jobs.

    More jobs than a look goes through. The best of two looks: the machine is shared, the plan is not.
    """
    monkeypatch.setattr(sightings, "FAR", 10_000)
    scale.seed(60_000, 1_000)
    client.force_login(operator)
    for path in (path for path in scale.paths() if path.startswith("/jobs/")):
        slowest = []
        for _ in range(2):
            with scale.timed() as seen:
                assert client.get(path).status_code == 200, path
            slowest.append(max(seen, key=lambda each: each[0]))
        assert min(ms for ms, _, _ in slowest) < BOUND_MS, (path, slowest)
        assert [sql for _, sql, params in seen if scale.reads_all_jobs(sql, params)] == [], path
