"""The example runner: a program of its own against a served site, and its parts against the API in this process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from jobs.models import Attempt, Job
from jobs.services import cancellation, claiming, owners, tenancy
from jobsite.examples import engines, holding
from jobsite.examples.client import Away, Client, Refused
from jobsite.examples.holding import Failure, Held, Work
from jobsite.examples.runner import Runner, main
from jobsite.factory.contracts import CONTRACTS
from jobsite.research import chain, reading
from tests import warm
from tests.driver import check
from tests.edges.caller import Caller

AUTH = {"authContext": {"userId": "u", "organizationId": "o"}}
PATIENCE_S = 60.0
QUICK = {"JOBS_POLL_S": "0.1"}
# Leases so short that the death of a runner is noticed while a test waits.
SHORT = {**QUICK, "FACTORY_LEASE_S": "3", "FACTORY_CONTROL_LEASE_S": "3", "FACTORY_CODEX_LEASE_S": "3",
         "JOBS_LEASE_S": "3", "JOBS_DRAIN_GRACE_S": "0.5", "JOBS_RECOVERY_GRACE_S": "0.5"}


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for it."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)
    return found


# --- programs ------------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """A served site, and the runners that were started for it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url, self.folder = f"http://127.0.0.1:{port}", folder
        self.caller = Caller()
        self.runners: list[subprocess.Popen[str]] = []

    def enqueue(self, type_: str, given: Any, **options: Any) -> str:
        """Over HTTP, as anybody would."""
        asked = urllib.request.Request(
            f"{self.url}/api/v1/jobs", json.dumps({"type": type_, "input": given, **options}).encode(),
            {"Authorization": f"Bearer {self.caller.secret}", "Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return str(json.loads(answer.read())["id"])

    def runner(self, *options: str) -> subprocess.Popen[str]:
        """A runner's process; it logs into the test's folder."""
        with (self.folder / f"runner-{len(self.runners)}.log").open("w") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "jobsite.examples.runner", "--url", self.url, "--wait", "1", *options],
                env={**os.environ, "JOBSITE_KEY": self.caller.secret, "RUNNER_TRACES": str(self.folder)},
                stderr=log, text=True)
        self.runners.append(made)
        return made


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[Site]:
    """Daphne on the test database, and its end with that of all runners."""
    port = _free_port()
    with (folder / "served.log").open("w") as log:
        server = warm.start(["-m", "tests.edges.served", str(port), str(connection.settings_dict["NAME"])],
                            {**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT)
    site = Site(port, folder)

    def answers() -> bool:
        assert server.poll() is None, (folder / "served.log").read_text()[-2_000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers, "the server")
        yield site
    finally:
        for process in (*site.runners, server):
            process.terminate()
            process.wait(30)


@pytest.fixture
def site(database: None, tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path, **QUICK) as made:
        yield made


@pytest.fixture
def hasty_site(database: None, tmp_path: Path) -> Iterator[Site]:
    """One whose leases soon run out."""
    with served(tmp_path, **SHORT) as made:
        yield made


def _ended(job_id: str) -> bool:
    return Job.objects.get(pk=job_id).ended_at is not None


def test_the_shipped_runner_serves_factory_and_research_over_http(site: Site) -> None:
    """E9, A20, B45: every kind is done by `python -m jobsite.examples.runner`, the chain to its child, and SIGTERM
    ends it with 0."""
    # Research runs under its tenant's owner.
    owners.put(tenancy.tenant(tenancy.workspace(), None), "vault/research", by="test")
    process = site.runner("--slots", "4", "--groups", "receipt-chat,receipt-codex,receipt-control,research,saphira")
    made = [site.enqueue(kind, {**AUTH, "objectiveId": "o-1"} if contract.objective_scoped else AUTH,
                         agent=contract.agent) for kind, contract in CONTRACTS.items()]
    made.append(site.enqueue("saphira-job", {"any": "thing"}))
    made.append(site.enqueue("research-brief", {"offer_id": "o", "generation": 1,
                                                "sources": [{"id": "m", "text": "Ask.\nPlease."}]}))
    (site.folder / "plan.md").write_text("# Plan\n\nWords.\n")
    question = chain.Question("r-1", "plan.md", str(site.folder))
    made.append(chain.ask(question, "What is known?").id)
    card = until(lambda: (found := reading.card(question)).state in ("ready", "failed") and found, "the child")
    assert (card.state, card.child.title) == ("ready", "What was given (demonstration)")
    assert "plan.md has 3 lines" in card.child.mdx
    for job_id in made:
        until(lambda job_id=job_id: _ended(job_id), "an end")
        job = Job.objects.get(pk=job_id)
        assert (job.state, job.claims, job.failures) == ("completed", 1, 0), job.type
        check(job_id)
    run = json.loads(Job.objects.get(type="factory.objective.control").artifact.value)
    assert run["summary"].startswith("Demonstration only: factory.objective.control was read")
    assert json.loads(Job.objects.get(type="research-brief").artifact.value)["brief"] == "Ask."
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_a_killed_runner_loses_nothing_and_another_goes_on_from_its_checkpoint(hasty_site: Site) -> None:
    """A3, C33, C35, E9: SIGKILL in the middle; the lease runs out, and its successor finds what was kept."""
    site = hasty_site
    engine = ("--engines", "tests.site.engines:ENGINES", "--groups", "receipt-codex")
    first = site.runner(*engine)
    job_id = site.enqueue("factory.task.run", AUTH, agent="codex")
    until(lambda: Job.objects.get(pk=job_id).checkpoint_number == 1, "the checkpoint")
    # Its heartbeats keep it for longer than a lease.
    taken = Attempt.objects.get(job_id=job_id)
    until(lambda: Attempt.objects.get(job_id=job_id).lease_until > taken.lease_until, "a heartbeat")
    first.kill()
    first.wait(30)
    site.runner(*engine)
    until(lambda: _ended(job_id), "the end")
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.claims, job.failures) == ("completed", 2, 1)
    assert json.loads(job.artifact.value)["summary"] == "resumed after half by attempt 2"
    assert list(Attempt.objects.filter(job_id=job_id).order_by("number").values_list("outcome", flat=True)) == [
        "lapsed", "completed"]
    check(job_id)


