"""`document-summary@1`: its contract, when it may publish, and what the catalogue shows (B44)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.conf import registry
from jobs.errors import Invalid, Refused
from jobs.models import Artifact, Job, Receipt
from jobs.outcomes import Failed
from jobs.services import intake
from jobs.worker.context import Run
from jobs.worker.executor import PUBLISHED, Result, run_sync
from jobsite.definitions import documents
from jobsite.documents import sources
from jobsite.documents.catalogue import descriptions
from jobsite.documents.describing import EMPTY, describe
from tests.driver import Driver, refused

# --- input and artifact --------------------------------------------------------------------------------------------


GOOD = {"document": "a/b.md", "root": "/srv", "revision": 3, "source_hash": "0" * 64, "generator": 1,
        "output": "description"}


def definition():
    return registry().exact(documents.TYPE, 1)


def test_the_input_holds_revision_hash_generator_and_marker_and_never_the_source() -> None:
    """B44, E9: the persisted input; unknown fields, a source among them, are refused (B8)."""
    assert json.loads(definition().input.normal(GOOD)) == GOOD
    with pytest.raises(Invalid):
        definition().input.normal({**GOOD, "source": "# text"})


@pytest.mark.parametrize(("field", "value"), [
    ("document", "../x.md"), ("document", "/etc/x.md"), ("document", "a//b.md"), ("document", "a/./b.md"),
    ("document", "passwd"), ("document", "a\nb.md"), ("document", "x" * 400 + ".md"), ("document", "a\\b.md"),
    ("root", "relative"), ("root", "/a/../etc"), ("root", "/" + "x" * 300), ("revision", -1), ("revision", True),
    ("source_hash", "0" * 63), ("source_hash", "0" * 64 + "\n"), ("source_hash", "G" * 64), ("generator", 0),
    ("output", "summary"),
])
def test_an_input_out_of_bounds_is_refused(field: str, value: object) -> None:
    """B8: exact fields with bounds; a document lies in its folder and is Markdown."""
    with pytest.raises(Invalid) as refusal:
        definition().input.normal({**GOOD, field: value})
    assert refusal.value.faults[0]["field"] == f"/{field}"


def test_a_description_is_one_physical_line_of_at_most_4000_code_points() -> None:
    """B44: the broad limits of 4,000 code points and 16 KiB, which the widest characters fit in."""
    fits = {"output": "description", "description": "\U0001f680" * 4_000}
    assert len(definition().artifact.normal(fits).encode()) <= 16 * 1024
    for line in ("", "x" * 4_001, "two\nlines", "two\u2028lines", "two\x85lines"):
        with pytest.raises(Invalid):
            definition().artifact.normal({**fits, "description": line})


def test_legacy_inputs_and_artifacts_still_parse() -> None:
    """B44: markerless inputs and `summary` artifacts of version 1 stay readable; there is no version 2."""
    legacy = {name: value for name, value in GOOD.items() if name != "output"}
    assert definition().input.decode(definition().input.normal(legacy)).output is None
    assert json.loads(definition().artifact.normal({"summary": "old"})) == {"summary": "old"}
    assert [d.version for d in registry() if d.type == documents.TYPE] == [1]


def test_the_definition_says_what_the_contract_says() -> None:
    """B44: origins scheduler and planner, no credential, 64 credits, 16 KiB, kept for ever (E9)."""
    d = definition()
    assert (d.origins, d.credential, d.max_ai_credits) == ({"scheduler", "planner"}, "none", 64)
    assert (d.max_artifact_bytes, d.retention, d.executor) == (16 * 1024, None, "thread")


# --- files ---------------------------------------------------------------------------------------------------------


def test_only_markdown_files_of_the_folder_itself_are_found(tmp_path: Path) -> None:
    """B44: hidden and foreign folders and links that lead out are left alone."""
    outside = tmp_path / "outside.md"
    inside = tmp_path / "docs"
    for name in ("a.md", "b/C.MARKDOWN", "z.txt", ".git/x.md", "node_modules/x.md", ".venv/x.md", "other/x.md"):
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_text("text")
    (inside / "other" / "pyvenv.cfg").touch()
    outside.write_text("secret")
    (inside / "link.md").symlink_to(outside)
    (inside / "near.md").symlink_to(inside / "a.md")
    (inside / "up").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe.md")
    assert list(sources.documents(inside)) == ["a.md", "near.md", "b/C.MARKDOWN"]


@pytest.mark.parametrize(("make", "code", "retryable"), [
    (lambda at, outside: None, "source_missing", False),
    (lambda at, outside: at.symlink_to(outside), "source_outside", False),
    (lambda at, outside: at.mkdir(), "source_unreadable", True),
    (lambda at, outside: os.mkfifo(at), "source_unfit", False),
])
def test_what_cannot_be_read_is_refused_with_a_code(tmp_path: Path, make, code: str, retryable: bool) -> None:
    """B25: safe, code-owned reasons; a pipe is never waited for."""
    outside, root = tmp_path / "outside.md", tmp_path / "docs"
    outside.write_text("secret")
    root.mkdir()
    make(root / "x.md", outside)
    with pytest.raises(documents.JobError) as refusal:
        sources.read(root, "x.md")
    assert (refusal.value.reason_code, refusal.value.retryable) == (code, retryable)


# --- jobs ----------------------------------------------------------------------------------------------------------


def ask(folder: Path, **options: object) -> list[str]:
    return [answer.id for answer in documents.enqueue_folder(folder, **options)]


def work(driver: Driver) -> Result:
    """Claim one job, run it as a worker does, and settle what the hook has not."""
    job = driver.claim_one()
    result = run_sync(definition(), job, Run(job, definition(), driver.claimer.by), driver.claimer.by)
    if result is not PUBLISHED:
        driver.settle(job, result)
    return result


def lines(folder: Path) -> dict[str, str]:
    return {d.document: d.description for d in descriptions(folder)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text("# Plan for A\n\nThe first thing that we do in the new year.\n")
    return tmp_path


FIRST = {"a.md": "Plan for A: The first thing that we do in the new year."}


def test_a_document_is_described_and_published(driver: Driver, folder: Path) -> None:
    """B33, B44: the hook commits, the artifact is marked, the catalogue shows it."""
    job_id, = ask(folder)
    assert work(driver) is PUBLISHED
    assert driver.state(job_id) == "completed"
    said = {"output": "description", "description": FIRST["a.md"]}
    assert json.loads(Artifact.objects.get(job_id=job_id).value) == said
    assert lines(folder) == FIRST
    shown = descriptions(folder)[0]
    assert (shown.job_id, shown.current, shown.generator) == (job_id, True, documents.GENERATOR)
    assert json.loads(driver.job(job_id).progress) == {"attempt": 1, "event": "started", "stage": "describe"}


def test_a_blank_document_is_told_empty(driver: Driver, tmp_path: Path) -> None:
    """B44: `Empty document`."""
    (tmp_path / "blank.md").write_text("\n \n")
    ask(tmp_path)
    work(driver)
    assert lines(tmp_path) == {"blank.md": EMPTY}


def test_the_same_text_is_asked_about_once(driver: Driver, folder: Path) -> None:
    """B15, B44: the key names the request, so a repeat makes no second job."""
    first = documents.enqueue_folder(folder)
    again = documents.enqueue_folder(folder)
    assert [a.id for a in again] == [a.id for a in first]
    assert again[0].repeated
    key = Job.objects.get().idempotency_key
    assert key.startswith("description-v1:")
    assert len(key) <= 200
    assert key.isascii()


def test_a_changed_text_supersedes_the_older_request(driver: Driver, folder: Path) -> None:
    """B14, B16: the target is the document, stored with its type; the newer generation ends the older job."""
    old, = ask(folder)
    (folder / "a.md").write_text("# Plan for B\n\nThe second thing that we do in the new year.\n")
    new, = ask(folder)
    assert driver.state(old) == "superseded"
    assert driver.job(new).target.key == f"document-summary:{folder}/a.md"
    assert driver.job(new).generation == 2
    assert work(driver) is PUBLISHED
    assert lines(folder) == {"a.md": "Plan for B: The second thing that we do in the new year."}


def test_a_change_between_reading_and_publishing_is_not_published(driver: Driver, folder: Path, monkeypatch) -> None:
    """B33: the hook looks at the source again before it commits; retryable, since the text may come back."""
    def describe_while_somebody_saves(text: str, path: str) -> str:
        (folder / "a.md").write_text("# Something else\n")
        return describe(text, path)

    job_id, = ask(folder)
    monkeypatch.setattr(documents, "describe", describe_while_somebody_saves)
    result = work(driver)
    assert isinstance(result, Failed)
    assert (result.code, result.retryable) == ("job_changed", True)
    assert driver.state(job_id) == "queued"
    assert not Artifact.objects.filter(job_id=job_id).exists()
    assert lines(folder) == {}


def test_a_document_that_went_before_publishing_is_a_dead_letter(driver: Driver, folder: Path, monkeypatch) -> None:
    """B33: the hook sees that the source is gone; requeued after it is back, the job completes."""
    text = (folder / "a.md").read_text()

    def describe_while_somebody_deletes(text: str, path: str) -> str:
        (folder / "a.md").unlink()
        return describe(text, path)

    job_id, = ask(folder)
    with monkeypatch.context() as patched:
        patched.setattr(documents, "describe", describe_while_somebody_deletes)
        result = work(driver)
    assert isinstance(result, Failed)
    assert (result.code, result.retryable) == ("source_missing", False)
    assert driver.state(job_id) == "failed"
    (folder / "a.md").write_text(text)
    driver.requeue(job_id)
    assert work(driver) is PUBLISHED
    assert lines(folder) == FIRST


def test_a_superseded_job_cannot_publish(driver: Driver, folder: Path) -> None:
    """B16, B23, E14.6: the older generation's late commit is refused and changes nothing."""
    old, = ask(folder)
    job = driver.claim_one()
    new, = ask(folder, revision=1)
    result = run_sync(definition(), job, Run(job, definition(), driver.claimer.by), driver.claimer.by)
    assert isinstance(result, Failed)
    refused(driver.settle(job, result), "stale_claim")
    assert (driver.state(old), driver.state(new)) == ("superseded", "queued")
    assert lines(folder) == {}


