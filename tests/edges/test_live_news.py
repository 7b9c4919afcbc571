"""What a process tells after its commits, and how it is heard: bounded, coalesced, by ids (E14.18; cases C10, C11)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from channels.layers import InMemoryChannelLayer
from django.db import OperationalError
from django.test import override_settings

from jobs import publish
from jobs.live import bridge
from jobs.live.follower import MOST_JOBS, Follower
from jobs.live.hub import Hub
from jobs.states import State
from jobs.worker.listener import direct_dsn
from jobsite.up import preparing
from tests.worker.processes import REPOSITORY, environment, until


@pytest.fixture(autouse=True)
def _nothing_left_to_tell(database):
    """News of earlier tests that could not be sent in time would be taken for this one's."""
    publish._reporter.finish(2 * publish.RETRY_S)



@contextmanager
def listening():
    with psycopg.connect(direct_dsn(), autocommit=True) as raw:
        raw.execute(f"LISTEN {publish.NEWS_CHANNEL}")
        yield raw


def heard(raw, seconds: float = 10.0, stop_after: int | None = 1) -> list[str]:
    return [found.payload for found in raw.notifies(timeout=seconds, stop_after=stop_after)]


def told(monkeypatch) -> list[str]:
    """What a reporter of this test's own says, in place of the database."""
    said: list[str] = []
    monkeypatch.setattr(publish._Reporter, "_notify", lambda self, sql, params: said.append(params[1]) or True)
    return said


def ids(n: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(n)]


def test_many_moves_of_one_job_are_one_word_with_its_last_number(monkeypatch):
    """Coalesced: the number alone is the cursor (E12)."""
    said, reporter = told(monkeypatch), publish._Reporter()
    [job_id] = ids(1)
    for number in (1, 3, 2):
        reporter._queue.append(([(job_id, number, State.QUEUED)], {7}))
    reporter._send()
    assert said == [f"{job_id.replace('-', '')}:3"]
    reporter._send()
    assert len(said) == 1


@pytest.mark.parametrize(("jobs", "tenants", "words"), [
    (180, [1], None), (181, [1], "* 1"), (500, [1, 2], "* 1 2"), (500, [], "*"),
    (500, range(10**17, 10**17 + 900), "*"), (500, range(1, 1_500), "*"),
])
def test_a_notification_fits_whatever_happened(monkeypatch, jobs, tenants, words):
    """case-C10: less than 8000 bytes; too many jobs become whose they are, too many of those become everybody's."""
    said, reporter = told(monkeypatch), publish._Reporter()
    reporter.ask = lambda: None
    reporter.add([(id_, 2**31 - 1, State.QUEUED) for id_ in ids(jobs)], set(tenants))
    reporter._send()
    assert len(said[0].encode()) < 8_000
    if words is None:
        assert len(said[0].split(" ")) == jobs
    else:
        assert said == [words]


def test_a_flood_keeps_no_more_than_can_be_told(monkeypatch):
    """Nothing of a million moves piles up in the process while the database is slow."""
    reporter = publish._Reporter()
    reporter.ask = lambda: None
    batch = [(id_, 1, State.QUEUED) for id_ in ids(100)]
    for _ in range(10_000):
        reporter.add(batch, {1})
    assert sum(len(news) for news, _ in reporter._queue) <= 4 * publish.MOST_JOBS
    assert len(reporter._queue) <= 1_000
    said = told(monkeypatch)
    reporter._send()
    assert said == ["*"]


