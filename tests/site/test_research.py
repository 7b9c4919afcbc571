"""`research`: codecs that keep public and private apart, flags, and the chain from evidence to a child (B43 to B45)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction

from jobs import clock
from jobs.conf import registry
from jobs.errors import Conflict, Invalid, JobError, NotFound, Refused
from jobs.models import Job, Tenant
from jobs.outcomes import Failed
from jobs.registry import Ended
from jobs.services import intake, owners, reconciling, tenancy
from jobs.states import State
from jobsite.definitions import research
from jobsite.examples import engines
from jobsite.research import chain, reading, report
from jobsite.research.chain import Question
from jobsite.research.contents import ANSWER, BRIEF, EVIDENCE, AnswerAsked, Evidence, Report
from jobsite.research.switches import Switches
from tests.driver import Driver, check, claimer, done
from tests.races.threads import together

URL = "https://example.org/a"
BRIEFED = {"request_id": "r-1", "turn_id": "t-1", "brief": "What is known about it?"}
FOUND = {"sources": [{"url": URL, "title": "A page"}], "findings": [{"text": "It is so.", "sources": [URL]}]}
SNAPSHOT = {"document": "a/plan.md", "source_hash": "0" * 64, "text": "# Plan\n"}
ANSWERING = {**BRIEFED, "evidence_job": "0" * 8 + "-0000" * 3 + "-" + "0" * 12, "snapshot": SNAPSHOT,
             "evidence": FOUND}
REPORT = {"title": "On it", "sections": [{"heading": "Known", "text": "It is so.", "sources": [URL]}]}
OFFER = {"offer_id": "o-1", "generation": 2, "sources": [{"id": "m-1", "text": "Ask about it."}]}


def definition(type_: str) -> Any:
    return registry().exact(type_, 1)


@pytest.fixture(autouse=True)
def _owner(request: pytest.FixtureRequest) -> None:
    """The untenanted tenant has an owner, where there are rows at all: research runs under one."""
    if "database" in request.fixturenames:
        request.getfixturevalue("database")
        owners.put(tenancy.tenant(tenancy.workspace(), None), "vault/research", by="test")


def refused(type_: str, given: Any, side: str = "input") -> Invalid:
    with pytest.raises(Invalid) as refusal:
        getattr(definition(type_), side).normal(given)
    return refusal.value


# --- contracts -----------------------------------------------------------------------------------------------------


def test_the_definitions_say_what_the_contract_says() -> None:
    """B44, E8, E9: credits, time, origins, stages; strict leases, retries from 1 s to 300 s, kept for ever."""
    for type_, credits, timeout_s, stages in ((EVIDENCE, 30, 300, ["search"]), (ANSWER, 60, 600, ["analyze", "write"]),
                                              (BRIEF, 30, 300, ["prepare"])):
        d = definition(type_)
        assert (d.max_ai_credits, d.timeout_s, list(d.stages)) == (credits, timeout_s, stages)
        assert (d.origins, d.executor, d.worker_group) == ({"user", "planner"}, "external", "research")
        assert (d.strict_lease, d.lapse_counts, d.retention, d.share_credential) == (True, False, None, False)
        assert (d.retry.base_delay_s, d.retry.max_delay_s) == (1, 300)
    assert research.SEARCH_S == engines.SEARCH_S == 60
    assert research.SEARCH_TIMEOUT == "web_search_timeout"


def test_each_job_runs_with_the_credential_that_its_setting_names() -> None:
    """B35, E9: by default research with its tenant's owner's, and a document is described with nobody's."""
    assert {definition(type_).credential for type_ in (EVIDENCE, ANSWER, BRIEF)} == {"owner"}
    assert {d.credential for d in research.definitions(Switches(), "none")} == {"none"}
    assert definition("document-summary").credential == "none"