def test_the_old_description_stays_until_a_newer_one_completes(driver: Driver, folder: Path) -> None:
    """B34, B44: visible while newer work is pending or failed; read twice it is the same."""
    ask(folder)
    work(driver)
    (folder / "a.md").write_text("# Plan for C\n\nThe third thing that we do in the new year.\n")
    newer, = ask(folder)
    assert lines(folder) == FIRST
    assert not descriptions(folder)[0].current
    (folder / "a.md").unlink()
    work(driver)
    assert driver.state(newer) == "failed"
    assert descriptions(folder) == descriptions(folder)
    assert lines(folder) == FIRST
    (folder / "a.md").write_text("# Plan for D\n\nThe fourth thing that we do in the new year.\n")
    ask(folder)
    work(driver)
    assert lines(folder) == {"a.md": "Plan for D: The fourth thing that we do in the new year."}


def test_a_legacy_request_gets_its_summary_and_the_catalogue_ignores_it(driver: Driver, folder: Path) -> None:
    """B44: markerless work still runs; its artifact hides no description, though it is of a newer generation."""
    ask(folder)
    work(driver)
    asked = documents.request(str(folder), "a.md", sources.read(folder, "a.md").hash, 7)
    del asked.input["output"]
    legacy = intake.enqueue_many([asked], door=documents.DOOR)[0].id
    assert work(driver) is PUBLISHED
    assert json.loads(Artifact.objects.get(job_id=legacy).value) == {"summary": FIRST["a.md"]}
    assert lines(folder) == FIRST


