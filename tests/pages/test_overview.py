"""The overview (issue 4): what waits, runs, settles and stands still; cheap, whatever lies in the tables."""

from __future__ import annotations

import time

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import meters
from jobs.clock import Now
from jobs.models import ClaimLine, Key, Worker
from jobs.services import intake, overview, throttles, traffic, workers
from jobs.store import backlog
from jobs.store import traffic as rollup
from tests import database
from tests.bench import noise
from tests.making import default_workspace, limit
from tests.pages.people import person

UNSAFE = '<script>alert(1)</script>"\'><img src=x onerror=alert(2)>'


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is remembered from an earlier test."""
    traffic.flusher.end()
    overview.look.forget()
    yield
    overview.look.forget()


@pytest.fixture
def seen(client, database):
    """The page, as somebody who may look sees it."""
    client.force_login(person("viewer", "view_job", staff=False))

    def look() -> str:
        overview.look.forget()
        traffic.flusher.flush()
        answer = client.get("/")
        assert answer.status_code == 200
        return answer.content.decode()

    return look


def line(group: str = "default", queue: str = "collect") -> overview.Line:
    overview.look.forget()
    traffic.flusher.flush()
    [found] = [x for x in overview.look().lines if (x.worker_group, x.queue) == (group, queue)]
    return found


def minute(**counts: int) -> None:
    """Something happened in this minute, of the clock that tests move."""
    vector = [0] * meters.WIDTH
    for name, number in counts.items():
        vector[meters.COUNTS.index(name)] = number
    rollup.add({("default", "collect"): vector})


def test_a_site_without_jobs_says_what_to_do(seen):
    traffic.flusher.flush()
    database.empty()
    client_sees = seen()
    assert "manage.py runworker" in client_sees
    assert "manage.py enqueue noop" in client_sees


def test_what_waits_runs_and_is_put_off_is_counted_by_queue(driver):
    for _ in range(3):
        driver.enqueue()
    driver.enqueue(delay_s=3600)
    driver.claim_one()
    found = line()
    assert (found.waiting, found.running) == (overview.Capped(2), 1)
    assert found.scheduled == overview.Capped(1)
    assert found.held == overview.Capped(0)


def test_a_count_stops_at_its_cap(driver, seen):
    driver.enqueue()
    noise.jobs(1_200, "(SELECT min(id) FROM jobs_tenant)")
    assert line().waiting == overview.Capped(1_000, more=True)
    assert "1,000+" in seen()


def test_the_oldest_claimable_job_is_found_behind_younger_ones_of_every_priority(driver):
    """Exact over the claimable: not the head of the queue, nor what is parked, gated or held."""
    old = driver.enqueue(priority=-100, tenant="small")
    driver.pass_time(50)
    parked = driver.enqueue(tenant="parked")
    driver.pass_time(50)
    for priority in (-50, 0, 100):
        driver.enqueue(priority=priority, tenant="small")
    driver.enqueue(priority=3, tenant="other")
    ClaimLine.objects.filter(tenant_id=driver.job(parked).tenant_id).update(parked="cap")
    assert line().oldest == driver.job(old).available_at
    assert not line().at_least
    driver.cancel(old)
    assert line().oldest > driver.job(parked).available_at


def test_with_very_many_tenants_the_age_says_at_least(driver, seen):
    driver.enqueue()
    noise.tenants(1_100, 1_000)
    noise.jobs(1_100, "999 + i")
    noise.lines()
    assert line().at_least
    assert "at least" in seen()


def test_claims_without_an_end_are_flagged_as_a_stall(driver, seen):
    driver.enqueue()
    workers.register("w", 2, ["default"], ["collect"], ["echo@1"])
    minute(claimed=4)
    assert line().stalled == 0, "they have just begun"
    driver.pass_time(300)
    assert line().stalled == 4
    Worker.objects.update(seen_at=Now())
    assert "Nothing settles" in seen()
    minute(erred=1)
    assert line().stalled == 0
    assert "Nothing settles" not in seen()


def test_a_lapse_ends_no_stall(driver):
    driver.enqueue()
    minute(claimed=4)
    driver.pass_time(300)
    minute(lapsed=4)
    assert line().stalled == 4


def test_work_that_nobody_alive_serves_is_told(driver, seen):
    driver.enqueue()
    assert line().unserved == "worker"
    assert "No live worker" in seen()
    row = workers.register("w", 2, ["default"], ["collect"], ["echo@1"])
    assert line().unserved is None
    assert "No live worker" not in seen()
    Worker.objects.filter(pk=row.pk).update(seen_at=Now() - workers.LIVE_FOR)
    assert line().unserved == "worker"


def test_a_group_without_a_handler_here_waits_for_a_runner(driver, seen):
    driver.enqueue()
    noise.jobs(1, "(SELECT min(id) FROM jobs_tenant)", group="'codex'")
    noise.lines()
    assert line("codex").unserved == "runner"
    assert "No live runner" in seen()
    Key.objects.create(prefix="abcd1234", digest=b"x", name="codex", workspace=default_workspace(),
                       permissions=["claim"], worker_groups=["codex"], last_used_at=Now())
    assert line("codex").unserved is None


def test_the_sparkline_says_in_words_what_it_draws(driver, seen):
    driver.enqueue()
    minute(completed=7, erred=2)
    driver.pass_time(60)
    minute(completed=1)
    page = seen()
    said = "10 settled in the last hour, 2 of them failed attempts; 9 in the last full minute, most 9."
    assert f'aria-label="{said}"' in page
    assert line().settled[-2:] == [9, 1]
    assert line().erred[-2] == 2


def test_the_change_of_dead_letters_in_a_day_and_the_failing_share(driver, seen):
    for _ in range(3):
        driver.enqueue()
        driver.fail(driver.claim_one(), retryable=False)
    driver.enqueue()
    driver.complete(driver.claim_one())
    page = " ".join(seen().split())
    assert "+3 in a day" in page
    assert "75&thinsp;%" in page
    shown = overview.look()
    assert (shown.letters, shown.settled_hour, shown.erred_hour) == (overview.Capped(3), 4, 3)


def test_what_is_paused_is_told_by_reason_and_by_whom(driver, seen):
    for _ in range(2):
        driver.pause(driver.enqueue(), reason="until the audit is over")
    driver.pause(driver.enqueue(), reason=UNSAFE)
    page = seen()
    assert "until the audit is over" in page
    assert "by user:test" in page
    assert "<script>alert" not in page
    assert {(p.reason, p.number, p.by) for p in backlog.paused()} == {
        ("until the audit is over", 2, "user:test"), (UNSAFE, 1, "user:test")}


def test_tenants_at_their_cap_are_told(driver, seen):
    limit(tenant_concurrency=1)
    driver.enqueue()
    driver.enqueue()
    driver.claim_one()
    driver.claim(1)
    assert backlog.parked() == {"cap": 1}
    assert "run as many jobs as they may" in seen()


def test_the_number_of_statements_does_not_grow_with_what_there_is(driver, client):
    client.force_login(person("viewer", "view_job", staff=False))

    def count() -> int:
        overview.look.forget()
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/").status_code == 200
        return len(queries)

    driver.enqueue()
    few = count()
    for queue in ("chat", "steer", "follow_up"):
        for n in range(3):
            driver.enqueue(queue=queue, tenant=f"t{n}")
    for n in range(5):
        workers.register(f"w{n}", 1, ["default"], ["chat"], [])
        driver.pause(driver.enqueue(), reason=f"reason {n}")
    assert count() == few
    with CaptureQueriesContext(connection) as queries:
        client.get("/")
    assert len(queries) < few, "the figures are a second old at most, and not looked for again"


def test_a_database_that_takes_too_long_is_a_notice_and_no_error(seen, monkeypatch, driver):
    driver.enqueue()
    monkeypatch.setattr(overview, "PATIENCE_MS", 50)
    monkeypatch.setattr(backlog, "_LETTERS", "SELECT 1 FROM pg_sleep(5)")
    assert "takes too long" in seen()


def test_the_page_is_cheap_beside_a_large_backlog(driver, client):
    """Under 300 ms (the house's rule) with 60,000 waiting jobs in 5,000 tenants and 20,000 ended ones; no scan."""
    client.force_login(person("viewer", "view_job", staff=False))
    driver.enqueue()
    noise.tenants(5_000, 1_000)
    noise.jobs(60_000, "1000 + i % 5000", at="jobs_now() - i * interval '1 second'")
    noise.jobs(20_000, "1000 + i % 5000", state="'completed'", ended="jobs_now()")
    noise.lines()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) jobs_job")
        cursor.execute("ANALYZE jobs_claim_line")
    took = []
    for _ in range(5):
        overview.look.forget()
        began = time.perf_counter()
        assert client.get("/").status_code == 200
        took.append(time.perf_counter() - began)
    assert min(took) < 0.3, took
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + backlog._WAITING.replace("%s", "'default'", 1).replace("%s", "'collect'", 1))
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan on jobs_job" not in plan
    assert "job_claim" in plan