def test_saphira_jobs_take_any_object_and_are_claimed_five_times_at_most() -> None:
    """E9, D3, D5: the one permitted open codec."""
    d = definition("saphira-job")
    assert (d.max_claims, d.executor, d.worker_group) == (5, "external", "saphira")
    assert json.loads(d.input.normal({"any": [1, {"thing": None}]})) == {"any": [1, {"thing": None}]}
    assert refused("saphira-job", [1]).reason_code == "invalid_input"
    opaque = [d.type for d in registry() if type(d.input).__name__ == "Opaque" and d.type in JOBSITES]
    assert opaque == ["saphira-job"]


JOBSITES = {"noop", "document-summary", "saphira-job", EVIDENCE, ANSWER, BRIEF} | {
    d.type for d in registry() if d.type.startswith("factory.")}


# --- codecs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [
    "document", "snapshot", "source_hash", "root", "text", "context", "history", "evidence", "plan"])
def test_evidence_refuses_every_field_of_a_document(field: str) -> None:
    """E15, B44: private context and the public web never meet; evidence has the brief and nothing else."""
    assert json.loads(definition(EVIDENCE).input.normal(BRIEFED)) == BRIEFED
    for value in (SNAPSHOT, "# text", None):
        assert refused(EVIDENCE, {**BRIEFED, field: value}).field == f"/{field}"


@pytest.mark.parametrize(("field", "value"), [
    ("brief", ""), ("brief", " \n"), ("brief", "x" * 8_001), ("brief", None), ("request_id", ""),
    ("request_id", "a:b"), ("request_id", "x" * 65), ("turn_id", "../x"), ("turn_id", 1),
])
def test_a_brief_out_of_bounds_is_refused(field: str, value: Any) -> None:
    """B8; and the longest one fits into the bytes that are allowed, whatever its characters."""
    assert refused(EVIDENCE, {**BRIEFED, field: value}).field == f"/{field}"
    assert definition(EVIDENCE).input.normal({**BRIEFED, "brief": "\U0001f680" * 8_000})


@pytest.mark.parametrize("url", [
    "http://example.org/", "https://example.org", "https://Example.org/", "https://user@example.org/",
    "https://example.org:443/", "https://example.org/#x", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/",
    "https://localhost/", "https://db.internal/", "https://printer.local/", "https://intranet/", "https://example/x",
    "https://example.org/a b", "https://example.org/ü", "https://exämple.org/", "javascript:alert(1)",
    "https://example.org/<x>", "https://example.org/" + "x" * 2_000, "//example.org/", "https:/example.org/",
    "https://example.org./", "https://-x.org/", "https://2130706433/", "https://0x7f.1/", "HTTPS://example.org/",
    "https://example.org/\n", "",
])
def test_a_source_is_a_canonical_public_https_address(url: str) -> None:
    """B44: no login, port, fragment, private or numbered host; written as on the wire."""
    assert refused(EVIDENCE, {"sources": [{"url": url, "title": "x"}], "findings": []}, "artifact").field == (
        "/sources/0/url")


def test_evidence_relates_findings_to_sources() -> None:
    """B8, B44: provenance is checked, not trusted."""
    artifact = definition(EVIDENCE).artifact
    assert json.loads(artifact.normal(FOUND)) == FOUND
    assert json.loads(artifact.normal({"sources": [], "findings": []})) == {"sources": [], "findings": []}
    for bad, message in (
        ({**FOUND, "sources": FOUND["sources"] * 2}, "named twice"),
        ({**FOUND, "findings": [{"text": "x", "sources": ["https://example.org/b"]}]}, "cites what is no source"),
    ):
        assert message in refused(EVIDENCE, bad, "artifact").message
    assert refused(EVIDENCE, {**FOUND, "findings": [{"text": "x", "sources": []}]}, "artifact").field == (
        "/findings/0/sources")
    assert refused(EVIDENCE, {**FOUND, "prose": "x"}, "artifact").field == "/prose"