FORKED = """
import os, warnings
warnings.simplefilter("ignore")
from jobs.publish import _reporter as reporter
reporter._queue.append(([], {1}))
reporter._lock.acquire()
if not (pid := os.fork()):
    os._exit(0 if reporter._lock.acquire(timeout=5) and not reporter._queue else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_forked_process_has_locks_and_news_of_its_own():
    """What a thread of the other process held at the fork is never given back; its news it tells itself."""
    done = subprocess.run([sys.executable, "-c", FORKED], cwd=REPOSITORY, env=environment(), capture_output=True,
                          text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr


def test_a_short_process_ends_when_all_was_sent_and_not_before(monkeypatch):
    """Also what came while the thread was sending."""
    said, reporter = told(monkeypatch), publish._Reporter()
    reporter.ask = lambda: None
    reporter._pid = os.getpid()
    reporter.add([(ids(1)[0], 1, State.QUEUED)], {1})
    begun = time.monotonic()
    reporter.finish(0.05)
    assert time.monotonic() - begun >= 0.05
    reporter._send()
    reporter.finish(60.0)
    assert len(said) == 1
    assert time.monotonic() - begun < 30.0


def test_of_two_processes_the_later_number_counts():
    """The one that wrote first may be heard last; a follower that has read further than what it hears reads nothing."""
    hub = Hub()
    job_id = uuid.uuid4()
    hub.hear(f"{job_id.hex}:2")
    hub.hear(f"{job_id.hex}:1")
    assert hub._heard == {str(job_id): 2}


def test_who_brings_news_into_a_layer_keeps_nobody_from_preparing():
    """Its session lock is held for as long as somebody follows: `up` must not wait for it."""
    assert bridge.LAYER_LOCK != preparing._LOCK


def test_news_that_could_not_be_sent_goes_with_the_next(monkeypatch):
    """A lost connection delays news and loses none."""
    monkeypatch.setattr(publish, "RETRY_S", 0.0)
    reporter = publish._Reporter()
    reporter.ask = lambda: None
    first, second = ids(2)

    class Broken:
        def cursor(self):
            raise OperationalError("gone")

        def close(self):
            pass

    real = publish.connections
    monkeypatch.setattr(publish, "connections", {"default": Broken()})
    reporter.add([(first, 1, State.QUEUED)], {1})
    reporter._send()
    assert not reporter._sent.is_set()
    monkeypatch.setattr(publish, "connections", real)
    said = told(monkeypatch)
    reporter.add([(second, 1, State.QUEUED)], {1})
    reporter._send()
    assert len(said[0].split(" ")) == 2
    assert reporter._sent.is_set()


def test_a_process_that_ends_right_after_its_commit_still_tells(database):
    """A command lives for a moment only."""
    with listening() as raw:
        done = subprocess.run([sys.executable, "manage.py", "enqueue", "noop", "--skip-checks"], cwd=REPOSITORY,
                              text=True, env=environment(), capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert heard(raw, 5.0)[0].endswith(":1")


def test_a_thousand_commits_are_few_notifications(driver):
    """NOTIFY serialises commits (DESIGN 5): at most one each 50 ms a process, whatever it does."""
    from jobs.services import cancellation

    job_id = driver.enqueue()
    with listening() as raw:
        begun = publish.clock.monotonic()
        for _ in range(50):
            cancellation.pause(job_id, by="user:test")
            cancellation.resume(job_id, by="user:test")
        took = publish.clock.monotonic() - begun
        words = heard(raw, 1.0, None)
    assert words[-1].endswith(":101")
    assert len(words) <= took / 0.05 + 2


# --- hearing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [
    "", "*x", "* x", "x", ":", "a:b", "é" * 32 + ":1", "0" * 32 + ":", "0" * 32 + ":1 x", "0" * 32 + ":\u0663",
])
def test_a_notification_of_somebody_elses_is_no_trouble(payload):
    """Anybody with a login to the database may say anything on the channel."""
    job = uuid.uuid4()

    async def hear() -> Hub:
        hub = Hub()
        hub.hear(payload)
        hub.hear(f"{job.hex}:7")
        return hub

    hub = asyncio.run(hear())
    assert hub._heard[str(job)] == 7
    assert set(hub._heard) <= {str(job), str(uuid.UUID(int=0))}, "what is no news was taken for some"


class Layer(InMemoryChannelLayer):
    """As if it were shared by processes."""


def test_with_a_shared_layer_one_process_listens_and_all_hear(driver):
    """CHANNEL_LAYER_URL: the layer brings the news to every process; another takes over when the one has ended."""
    layers = {"default": {"BACKEND": f"{__name__}.Layer"}}
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'jobs live' AND query LIKE 'LISTEN%'"

    async def follow() -> None:
        heard_by: list[list[str]] = [[], []]
        connected: list[int] = []
        tasks = [asyncio.create_task(bridge.listen(one.append, lambda: connected.append(1))) for one in heard_by]
        try:
            await _until(lambda: len(connected) == 2 and all("*" in one for one in heard_by))
            job_id = await asyncio.to_thread(_enqueued, driver)
            word = f"{job_id.replace('-', '')}:1"
            await _until(lambda: all(word in one for one in heard_by))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with override_settings(CHANNEL_LAYERS=layers):
        assert bridge.shared_layer()
        asyncio.run(follow())
    with psycopg.connect(direct_dsn(), autocommit=True) as raw:
        until(lambda: raw.execute(mine).fetchone() == (0,))
    assert not bridge.shared_layer()


def _enqueued(driver) -> str:
    from tests.database import own_connection

    with own_connection():
        return driver.enqueue()


async def _until(look) -> None:
    for _ in range(1_500):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not in time")


# --- one connection's mailbox --------------------------------------------------------------------------------------


def frames_of(feed, seconds: float) -> list[dict]:
    """What a follower says within this time while it is fed."""
    async def follow() -> list[dict]:
        follower, said = Follower(60), []

        async def say() -> None:
            async for frame in follower.frames():
                said.append(frame)

        saying = asyncio.create_task(say())
        await feed(follower)
        await asyncio.sleep(seconds)
        saying.cancel()
        return said

    return asyncio.run(follow())


def test_a_follower_is_told_ten_times_a_second_at_most_and_each_job_once():
    """Issue 4: coalesced at about 100 ms."""
    async def feed(follower) -> None:
        for n in range(1, 301):
            follower.invalidate(f"job-{n % 3}", n)
            await asyncio.sleep(0.001)

    said = frames_of(feed, 0.3)
    assert [frame["type"] for frame in said] == ["jobs"] * len(said)
    assert all(len(frame["jobs"]) <= 3 for frame in said)
    # 300 words in 0.3 s or more: one frame each 100 ms, and the first at once.
    assert len(said) <= 300 * 0.02 / 0.1
    assert {one["job"]: one["number"] for frame in said for one in frame["jobs"]} == {
        "job-0": 300, "job-1": 298, "job-2": 299}


def test_a_mailbox_is_bounded_whatever_is_put_into_it():
    """Issue 4: more than it holds is one word, to read everything anew."""
    async def feed(follower) -> None:
        for n in range(10_000):
            follower.invalidate(f"job-{n}", 1)
            follower.answer({"type": "error", "code": str(n)})
        assert len(follower._invalid) <= MOST_JOBS
        assert len(follower._answers) <= 100

    said = frames_of(feed, 0.3)
    assert [frame["type"] for frame in said].count("resync") == 1
    assert len(said) <= 101


def test_whoever_brings_news_into_a_layer_holds_up_nobody_who_prepares_the_site(driver):
    """It keeps its lock as long as it runs; `manage.py up` beside it waits for a lock of its own alone."""
    def prepare():
        with preparing._alone():
            pass

    with psycopg.connect(direct_dsn(), autocommit=True) as bringing, ThreadPoolExecutor(1) as pool:
        assert bringing.execute("SELECT pg_try_advisory_lock(%s)", [bridge.LAYER_LOCK]).fetchone() == (True,)
        prepared = pool.submit(prepare)
        try:
            prepared.result(10)
        finally:
            # Else the thread would wait for ever.
            bringing.close()
