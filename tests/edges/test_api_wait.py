"""The long poll of agents' clients, and what a read of a lost job sets off (A56, A57, A58)."""

from __future__ import annotations

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobs import selectors
from jobs.api import places, waiting
from jobs.live.access import TooMany
from jobs.models import Job
from jobs.services import assignments, keys
from tests import database as db
from tests.edges.caller import Caller, problem
from tests.pages.site import server
from tests.worker.processes import until


@pytest.fixture(scope="module")
def process(django_db_setup):
    with server(JOBS_LIVE_PER_HOLDER="40") as started:
        yield started


def wait(port: int, name: str, caller: Caller, query: str = "", **headers: str) -> tuple[int, Any, Any, float]:
    """Status, headers, body and the moment of one answer."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
    told = {"Authorization": f"Bearer {caller.secret}", **{n.replace("_", "-"): v for n, v in headers.items()}}
    client.request("GET", f"/api/v1/jobs/{name}/wait{query}", headers=told)
    answer = client.getresponse()
    body = json.loads(answer.read())
    client.close()
    return answer.status, answer.headers, body, time.monotonic()


def test_a_waiting_client_is_answered_soon_after_the_end(process, driver):
    """A58: within 250 ms where the machine is free; the answer names its successor, and is a read like any other."""
    caller, pool = Caller(), ThreadPoolExecutor(1)
    took = []
    for _ in range(3):
        job_id = driver.enqueue()
        held = driver.claim_one()
        waiting_ = pool.submit(wait, process[0], job_id, caller, "?timeoutMs=30000", X_Request_ID="mine")
        # Nothing tells from outside that it waits; asking too early would only make the answer quick.
        time.sleep(0.7)
        assert not waiting_.done()
        driver.complete(held)
        ended = time.monotonic()
        status, headers, body, at = waiting_.result(40)
        took.append(at - ended)
        assert (status, body["status"], body["id"], body["result_envelope"]["outcome"]) == (
            200, "completed", job_id, "completed")
    assert headers["Deprecation"].startswith("@")
    assert headers["Link"] == f'</api/v1/jobs/{job_id}/events>; rel="successor-version"'
    assert (headers["X-Request-ID"], headers["Cache-Control"], headers["ETag"]) == ("mine", "no-store", '"r3"')
    print(f"answered {', '.join(f'{s * 1000:.0f}' for s in took)} ms after the commit")
    # One of three, since the machine is shared: polling alone would take 5 s each.
    assert min(took) < 1.0


def test_at_the_timeout_the_answer_is_the_present_state(process, driver):
    """A58: 200; moves that are no ends do not end it, and waits cost no thread and no connection each (case-C07)."""
    caller, job_id = Caller(), driver.enqueue(job_id="mine")
    begun = time.monotonic()
    pool = ThreadPoolExecutor(12)
    waits = [pool.submit(wait, process[0], "mine", caller, "?timeoutMs=1500") for _ in range(12)]
    time.sleep(0.6)
    busy = db.rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                   " AND state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()")[0][0]
    driver.claim_one()
    answers = [w.result(40) for w in waits]
    assert busy == 0
    assert {(status, body["status"], body["id"]) for status, _, body, _ in answers} == {(200, "leased", job_id)}
    assert time.monotonic() - begun >= 1.4


def test_waits_end_with_what_they_may_not_see_any_more(process, driver):
    """C25, E2: foreign like unknown, before and while it waits; too many of one key are refused."""
    caller = Caller()
    assert wait(process[0], "none", caller)[0] == 404
    status, headers, body, _ = wait(process[0], driver.enqueue(tenant="them"), caller)
    assert (status, body["code"], headers["Content-Type"]) == (404, "job_not_found", "application/problem+json")
    job_id = driver.enqueue()
    with ThreadPoolExecutor(41) as pool:
        waits = [pool.submit(wait, process[0], job_id, caller, "?timeoutMs=4000") for _ in range(41)]
        codes = sorted(w.result(40)[0] for w in waits)
    assert (codes[0], codes[-1], codes.count(429) >= 1) == (200, 429, True)


def test_a_client_that_leaves_is_not_waited_for(process, driver):
    """case-H05: its place is free again at once."""
    caller, job_id = Caller(), driver.enqueue()
    gone = []
    # Some more than there are places, since who asks whether all are taken takes one for a moment.
    for _ in range(44):
        client = http.client.HTTPConnection("127.0.0.1", process[0], timeout=40)
        client.request("GET", f"/api/v1/jobs/{job_id}/wait?timeoutMs=60000",
                       headers={"Authorization": f"Bearer {caller.secret}"})
        gone.append(client)
    until(lambda: wait(process[0], job_id, caller, "?timeoutMs=50")[0] == 429, 15)
    for client in gone:
        client.close()
    until(lambda: wait(process[0], job_id, caller, "?timeoutMs=50")[0] == 200, 15)


# --- the same without a loop: Django's test client is a WSGI server ------------------------------------------------


def test_under_wsgi_a_thread_waits_and_looks(api, driver):
    """A58: the same answers; nothing of the database is held between two looks."""
    job_id = driver.enqueue()
    held = driver.claim_one()

    def end() -> None:
        with db.own_connection():
            time.sleep(0.5)
            driver.complete(held)

    thread = threading.Thread(target=end)
    thread.start()
    told = api.get(f"/jobs/{job_id}/wait?timeoutMs=20000")
    thread.join()
    assert (told.status_code, told.json()["status"], told["Deprecation"]) == (200, "completed", "@1767225600")
    # At its end there is nothing to wait for.
    assert api.get(f"/jobs/{job_id}/wait").json()["status"] == "completed"


def test_a_timeout_of_nothing_looks_once(api, driver):
    """A58: 0 to 120,000."""
    begun = time.monotonic()
    assert api.get(f"/jobs/{driver.enqueue()}/wait?timeoutMs=0").json()["status"] == "queued"
    assert api.get(f"/jobs/{driver.enqueue()}/wait?timeoutMs=300").json()["status"] == "queued"
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("wrong", ["-1", "1.5", "x", "true", "", "1e3", "9" * 31])
def test_a_timeout_that_is_no_number_is_refused_and_a_long_one_is_cut(api, driver, wrong):
    """A58, E15: as waits of claims are; above the limit is no fault."""
    job_id = driver.enqueue()
    problem(api.get(f"/jobs/{job_id}/wait?timeoutMs={wrong}"), 400, "invalid_timeout_ms", "timeoutMs")
    assert (waiting._seconds("120001"), waiting._seconds("9" * 30), waiting._seconds(None)) == (120, 120, 15)


def test_a_key_has_so_many_places_to_wait_in(api, driver, settings):
    """Threads are bounded; 429 with a code."""
    settings.JOBS = {**settings.JOBS, "LIVE_PER_HOLDER": 1}
    job_id = driver.enqueue()
    with places.place(f"job:key:{api.key.pk}", 1):
        problem(api.get(f"/jobs/{job_id}/wait?timeoutMs=100"), 429, "too_many_connections")
        with places.place("job:key:of another", 1):
            pass
    assert api.get(f"/jobs/{job_id}/wait?timeoutMs=1").status_code == 200
    with pytest.raises(TooMany), places.place("a", 1), places.place("a", 1):
        pass
    assert not places._waiting
    problem(Caller(permissions=["enqueue"]).get(f"/jobs/{job_id}/wait"), 403, "permission_denied")


# --- reading a lost job --------------------------------------------------------------------------------------------


@pytest.fixture
def _old_server(monkeypatch):
    """Recovery stands still for a while after the database's start, which a test's may be near."""
    monkeypatch.setattr("jobs.services.recovery.Recovery._stand_still", lambda self: False)
    # What an earlier test set off may still be at its end.
    until(lambda: assignments._recovering.done())
    assignments._looked.now()


@pytest.mark.usefixtures("_old_server")
@pytest.mark.parametrize("read", ["/jobs/{}", "/jobs/{}/wait?timeoutMs=0"])
def test_reading_a_job_whose_lease_has_run_out_has_it_recovered_behind_the_reader(api, driver, read):
    """A56: nobody claims and no loop runs; the reader is answered at once with what it read."""
    job_id = driver.enqueue()
    driver.claim_one()
    assert api.get(f"/jobs/{job_id}").json()["status"] == "leased"
    db.pass_time(31)
    # Within the grace it is still believed.
    assert assignments.look_after(Job.objects.get(pk=job_id)) is False
    db.pass_time(5)
    assert api.get(read.format(job_id)).json()["status"] == "leased"
    until(lambda: Job.objects.get(pk=job_id).state == "queued")
    assert (Job.objects.get(pk=job_id).lapses, api.get(f"/jobs/{job_id}").json()["status"]) == (1, "queued")


@pytest.mark.usefixtures("_old_server")
def test_many_readers_set_off_one_look_a_second(api, driver):
    """A56: bounded; a job that waits or has ended sets off nothing."""
    jobs = [driver.enqueue() for _ in range(3)]
    driver.claim(3)
    db.pass_time(60)
    rows = list(Job.objects.filter(pk__in=jobs))
    begun = [assignments.look_after(row) for row in rows]
    assert begun == [True, False, False]
    until(lambda: not Job.objects.filter(attempt__isnull=False).exists())
    assert assignments.look_after(Job.objects.get(pk=jobs[0])) is False


@pytest.mark.usefixtures("_old_server")
def test_behind_a_look_that_takes_long_no_others_pile_up(api, driver, monkeypatch):
    """A56, case-C07: one at a time, however long the database takes and however many read."""
    driver.enqueue()
    driver.claim(1)
    db.pass_time(60)
    row, go, looks = Job.objects.get(), threading.Event(), []
    monkeypatch.setattr(assignments, "_recover", lambda: (looks.append(1), go.wait(30)))
    try:
        for _ in range(5):
            assignments._looked.now()
            assignments.look_after(row)
        until(lambda: looks)
        assert (len(looks), assignments._background._work_queue.qsize()) == (1, 0)
    finally:
        go.set()
    until(lambda: assignments._recovering.done())


def test_a_list_is_fifty_long_unless_said_and_at_most_so_long(api):
    """A57: 50 unless said, 1 to 500; B40's 100 is within that, and a cursor leads on."""
    for n in range(51):
        api.enqueue(job_id=f"j{n}")
    assert len(api.get("/jobs").json()["jobs"]) == 50
    assert len(api.get("/jobs?status=queued&limit=500").json()["jobs"]) == 51
    for wrong in ("0", "501", "x"):
        problem(api.get(f"/jobs?limit={wrong}"), 400, "invalid_limit")


def test_a_key_that_is_revoked_while_it_waits_is_not_answered(api, driver, monkeypatch):
    """C25: under WSGI too the key is looked at again, at the end in any case."""
    job_id = driver.enqueue()
    monkeypatch.setattr(waiting, "LOOK_S", 0.05)
    looks = selectors.seen

    def seen(ids):
        keys.revoke(api.key.prefix)
        driver.cancel(job_id)
        return looks(ids)

    monkeypatch.setattr(selectors, "seen", seen)
    problem(api.get(f"/jobs/{job_id}/wait?timeoutMs=20000"), 401, "unauthenticated")