@pytest.mark.parametrize(("given", "field"), [
    ({**ANSWERING, "evidence_job": "7"}, "/evidence_job"), ({**ANSWERING, "web": True}, "/web"),
    ({**ANSWERING, "snapshot": {**SNAPSHOT, "document": "../x.md"}}, "/snapshot/document"),
    ({**ANSWERING, "snapshot": {**SNAPSHOT, "root": "/srv"}}, "/snapshot/root"),
    ({**ANSWERING, "history": [{"role": "system", "text": "x"}]}, "/history/0/role"),
    ({**ANSWERING, "history": [{"role": "user", "text": "x"}] * 33}, "/history"),
    ({k: v for k, v in ANSWERING.items() if k != "evidence"}, "/evidence"),
])
def test_an_answer_takes_snapshot_evidence_and_history_alone(given: Any, field: str) -> None:
    """B44."""
    assert json.loads(definition(ANSWER).input.normal(ANSWERING))["history"] == []
    assert refused(ANSWER, given).field == field


@pytest.mark.parametrize(("type_", "given", "side", "field"), [
    (ANSWER, {**REPORT, "sections": []}, "artifact", "/sections"),
    (ANSWER, {**REPORT, "title": "two\nlines"}, "artifact", "/title"),
    (ANSWER, {**REPORT, "sections": [{"heading": "h", "text": " "}]}, "artifact", "/sections/0/text"),
    (BRIEF, {**OFFER, "generation": 0}, "input", "/generation"), (BRIEF, {**OFFER, "sources": []}, "input", "/sources"),
    (BRIEF, {**OFFER, "tools": []}, "input", "/tools"),
    (BRIEF, {"offer_id": "o", "generation": 1, "brief": "", "sources": []}, "artifact", "/brief"),
])
def test_reports_and_briefs_have_bounds(type_: str, given: Any, side: str, field: str) -> None:
    """B8, B44."""
    assert refused(type_, given, side).field == field


def test_chosen_sources_are_distinct() -> None:
    """B8: relations are validated."""
    assert definition(BRIEF).input.normal(OFFER)
    assert "named twice" in refused(BRIEF, {**OFFER, "sources": OFFER["sources"] * 2}).message


# --- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "background", "web", "private", "public"), [
    (True, True, True, True, True), (True, True, False, True, False), (False, True, True, False, False),
    (False, True, False, False, False), (True, False, True, False, False), (False, False, False, False, False),
])
def test_the_matrix_of_flags_says_what_runs(
        agent: bool, background: bool, web: bool, private: bool, public: bool) -> None:
    """B43, E7: without AGENT or BACKGROUND_JOBS nothing runs, and WEB_RESEARCH is off with them."""
    on = Switches(agent, background, web)
    found = {d.type: (d.enabled, d.runs) for d in research.definitions(on)}
    assert found == {EVIDENCE: (public, public), ANSWER: (private, private), BRIEF: (private, private)}
    assert on.private is private


@pytest.mark.parametrize(("environment", "off"), [
    ({"AGENT": "off"}, {"document-summary", EVIDENCE, ANSWER, BRIEF}),
    ({"WEB_RESEARCH": "off", "AGENT": "OFF", "BACKGROUND_JOBS": "false", "SUMMARY_CREDENTIAL": "none"}, {EVIDENCE}),
])
def test_only_the_very_word_off_switches_off(environment: dict[str, str], off: set[str]) -> None:
    """B43: read when the site starts; `noop` and `factory` are not of the family."""
    code = ("import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'jobsite.settings'; import django; django.setup();"
            "from jobs.conf import registry; print(*[d.type for d in registry() if not (d.enabled and d.runs)])")
    path = {k: v for k, v in os.environ.items() if not k.startswith("JOBS_")}
    answer = subprocess.run([sys.executable, "-c", code], env={**path, **environment}, capture_output=True, text=True,
                            timeout=60, check=True)
    assert set(answer.stdout.split()) == off


