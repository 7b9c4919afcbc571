"""`/metrics`: figures that equal what happened, a door that is shut, and a database that may be away (issue 4)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from jobs import metrics
from jobs.conf import value_faults
from jobs.services import overview, traffic, workers
from jobs.store import backlog
from tests import database
from tests.bench import noise
from tests.pages.people import person
from tests.pages.site import serving
from tests.plugin import skip
from tests.worker.processes import REPOSITORY, Process, environment, start_worker, until

TOKEN = "a token of the tests"
HERE = {"worker_group": "default", "queue": "collect"}


@pytest.fixture(autouse=True)
def fresh(settings):
    if not metrics.INSTALLED:
        skip("prometheus-client is not installed")
    settings.JOBS = {**settings.JOBS, "METRICS_TOKEN": TOKEN}
    overview.look.forget()
    metrics._gauges.forget()
    yield
    overview.look.forget()
    metrics._gauges.forget()


def parsed(text: str) -> dict[tuple[str, frozenset], float]:
    """Every sample, by its name and labels; what Prometheus cannot read raises."""
    from prometheus_client.parser import text_string_to_metric_families

    return {(s.name, frozenset(s.labels.items())): s.value
            for family in text_string_to_metric_families(text) for s in family.samples}


class Scrape:
    """One scrape, asked by name and labels."""

    def __init__(self, text: str) -> None:
        self.samples = parsed(text)

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


@pytest.fixture
def scrape(client, database):
    def ask() -> Scrape:
        overview.look.forget()
        metrics._gauges.forget()
        answer = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        return Scrape(answer.content.decode())

    return ask


def test_the_figures_are_what_happened(driver, scrape):
    before = scrape()
    for _ in range(4):
        driver.enqueue()
    database.pass_time(100)
    driver.complete(driver.claim_one())
    driver.fail(driver.claim_one(), retryable=False)
    driver.claim_one()
    workers.register("w", 3, ["default"], ["chat"], ["echo@1"])
    after = scrape()

    def rose(name: str, **labels: str) -> float:
        return after(name, **HERE, **labels) - before(name, **HERE, **labels)

    assert rose("jobs_enqueued_total") == 4
    assert rose("jobs_claimed_total") == 3
    assert rose("jobs_attempts_ended_total", outcome="completed") == 1
    assert rose("jobs_attempts_ended_total", outcome="failed") == 1
    assert rose("jobs_ended_total", state="failed") == 1
    assert rose("jobs_dead_letters_opened_total") == 1
    assert rose("jobs_wait_seconds_count") == 3
    assert 300 <= rose("jobs_wait_seconds_sum") < 330
    assert rose("jobs_wait_seconds_bucket", le="67.108864") == 0
    assert rose("jobs_wait_seconds_bucket", le="268.435456") == 3
    assert rose("jobs_run_seconds_count") == 2
    assert after("jobs_transaction_seconds_count", operation="settle") > 0
    assert after("jobs_up") == 1
    assert after("jobs_waiting", **HERE) == 1
    assert after("jobs_running", **HERE) == 1
    assert 100 <= after("jobs_oldest_claimable_seconds", **HERE) < 130
    assert after("jobs_unserved", **HERE) == 1
    assert after("jobs_dead_letters_open") == 1
    assert (after("jobs_workers"), after("jobs_slots"), after("jobs_slots_busy")) == (1, 3, 0)


def test_names_and_labels_are_few(driver, scrape):
    """No tenant, no type, no id: their number would be the number of series."""
    for n in range(5):
        driver.enqueue(tenant=f"tenant-{n}")
    names = {label for _, labels in scrape().samples for label, _ in labels}
    assert names <= {"worker_group", "queue", "outcome", "state", "operation", "duty", "le"}


def test_without_the_token_or_a_person_who_may_look_there_is_no_answer(client, database, settings):
    refused = client.get("/metrics")
    assert refused.status_code == 401
    assert "Bearer" in refused["WWW-Authenticate"]
    for said in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ", "Bearer \u00e9"):
        assert client.get("/metrics", headers={"authorization": said}).status_code == 401
    client.force_login(person("nobody"))
    assert client.get("/metrics").status_code == 401
    client.force_login(person("viewer", "view_job"))
    assert client.get("/metrics").status_code == 200
    assert client.post("/metrics").status_code == 405


def test_a_site_that_sets_no_token_is_shut(client, database, settings):
    settings.JOBS = {**settings.JOBS, "METRICS_TOKEN": None}
    for said in ("Bearer ", "Bearer None", "Bearer"):
        assert client.get("/metrics", headers={"authorization": said}).status_code == 401


@pytest.mark.parametrize("token", ["short", "", 7, "\u00e9" * 20])
def test_a_token_that_guards_nothing_is_refused(token):
    assert "METRICS_TOKEN" in value_faults({"METRICS_TOKEN": token})[0]


def test_a_database_that_is_slow_costs_the_gauges_and_nothing_else(scrape, monkeypatch):
    monkeypatch.setattr(overview, "PATIENCE_MS", 50)
    monkeypatch.setattr(backlog, "_LETTERS", "SELECT 1 FROM pg_sleep(5)")
    found = scrape()
    assert found("jobs_up") == 0
    assert "jobs_waiting" not in found.names()
    assert "jobs_transaction_seconds_count" in found.names()


def test_the_gauges_are_kept_for_seconds(client, driver):
    def waiting() -> float:
        answer = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        return Scrape(answer.content.decode())("jobs_waiting", **HERE)

    driver.enqueue()
    assert waiting() == 1
    driver.enqueue()
    overview.look.forget()
    assert waiting() == 1


def _asked(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_with_a_database_that_is_away_a_scrape_is_answered(database):
    """Never a 500: jobs_up says 0, within the time that a scrape is given."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"postgres://jobs@127.0.0.1:{nobody.getsockname()[1]}/nothing"
        with serving(DATABASE_URL=away, METRICS_TOKEN=TOKEN) as port:
            began = time.monotonic()
            status, said = _asked(port, Authorization=f"Bearer {TOKEN}")
            assert (status, Scrape(said)("jobs_up")) == (200, 0)
            assert "jobs_waiting" not in Scrape(said).names()
            assert time.monotonic() - began < 10
            assert _asked(port)[0] == 401


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_worker_answers_scrapes_with_its_own_counts(driver):
    for _ in range(3):
        driver.enqueue()
    port = _port()
    worker = start_worker("--metrics-port", str(port)).wait_ready()
    try:
        until(lambda: Scrape(_asked(port)[1])("jobs_ended_total", state="completed", **HERE) == 3, 30)
        assert "jobs_up" not in Scrape(_asked(port)[1]).names()
        taken = subprocess.run([sys.executable, "manage.py", "runworker", "--skip-checks", "--metrics-port", str(port)],
                               cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=60)
        assert taken.returncode == 1
        assert "cannot be served" in taken.stderr
        assert worker.stop() == 0
    finally:
        worker.kill()


def test_a_pump_answers_with_the_gauges_of_the_site(driver):
    """For sites whose web process is not scraped, or is not there."""
    driver.enqueue()
    port = _port()
    pump = Process(["--metrics-port", str(port)], environment(), "runpump")

    def waiting() -> float:
        try:
            found = Scrape(_asked(port)[1])
        except urllib.error.URLError:
            return 0
        return found("jobs_up") and found("jobs_waiting", **HERE)

    try:
        until(lambda: waiting() == 1, 60)
        assert pump.stop() == 0
    finally:
        pump.kill()


def test_a_scrape_does_not_read_a_backlog(driver, scrape):
    """With 50,000 waiting jobs of 2,000 tenants it takes what it takes with few."""
    driver.enqueue()
    noise.tenants(2_000, 1_000)
    noise.jobs(50_000, "1000 + i % 2000")
    noise.lines()
    traffic.flusher.flush()
    took = []
    for _ in range(4):
        began = time.perf_counter()
        found = scrape()
        took.append(time.perf_counter() - began)
        assert found("jobs_waiting", **HERE) == backlog.CAP
    assert min(took) < 0.3, took