def _sheet(route) -> None:
    """Static files as they lie in the source, whoever serves them."""
    route.fulfill(path=finders.find(route.request.url.partition("/static/")[2]))


def test_the_overview_in_a_browser(console, driver):
    """Rendered under the site's own rules for scripts and styles, in both themes and on a phone."""
    workers.register("alpha", 4, ["default"], ["collect", "chat"], ["echo@1"])
    for n in range(60):
        minute(completed=n % 7, erred=n % 7 // 4, claimed=n % 7, enqueued=1)
        database.pass_time(60)
    Worker.objects.update(seen_at=Now())
    driver.enqueue()
    intake.enqueue("echo", {}, queue="chat")
    console.context.route("**/static/**", _sheet)
    page = console.open("/")
    assert page.locator("svg.sparkline").count() >= 1
    assert page.locator("table.queues tbody tr").count() == 2
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("table.queues tbody tr a >> nth=0")
    assert "state=queued" in page.url


def test_it_says_what_is_paused_by_whom_why_and_until_when(seen, driver):
    """C9: queues, worker groups, types and tenants, the latest three; with a way to resume for who has the admin."""
    intake.enqueue("echo", {})
    throttles.pause("queue", "chat", by=UNSAFE, reason=UNSAFE, for_s=3600)
    throttles.pause("type", "echo", by="ann", reason="a bug", workspace=default_workspace())
    page = seen()
    assert page.count("<strong>Paused</strong>") == 2
    assert "of workspace default" in page
    assert "on the whole site" in page
    assert "in 1 h" in page or "in 60 min" in page or "in 59 min" in page
    assert "until somebody resumes it" in page
    assert UNSAFE not in page
    assert "Resume or change" not in page
    driver.claim(1)
    assert line().held.number == 1
    throttles.remove("type", "echo", by="ann", workspace=default_workspace())
    assert seen().count("<strong>Paused</strong>") == 1
    for name, more in (("collect", False), ("steer", False), ("follow_up", True)):
        throttles.pause("queue", name, by="ann", reason="a bug")
        assert ("More is paused" in seen()) is more