def test_what_is_switched_off_keeps_its_rows_and_takes_no_new_ones(driver: Driver) -> None:
    """B43: nothing is deleted; a claim leaves what waits alone, an enqueue is refused by name."""
    id_ = intake.enqueue(EVIDENCE, BRIEFED).id
    d = definition(EVIDENCE)
    for name in ("enabled", "runs"):
        object.__setattr__(d, name, False)
    try:
        with pytest.raises(Refused) as refusal:
            intake.enqueue(EVIDENCE, {**BRIEFED, "request_id": "r-2"})
        assert refusal.value.reason_code == "definition_disabled"
        types = [(d.type, d.version) for d in registry() if d.runs]
        assert driver.claim(10, claimer("research", types=types)) == []
    finally:
        for name in ("enabled", "runs"):
            object.__setattr__(d, name, True)
    assert Job.objects.get(pk=id_).state == State.QUEUED
    assert len(driver.claim(10, claimer("research"))) == 1


# --- the chain -----------------------------------------------------------------------------------------------------


@pytest.fixture
def question(tmp_path: Path) -> Question:
    (tmp_path / "plan.md").write_text("# Plan\n\nPrivate words.\n")
    return Question("r-1", "plan.md", str(tmp_path))


def settle(driver: Driver, outcome: Any, type_: str = EVIDENCE) -> Job:
    [held] = driver.claim(10, claimer("research"))
    assert held.type == type_
    driver.settle(held, outcome)
    return Job.objects.get(pk=held.id)


def tell() -> None:
    """What a worker does with the job that tells of an end."""
    for job in Job.objects.filter(type="job-ended", state="queued"):
        reconciling.job_ended(None, **json.loads(job.input))


def test_completed_evidence_asks_for_its_answer_whose_artifact_is_the_child(driver: Driver, question: Question) -> None:
    """B45: evidence, answer, artifact, child; the card tells each step, and evidence knows nothing of the document."""
    asked = chain.ask(question, "What is known?")
    assert reading.card(question).state == "queued"
    assert "plan.md" not in Job.objects.get(pk=asked.id).input
    [held] = driver.claim(10, claimer("research"))
    assert reading.card(question).state == "searching"
    driver.settle(held, done(FOUND))
    tell()
    answer = Job.objects.get(type=ANSWER)
    given = AnswerAsked.model_validate_json(answer.input)
    assert (given.evidence_job, given.snapshot.document, given.brief) == (asked.id, "plan.md", "What is known?")
    assert "Private words" in given.snapshot.text
    assert reading.card(question).state == "analyzing"
    settle(driver, done(REPORT), ANSWER)
    card = reading.card(question)
    assert (card.state, card.generation, card.reason) == ("ready", 1, None)
    assert card.child is not None
    assert (card.child.request_id, card.child.parent, card.child.sources) == ("r-1", "plan.md", [URL])
    assert card.child.mdx == ("# On it\n\n## Known\n\nIt is so. [1](https://example.org/a)\n\n## Sources\n\n"
                              "1. [A page](https://example.org/a)\n")
    for job in Job.objects.filter(type__startswith="research"):
        check(job.pk)


def test_asking_twice_is_one_request_and_told_twice_is_one_answer(driver: Driver, question: Question) -> None:
    """B15, B34: at least once is told, once is done; also where the document changes in between."""
    assert [chain.ask(question, "What?").repeated for _ in range(2)] == [False, True]
    evidence = settle(driver, done(FOUND))
    tell()
    (Path(question.root) / "plan.md").write_text("# Another plan\n")
    tell()
    assert [reading.card(question).state for _ in range(2)] == ["analyzing"] * 2
    assert Job.objects.filter(type=ANSWER).count() == 1
    assert chain.answer_of(evidence) is not None


def test_a_process_that_dies_before_it_tells_is_repaired_by_one_read(driver: Driver, question: Question) -> None:
    """B34, E15: nobody was told, the next reader asks for the answer, and the teller that comes late finds it."""
    chain.ask(question, "What?")
    settle(driver, done(FOUND))
    assert Job.objects.filter(type=ANSWER).count() == 0
    assert reading.card(question).state == "analyzing"
    assert Job.objects.filter(type=ANSWER).count() == 1
    tell()
    assert Job.objects.filter(type=ANSWER).count() == 1