# --- parts, against the API in this process ------------------------------------------------------------------------


class Inside(Client):
    """The API without a network; `away` answers to come are none."""

    def __init__(self, caller: Caller) -> None:
        super().__init__("http://test", caller.secret)
        self.caller, self.away, self.said = caller, 0, []
        self._one = threading.Lock()

    def post(self, path: str, body: dict[str, Any], *, patience_s: float = 0.0) -> dict[str, Any]:
        with self._one:
            self.said.append((path.rsplit("/", 1)[1], body))
            if self.away:
                self.away -= 1
                raise Away("as told")
            try:
                answer = self.caller.post(path, body)
            finally:
                if threading.current_thread() is not threading.main_thread():
                    connections.close_all()
        told = answer.json()
        if answer.status_code >= 400:
            raise Refused(answer.status_code, told["code"], told["detail"])
        return told

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.said if verb != "extend"]


@pytest.fixture
def inside(driver, monkeypatch: pytest.MonkeyPatch) -> Inside:
    claiming._cursors.clear()
    monkeypatch.setattr(holding, "BACK_OFF_S", 0.01)
    return Inside(Caller())


def begin(inside: Inside, engine: Any, **changes: Any) -> tuple[Held, list[Any]]:
    """One claimed job of `factory.run` under this engine, and what the runner says."""
    inside.caller.enqueue("factory.run", input=AUTH, agent="factory")
    claimed = {**inside.caller.claim_one(worker_groups=["receipt-chat"]), **changes}
    said: list[Any] = []
    held = Held(inside, claimed, engine, lambda event, **told: said.append((event, told)))
    held.begin()
    return held, said


def end(held: Held) -> Job:
    assert held.over.wait(PATIENCE_S)
    return Job.objects.get(pk=held.job)


def test_an_end_is_said_until_it_is_answered_and_counts_once(inside: Inside) -> None:
    """A36, E5: no answer means the same words again."""
    def finish(work: Work) -> dict[str, Any]:
        inside.away = 3
        return {"summary": "done"}

    held, said = begin(inside, finish)
    job = end(held)
    assert (job.state, job.claims) == ("completed", 1)
    assert said[-1] == ("ended", {"job": held.job, "type": "factory.run", "by": "complete", "status": "completed"})
    check(held.job)


@pytest.mark.parametrize(("raised", "code", "state"), [
    (Failure("provider_timeout", "later"), "provider_timeout", "queued"),
    (Failure("no_such_branch", retryable=False), "no_such_branch", "failed"),
    (ValueError("secret words"), "engine_error", "queued"),
])
def test_what_an_engine_raises_becomes_a_failure(inside: Inside, raised: Exception, code: str, state: str) -> None:
    """B25, B31: a code of its own, or `engine_error` with the type alone: its message may be private."""
    def fail(work: Work) -> None:
        raise raised

    held, _ = begin(inside, fail)
    assert end(held).state == state
    attempt = Attempt.objects.get(pk=held.id)
    assert attempt.reason_code == code
    assert "secret words" not in (attempt.message or "")


