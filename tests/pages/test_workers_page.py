"""Who is there to run jobs, and what they run (issue 4, E7)."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.clock import Now
from jobs.models import Key, Worker
from jobs.services import fleet, workers
from jobs.services.leaders import Leadership
from tests.driver import claimer
from tests.making import default_workspace
from tests.pages.people import person

UNSAFE = '<script>alert(1)</script>"\'><img src=x onerror=alert(2)>'


@pytest.fixture
def seen(client, database):
    client.force_login(person("viewer", "view_job", staff=False))

    def look() -> str:
        answer = client.get("/workers/")
        assert answer.status_code == 200
        return " ".join(answer.content.decode().split())

    return look


def register(name: str = "alpha", slots: int = 4, **more) -> Worker:
    return workers.register(name, slots, ["default"], ["collect"], more.pop("types", ["echo@1"]))


def key(**more) -> Key:
    return Key.objects.create(prefix=more.pop("prefix", "abcd1234"), digest=b"x", workspace=default_workspace(),
                              name=more.pop("name", "codex"), permissions=["claim"],
                              last_used_at=more.pop("last_used_at", Now()), **more)


def test_without_workers_the_page_says_how_to_start_one(seen):
    page = seen()
    assert "No worker is running" in page
    assert "manage.py runworker" in page
    assert "Runners over HTTP" not in page


def test_a_worker_is_shown_with_its_slots_its_types_and_what_it_runs(seen, driver):
    worker = register(types=["echo@1", "noop@1"])
    by = claimer()
    by.worker_id = str(worker.pk)
    ids = [driver.enqueue() for _ in range(3)]
    driver.claim(3, by=by)
    page = seen()
    assert "3 of 4" in page
    assert "2 types" in page
    for job_id in ids:
        assert f"/jobs/{job_id}/" in page
    assert f"process {worker.pid}" in page


def test_what_it_runs_is_bounded(seen, driver):
    worker = register(slots=30)
    by = claimer()
    by.worker_id = str(worker.pk)
    for _ in range(25):
        driver.enqueue()
    driver.claim(25, by=by)
    page = seen()
    assert page.count('class="id"') == fleet.SHOWN_JOBS
    assert "25 in all" in page
    assert "25 of 30" in page


def test_a_worker_that_is_silent_is_flagged_before_it_is_taken_for_dead(seen):
    worker = register()
    assert "silent" not in seen()
    Worker.objects.filter(pk=worker.pk).update(seen_at=Now() - fleet.LATE * 1.1)
    assert ">silent<" in seen()
    workers.stopped(worker.pk)
    page = seen()
    assert "No worker is running" in page
    assert worker.name in page


def test_runners_are_shown_by_their_keys_if_these_may_claim_and_were_used(seen, driver):
    mine = key()
    key(prefix="oldoldol", name="long ago", last_used_at=Now() - fleet.USED_FOR * 2)
    key(prefix="revoked1", name="revoked", revoked_at=Now())
    by = claimer()
    by.worker_id, by.key_id = None, mine.pk
    job_id = driver.enqueue()
    driver.claim(1, by=by)
    page = seen()
    assert "codex" in page
    assert "abcd1234" in page
    assert f"/jobs/{job_id}/" in page
    assert "long ago" not in page
    assert "oldoldol" not in page
    assert "revoked1" not in page


def test_duties_are_shown_with_their_leader_and_flagged_where_there_is_none(seen, driver):
    worker = register()
    mine = Leadership({"repair": 6.0, "closing": 6.0}, worker.pk)
    mine.renew()
    mine.ticked("repair")
    mine.renew()
    [closing, repair] = fleet.look().duties
    assert (closing.holder, closing.led, closing.late) == ("alpha", True, True)
    assert (repair.holder, repair.led, repair.late) == ("alpha", True, False)
    assert ">late<" in seen()
    driver.pass_time(60)
    assert [one.led for one in fleet.look().duties] == [False, False]
    assert ">nobody<" in seen()


def test_names_that_would_be_markup_are_text(seen):
    workers.register(UNSAFE, 1, [UNSAFE[:60]], [UNSAFE[:60]], [UNSAFE])
    key(name=UNSAFE)
    stopped = register(UNSAFE)
    workers.stopped(stopped.pk)
    page = seen()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 4


def test_the_number_of_statements_does_not_grow_with_the_fleet(client, driver):
    client.force_login(person("viewer", "view_job", staff=False))

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/workers/").status_code == 200
        return len(queries)

    register()
    key()
    few = count()
    for n in range(5):
        by = claimer()
        by.worker_id = str(register(f"w{n}").pk)
        key(prefix=f"prefix{n}")
        driver.enqueue()
        driver.claim(1, by=by)
    assert count() == few


def test_a_database_that_takes_too_long_is_a_notice(seen, monkeypatch):
    from jobs.store import backlog

    monkeypatch.setattr(fleet, "PATIENCE_MS", 50)
    monkeypatch.setattr(backlog, "_HELD", "SELECT 1 FROM pg_sleep(5)")
    assert "takes too long" in seen()


def test_the_workers_in_a_browser(console):
    """No script of a name runs, and the types of a worker open by a click."""
    register(UNSAFE, types=["echo@1"])
    page = console.open("/workers/")
    page.click("summary")
    assert page.locator("details .badge").inner_text() == "echo@1"