def test_who_asks_second_with_another_document_finds_the_first_answer(
        driver: Driver, question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15, B45: between the look and the enqueue another asked, and the document changed: theirs is the job."""
    chain.ask(question, "What?")
    evidence = settle(driver, done(FOUND))
    first = chain.ask_answer(evidence)
    (Path(question.root) / "plan.md").write_text("# Another plan\n")
    look, looks = chain.answer_of, []
    monkeypatch.setattr(chain, "answer_of", lambda job: look(job) if looks else looks.append(job))
    again = chain.ask_answer(evidence)
    assert first is not None
    assert again is not None
    assert (again.pk, len(looks)) == (first.pk, 1)


def test_readers_and_the_teller_at_the_same_moment_make_one_answer(database, question: Question) -> None:
    """B34, B45: one key, whoever comes first; the document changes meanwhile."""
    driver = Driver()
    for n in range(3):
        mine = Question(f"r-{n}", question.document, question.root)
        chain.ask(mine, "What?")
        settle(driver, done(FOUND))
        path = Path(question.root) / "plan.md"

        def read(mine: Question = mine, path: Path = path) -> str:
            path.write_text(f"# {time.monotonic()}\n")
            return reading.card(mine).state

        assert set(together([read] * 4)) == {"analyzing"}
        assert Job.objects.filter(type=ANSWER, target__key__contains=f":r-{n}:").count() == 1
        settle(driver, done(REPORT), ANSWER)


@pytest.mark.parametrize(("outcome", "state"), [(Failed("web_search_timeout", retryable=False), "failed"),
                                                (None, "cancelled")])
def test_failed_or_cancelled_evidence_publishes_no_child(
        driver: Driver, question: Question, outcome: Any, state: str) -> None:
    """B45: and an explicit retry keeps the request and its brief, in a new generation; two at once are one."""
    chain.ask(question, "What is known?")
    if outcome is None:
        chain.cancel(question, by="test")
    else:
        settle(driver, outcome)
    tell()
    assert reading.card(question).state == state
    assert Job.objects.filter(type=ANSWER).count() == 0
    assert len({id_.id for id_ in together([lambda: chain.retry(question)] * 3)}) == 1
    card = reading.card(question)
    assert (card.state, card.generation, card.request_id) == ("queued", 2, "r-1")
    assert {json.loads(job.input)["brief"] for job in Job.objects.filter(type=EVIDENCE)} == {"What is known?"}
    settle(driver, done(FOUND))
    settle_answer = reading.card(question)
    assert settle_answer.state == "analyzing"
    settle(driver, done(REPORT), ANSWER)
    assert reading.card(question).state == "ready"


def test_research_that_is_going_on_or_ready_is_not_asked_for_again(driver: Driver, question: Question) -> None:
    """B45: optimistic guards; a failed answer may be, and begins with new evidence."""
    with pytest.raises(NotFound):
        chain.retry(question)
    with pytest.raises(NotFound):
        reading.card(question)
    chain.ask(question, "What?")
    with pytest.raises(Conflict) as refusal:
        chain.retry(question)
    assert refusal.value.reason_code == "research_not_retryable"
    settle(driver, done(FOUND))
    assert reading.card(question).state == "analyzing"
    with pytest.raises(Conflict):
        chain.retry(question)
    settle(driver, Failed("credits_refused", retryable=False), ANSWER)
    assert (reading.card(question).state, reading.card(question).reason) == ("failed", "terminal_error")
    assert not chain.retry(question).repeated
    assert reading.card(question).generation == 2


def test_an_older_generation_of_evidence_asks_for_nothing(driver: Driver, question: Question) -> None:
    """B16, E14.6: told late, of evidence that a newer request has replaced."""
    chain.ask(question, "What?")
    old = settle(driver, done(FOUND))
    intake.enqueue(EVIDENCE, BRIEFED, target=question.target)
    tell()
    assert chain.ask_answer(Job.objects.select_related("target", "tenant", "artifact").get(pk=old.pk)) is None
    assert Job.objects.filter(type=ANSWER).count() == 0


def test_a_report_that_cites_what_the_evidence_does_not_hold_is_no_child(driver: Driver, question: Question) -> None:
    """B44: refused at publication, and again by whoever reads."""
    stranger = {**REPORT, "sections": [{**REPORT["sections"][0], "sources": ["https://example.org/b"]}]}
    committed: list[str] = []
    chain.ask(question, "What?")
    settle(driver, done(FOUND))
    assert reading.card(question).state == "analyzing"
    answer = settle(driver, done(stranger), ANSWER)
    assert (reading.card(question).state, reading.card(question).reason) == ("failed", "citation_refused")
    run = SimpleNamespace(input=AnswerAsked.model_validate_json(answer.input), job_id=str(answer.pk))
    with pytest.raises(JobError) as refusal:
        chain.publish(run, json.dumps(stranger), lambda: committed.append("x"))
    assert (refusal.value.reason_code, refusal.value.retryable, committed) == ("citation_refused", False, [])
    chain.publish(run, json.dumps(REPORT), lambda: committed.append("x"))
    Tenant.objects.filter(pk=answer.tenant_id).update(archived_at=clock.now())
    with pytest.raises(JobError) as refusal:
        chain.publish(run, json.dumps(REPORT), lambda: committed.append("x"))
    assert (refusal.value.reason_code, committed) == ("parent_archived_refused", ["x"])
    Tenant.objects.filter(pk=answer.tenant_id).update(archived_at=None)


def test_a_parent_that_is_gone_fails_the_card_and_not_the_reader(driver: Driver, question: Question) -> None:
    """B45: no parent, no child; a retry works once it is back."""
    chain.ask(question, "What?")
    settle(driver, done(FOUND))
    (Path(question.root) / "plan.md").unlink()
    assert (reading.card(question).state, reading.card(question).reason) == ("failed", "source_missing")
    (Path(question.root) / "plan.md").write_text("# Back\n")
    assert reading.card(question).state == "analyzing"


def test_an_archived_parent_takes_no_new_research_and_gets_no_child(driver: Driver, question: Question) -> None:
    """B37: what has begun settles, nobody fails for it, and once it is back the next reader goes on."""
    chain.ask(question, "What?")
    evidence = settle(driver, done(FOUND))
    Tenant.objects.filter(pk=evidence.tenant_id).update(archived_at=clock.now())
    for ask in (lambda: chain.ask(Question("r-2", question.document, question.root), "What?"),
                lambda: chain.ask_answer(evidence)):
        with pytest.raises(Refused) as refusal:
            ask()
        assert refusal.value.reason_code == "tenant_archived"
    chain.collected(Ended(str(evidence.pk), EVIDENCE, 1, State.COMPLETED, None, 1, None, None, None))
    assert (reading.card(question).state, reading.card(question).reason) == ("failed", "tenant_archived")
    Tenant.objects.filter(pk=evidence.tenant_id).update(archived_at=None)
    assert reading.card(question).state == "analyzing"


def test_a_user_cancels_what_a_user_asked_for(driver: Driver, question: Question) -> None:
    """B41: active research of user origin alone."""
    with pytest.raises(NotFound):
        chain.cancel(question, by="test")
    chain.ask(question, "What?", door=intake.Door("planner", "planner", "planner"))
    with pytest.raises(Refused) as refusal:
        chain.cancel(question, by="test")
    assert refusal.value.reason_code == "not_a_users_research"
    theirs = Question("r-2", question.document, question.root)
    chain.ask(theirs, "What?")
    chain.cancel(theirs, by="test")
    assert (reading.card(theirs).state, reading.card(theirs).reason) == ("cancelled", "cancelled")
    settle(driver, done(FOUND))
    with pytest.raises(Refused):
        chain.cancel(question, by="test")


@pytest.mark.parametrize(("document", "root", "field"), [
    ("../x.md", "", "document"), ("x.txt", "", "document"), ("x.md", "relative", "root"), ("x.md", "/a//b", "root"),
    ("x.md", "/a/../b", "root")])
def test_a_question_is_about_a_document_inside_a_folder(document: str, root: str, field: str) -> None:
    """B8: what is stored as its target reads back as it was."""
    with pytest.raises(Invalid) as refusal:
        Question("r", document, root)
    assert refusal.value.field == field


def test_research_joins_the_callers_transaction(driver: Driver, question: Question) -> None:
    """DESIGN 4: it is asked for if and only if the caller commits."""
    with transaction.atomic():
        chain.ask(question, "What?")
        transaction.set_rollback(True)
    assert Job.objects.filter(type=EVIDENCE).count() == 0


# --- briefs and reports --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("told", "generation", "shown"), [
    ({"offer_id": "o-1", "generation": 2, "brief": "Ask.", "sources": ["m-1"]}, 2, True),
    ({"offer_id": "o-1", "generation": 2, "brief": "Ask.", "sources": ["m-1"]}, 3, False),
    ({"offer_id": "o-1", "generation": 1, "brief": "Ask.", "sources": ["m-1"]}, 2, False),
    ({"offer_id": "o-2", "generation": 2, "brief": "Ask.", "sources": []}, 2, False),
    ({"offer_id": "o-1", "generation": 2, "brief": "Ask.", "sources": ["m-2"]}, 2, False),
])
def test_a_brief_is_shown_for_its_offer_generation_and_chosen_sources(
        driver: Driver, told: dict[str, Any], generation: int, shown: bool) -> None:
    """B44: source ids and the offer's generation are checked before anybody sees it."""
    intake.enqueue(BRIEF, OFFER, target="o-1")
    job = settle(driver, done(told), BRIEF)
    assert (reading.prepared(job, generation) is not None) is shown


@pytest.mark.parametrize(("text", "shown"), [
    ("<script>alert(1)</script>", "&#60;script&#62;alert(1)&#60;/script&#62;"),
    ("{process.exit()}", "&#123;process.exit()&#125;"),
    ("import x from 'y'", "&#105;mport x from 'y'"), ("export const x", "&#101;xport const x"),
    ("[x](https://evil.example/)", "&#91;x&#93;(https&#58;//evil.example/)"),
    ("see https://evil.example/ or www.evil.example", "see https&#58;//evil.example/ or www&#46;evil.example"),
    ("# no heading", "&#35; no heading"), ("- item", "&#45; item"), ("1. item", "1&#46; item"),
    ("&lt;b&gt;", "&#38;lt;b&#38;gt;"), ("`c` *x* _y_ |", "&#96;c&#96; &#42;x&#42; &#95;y&#95; &#124;"),
    ("~z~ $m$ !", "&#126;z&#126; &#36;m&#36; &#33;"), ("plain, with (brackets).", "plain, with (brackets)."),
])
def test_text_of_a_model_is_text(text: str, shown: str) -> None:
    """B44, B45: in canonical MDX nothing of it runs, and only retained sources are links."""
    assert report.escaped(text) == shown


def test_a_report_numbers_its_sources_and_links_only_them() -> None:
    """B45: in the order in which they are cited, each once."""
    other = "https://example.org/b_(c)"
    evidence = Evidence.model_validate({"sources": [{"url": URL, "title": "A"}, {"url": other, "title": "[B]"}],
                                        "findings": []})
    told = Report.model_validate({"title": "{T}", "sections": [
        {"heading": "One", "text": "First.\nstill first\n\nimport second", "sources": [other, URL]},
        {"heading": "Two", "text": "Third.", "sources": [other]}]})
    assert report.mdx(told, list(evidence.sources)) == (
        "# &#123;T&#125;\n\n## One\n\nFirst. still first\n\n&#105;mport second"
        " [1](https://example.org/b_%28c%29) [2](https://example.org/a)\n\n## Two\n\nThird."
        " [1](https://example.org/b_%28c%29)\n\n## Sources\n\n1. [&#91;B&#93;](https://example.org/b_%28c%29)\n"
        "2. [A](https://example.org/a)\n")