@pytest.mark.parametrize(("artifact", "code"), [({"words": "x"}, "invalid_artifact"), ({1, 2}, "engine_error"),
                                                (float("nan"), "engine_error")])
def test_an_artifact_that_cannot_be_one_fails_the_job(inside: Inside, artifact: Any, code: str) -> None:
    """B8: refused by its definition, or no JSON at all; the lease need not run out for it."""
    held, _ = begin(inside, lambda work: artifact)
    end(held)
    assert Attempt.objects.get(pk=held.id).reason_code == code


def test_an_abort_reaches_the_engine_by_a_heartbeat_and_the_job_is_cancelled(inside: Inside) -> None:
    """E5, A55: it asks whether to go on, stops, and what it hands back is cancelled."""
    waiting = threading.Event()

    def wait(work: Work) -> None:
        waiting.set()
        while True:
            work.wait(0.01)

    held, _ = begin(inside, wait, heartbeat_after_s=0.05)
    held._limit_s = 0.05
    assert waiting.wait(PATIENCE_S)
    until(lambda: Job.objects.get(pk=held.job).state == "running", "the start")
    Job.objects.filter(pk=held.job).update(abort_reason="as asked")
    assert end(held).state == "cancelled"


def test_a_job_that_was_cancelled_is_let_go_without_a_word(inside: Inside) -> None:
    """E5, E14.2: `stale_claim` ends the heartbeats, and what the engine brings is dropped."""
    go = threading.Event()

    def ignore(work: Work) -> dict[str, Any]:
        assert go.wait(PATIENCE_S)
        return {"summary": "late"}

    held, said = begin(inside, ignore, heartbeat_after_s=0.05)
    held._limit_s = 0.05
    cancellation.cancel(held.job, by="test")
    until(lambda: any(event == "lost" for event, _ in said), "the loss")
    go.set()
    assert end(held).state == "cancelled"
    assert "complete" not in inside.verbs()


def test_an_engine_that_takes_too_long_is_told_and_its_attempt_ends(inside: Inside) -> None:
    """E8, B27: at the deadline that the server named; whatever it brings afterwards is dropped."""
    go = threading.Event()

    def ignore(work: Work) -> dict[str, Any]:
        assert go.wait(PATIENCE_S)
        return {"summary": "late"}

    held, _ = begin(inside, ignore, deadline="2020-01-01T00:00:00+00:00")
    until(lambda: Attempt.objects.get(pk=held.id).ended_at, "the end of the attempt")
    go.set()
    assert end(held).state == "queued"
    assert Attempt.objects.get(pk=held.id).reason_code == "attempt_timeout"
    assert inside.verbs() == ["fail"]


def test_a_report_that_the_server_refuses_costs_no_lease(inside: Inside) -> None:
    """C33: the checkpoint is kept, an undeclared stage is not, and the heart goes on beating."""
    def report(work: Work) -> dict[str, Any]:
        work.checkpoint({"step_id": "a"})
        work.progress("no-such-stage")
        work.checkpoint({"step_id": "b"})
        return {"summary": "done"}

    held, said = begin(inside, report)
    job = end(held)
    assert (job.state, job.checkpoint_number) == ("completed", 2)
    assert [told["reports"] for event, told in said if event == "report_refused"] == [["progress"]]


def test_a_report_made_while_the_server_is_away_is_kept_for_the_next_heartbeat(inside: Inside) -> None:
    """C33: nothing is lost by one answer that is."""
    def report(work: Work) -> dict[str, Any]:
        inside.away = 1
        work.checkpoint({"step_id": "a"})
        until(lambda: Job.objects.get(pk=held_job[0]).checkpoint_number == 1, "the checkpoint")
        connections.close_all()
        return {"summary": "done"}

    held_job: list[str] = []
    inside.caller.enqueue("factory.run", input=AUTH, agent="factory")
    claimed = inside.caller.claim_one(worker_groups=["receipt-chat"])
    held_job.append(claimed["job"]["id"])
    held = Held(inside, claimed, report, lambda *_, **__: None)
    held.begin()
    assert end(held).state == "completed"


def test_a_type_without_an_engine_is_handed_back_for_others(inside: Inside) -> None:
    """E7: uncounted, and not claimable at once."""
    held, _ = begin(inside, None)
    job = end(held)
    assert (job.state, job.failures, job.releases, job.gate) == ("queued", 0, 1, "scheduled")


