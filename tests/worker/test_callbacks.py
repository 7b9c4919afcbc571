"""Callbacks by real workers: a kill between sending and settling (E11, I14)."""

from __future__ import annotations

import pytest

from jobs.models import Delivery
from jobs.services import cancellation, intake
from tests.services.calling import allowing, url
from tests.sinks import OK, Sink, slowly
from tests.worker.processes import until


def test_a_worker_that_is_killed_while_it_tells_is_followed_by_one_that_tells_again(workers, settings) -> None:
    """E11, case-I03: at least once, under the same id, and the two bodies are alike."""
    with Sink(slowly(4)) as sink:
        allowing(settings, sink)
        told = {"CALLBACK_HTTP": "on", "CALLBACK_ALLOW": f"127.0.0.1:{sink.port}"}
        job_id = intake.enqueue("echo", {}, callback_url=url(sink)).id
        cancellation.cancel(job_id, by="test")
        first = workers(env=told)
        until(lambda: sink.got, 30)
        first.kill()
        sink.answer = OK
        workers(env=told)
        until(lambda: Delivery.objects.filter(job_id=job_id, state="delivered").exists(), 60)
        assert len(sink.got) >= 2
        assert len({(got.headers["webhook-id"], got.body) for got in sink.got}) == 1


@pytest.mark.parametrize("slots", [1, 2])
def test_hosts_that_hang_take_no_slot_of_a_users_job(workers, jobs, settings, slots) -> None:
    """case-I02: more deliveries hang than there are slots, as many wait behind them, and a job runs."""
    with Sink(slowly(60)) as sink:
        allowing(settings, sink, CALLBACK_ALLOW=[f"{host}:{sink.port}" for host in ("127.0.0.1", "localhost")])
        for n in range(20):
            host = "127.0.0.1" if n % 2 else "localhost"
            cancellation.cancel(intake.enqueue("echo", {}, callback_url=f"http://{host}:{sink.port}/").id, by="test")
        workers("--slots", str(slots), env={
            "CALLBACK_HTTP": "on", "CALLBACK_ALLOW": f"127.0.0.1:{sink.port},localhost:{sink.port}"})
        until(lambda: sink.now >= 4, 30)
        jobs.wait(jobs.add("echo"), "completed", seconds=10)