def test_descriptions_of_other_folders_and_tenants_are_not_shown(driver: Driver, folder: Path) -> None:
    """B16, E2: targets are scoped by tenant, and a folder's name is no prefix of another's."""
    inner = folder / "a"
    inner.mkdir()
    (folder / "a_md").mkdir()
    (inner / "b.md").write_text("# Plan for inner\n\nSomething that is inside of something else.\n")
    ask(inner)
    ask(folder, tenant="acme")
    for _ in range(3):
        work(driver)
    assert list(lines(inner)) == ["b.md"]
    assert lines(folder / "a_md") == {}
    assert lines(folder) == {"a/b.md": lines(inner)["b.md"]}
    assert sorted(d.document for d in descriptions(folder, tenant="acme")) == ["a.md", "a/b.md"]


def test_a_user_may_not_ask_for_a_description(driver: Driver, folder: Path) -> None:
    """B13, B44: the door stamps the origin, and users have none for this: a request over HTTP reads no file."""
    asked = documents.request(str(folder), "a.md", "0" * 64)
    with pytest.raises(Refused) as refusal:
        intake.enqueue_many([asked])
    assert refusal.value.reason_code == "origin_forbidden"
    assert not Job.objects.exists()


def test_progress_and_errors_hold_nothing_of_the_text(driver: Driver, folder: Path) -> None:
    """B31, E15: no private text in progress, reasons and receipts; the artifact alone has the line."""
    (folder / "a.md").write_text("# Hush\n\nThe sekret word is told in this sentence alone.\n")
    job_id, = ask(folder)
    work(driver)
    job = driver.job(job_id)
    bodies = list(Receipt.objects.filter(job_id=job_id).values_list("body", flat=True))
    assert "sekret" in Artifact.objects.get(job_id=job_id).value
    assert "sekret" not in repr((bodies, job.progress, job.input, job.subject, job.reason))


def test_a_folder_is_asked_about_up_to_a_limit(driver: Driver, tmp_path: Path) -> None:
    """B44: one job a document, bounded."""
    for name in "abcde":
        (tmp_path / f"{name}.md").write_text(name)
    assert len(ask(tmp_path, limit=3)) == 3
    assert list(Job.objects.order_by("pk").values_list("subject", flat=True)) == ["a.md", "b.md", "c.md"]