def test_a_search_that_gives_no_answer_fails_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """B44: 60 s for one search; what it raises is told by a code, and its answer is the evidence."""
    class Fake:
        input = {"brief": "x"}

        def check(self) -> None: ...

        def progress(self, *_: str) -> None: ...

    monkeypatch.setattr(engines, "SEARCH_S", 0.2)
    never = threading.Event()
    with pytest.raises(Failure) as failure:
        engines.evidence_from(lambda brief: never.wait(5) or {})(Fake())  # type: ignore[arg-type]
    assert (failure.value.code, failure.value.retryable) == ("web_search_timeout", True)

    def broken(brief: str) -> dict[str, Any]:
        raise OSError("private")

    with pytest.raises(Failure, match="web_search_failed"):
        engines.evidence_from(broken)(Fake())  # type: ignore[arg-type]
    assert engines.evidence_from(lambda brief: {"sources": [], "asked": brief})(Fake()) == {  # type: ignore[arg-type]
        "sources": [], "asked": "x"}


def test_a_drain_hands_back_what_does_not_end_in_time(inside: Inside) -> None:
    """E1, D of the protocol: claim no more, wait for the grace, hand back; nobody's failure, and exit 0."""
    started, never = threading.Event(), threading.Event()

    def stubborn(work: Work) -> None:
        started.set()
        never.wait(PATIENCE_S)

    runner = Runner(inside, {"factory.run": stubborn}, groups=["receipt-chat"], slots=2, wait_s=0, grace_s=0.2)
    job_id = inside.caller.enqueue("factory.run", input=AUTH, agent="factory")["id"]
    codes: list[int] = []
    loop = threading.Thread(target=lambda: codes.append(runner.run()))
    loop.start()
    assert started.wait(PATIENCE_S)
    runner.stop()
    loop.join(PATIENCE_S)
    assert codes == [0]
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.failures, job.releases, job.gate) == ("queued", 0, 1, None)
    never.set()


def test_a_runner_that_the_server_will_never_have_says_so_and_ends(
        inside: Inside, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A30: a misspelt group is refused and ends it with 2; so do a missing key and an address that is none."""
    assert Runner(inside, {}, groups=["receipt-codx"]).run() == 2
    assert "did you mean 'receipt-codex'?" in capfd.readouterr().err
    for name in ("JOBSITE_KEY", "JOBSITE_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert main([]) == 2
    monkeypatch.setenv("JOBSITE_KEY", "a.b")
    assert main(["--url", "file:///etc/passwd"]) == 2


def test_what_is_wrong_with_a_key_or_an_address_is_said_without_its_words(
        capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """E10: a header that cannot be sent, or an address with a password, would be quoted in every line of a runner."""
    for key in ("prefix.s3cr3t\r\nX: y", "prefix.s3cr3t\u00e9", "prefix.s3cr3t x"):
        monkeypatch.setenv("JOBSITE_KEY", key)
        assert main([]) == 2
    monkeypatch.setenv("JOBSITE_KEY", "a.b")
    for url in ("http://user:s3cr3t@127.0.0.1:1", "https://127.0.0.1?key=s3cr3t", "http://", "http://x:s3cr3t"):
        assert main(["--url", url]) == 2
    assert "s3cr3t" not in capfd.readouterr().err


def test_a_moment_that_is_none_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """E8: what the claim brought must be known, whatever a proxy says of the time."""
    client = Client("http://127.0.0.1", "a.b")
    for date in (None, "", "yesterday", "Mon, 99 Foo 2026 25:61:00 GMT", "Fri, 01 Jan 99999 00:00:00 GMT"):
        client._compare(date)
    assert client.ahead_s == 0.0


def test_no_server_is_away_and_a_redirect_is_not_followed() -> None:
    """A38: to be waited out; and the key goes to nobody else."""
    with pytest.raises(Away):
        Client(f"http://127.0.0.1:{_free_port()}", "a.b", timeout_s=5).post("/x", {})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            for answer in (b"302 Found\r\nLocation: http://127.0.0.1:1/", b"503 Away\r\nRetry-After: 7", b"200 OK"):
                caller, _ = listener.accept()
                with caller:
                    caller.recv(65_536)
                    caller.sendall(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]")

        thread = threading.Thread(target=serve)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "a.b")
        with pytest.raises(Refused) as refused:
            client.post("/x", {})
        assert refused.value.status == 302
        with pytest.raises(Away) as away:
            client.post("/x", {})
        assert away.value.after_s == 7
        with pytest.raises(Away, match="no object"):
            client.post("/x", {})
        thread.join(PATIENCE_S)
