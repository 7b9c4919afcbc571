"""What people do in the admin: preview, reason, confirmation, counts (C22 to C29, cases B13 and G03)."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import django
import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError

from jobs import RetryPolicy
from jobs.admin import across as across_module
from jobs.admin import answering
from jobs.models import BulkOperation, DeadLetter, Job, Receipt, Tenant
from jobs.services import dead_letters, intake
from jobs.services.triage import Triage
from jobs.states import State
from tests.driver import check, refused
from tests.edges.admin_people import act, confirm, quick, seed, somebody, told, url  # noqa: F401
from tests.making import archive, in_state


def letters(driver, count: int, **options) -> list[DeadLetter]:
    """Open dead letters of jobs that failed for good."""
    for _ in range(count):
        job_id = driver.enqueue(**options)
        driver.fail(driver.claim_one(), retryable=False)
        assert driver.state(job_id) == "failed"
    return list(DeadLetter.objects.order_by("-pk")[:count])


def text(answer) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_a_selection_is_previewed_with_count_sample_and_what_will_be_skipped(driver):
    """The preview says how many, which ten, and why some will not be done; it changes nothing."""
    made = letters(driver, 12)
    dead_letters.discard(made[0], by="user:else")
    answer = act(somebody("requeuer"), "deadletter", "requeue", *[letter.pk for letter in made])
    assert answer.status_code == 200
    shown = text(answer)
    assert "Requeue 12 dead letters?" in shown
    assert "1 (1 not dead-lettered) of them would be skipped" in shown
    assert "and 2 more" in shown
    assert answer.content.decode().count("will be requeued") == 9
    assert DeadLetter.objects.filter(resolution=None).count() == 11


def test_confirmed_letters_are_requeued_and_the_skipped_are_counted_by_reason(driver):
    """C27, E4: done, and skipped with the service's own reasons; one log entry for each that was done."""
    made = letters(driver, 4)
    stale = letters(driver, 1, target="thing")[0]
    driver.cancel(driver.enqueue(target="thing"))
    gone = letters(driver, 1, tenant="old")[0]
    archive("old")
    dead_letters.requeue(made[0], by="user:else")
    rows = [*made, stale, gone]
    answer = confirm(somebody("requeuer"), "deadletter", "requeue", *[letter.pk for letter in rows], 999_999)
    said = told(answer)[0]
    assert said.startswith("3 requeued, 4 skipped (")
    for part in ("1 not dead-lettered", "1 target superseded", "1 tenant archived", "1 gone"):
        assert part in said
    assert {driver.state(str(letter.job_id)) for letter in made[1:]} == {"queued"}
    assert LogEntry.objects.count() == 3
    for letter in rows:
        check(letter.job_id)


def test_a_letter_that_somebody_else_answered_after_the_preview_is_skipped(driver):
    """The service decides on the locked row, not the preview."""
    first, second = letters(driver, 2)
    client = somebody("discarder")
    preview = act(client, "deadletter", "discard", first.pk, second.pk)
    assert preview.context["ids"] == f"{first.pk},{second.pk}"
    dead_letters.requeue(second, by="user:else")
    assert told(confirm(client, "deadletter", "discard", first.pk, second.pk)) == [
        "1 discarded, 1 skipped (1 not dead-lettered)."]
    assert driver.state(str(second.job_id)) == "queued"
    # A form that is sent twice does nothing more.
    assert told(confirm(client, "deadletter", "discard", first.pk)) == ["0 discarded, 1 skipped (1 not dead-lettered)."]
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("reason", ["", "   ", "x" * 513, "a\x00b", "line\nbreak", "rtl\u202etext"])
def test_without_a_fit_reason_nothing_is_done_and_the_page_says_so(driver, reason):
    letter = letters(driver, 1)[0]
    answer = confirm(somebody("requeuer"), "deadletter", "requeue", letter.pk, reason=reason)
    assert answer.status_code == 200
    assert answer.context["form"].errors["reason"]
    assert answer.context["ids"] == str(letter.pk)
    assert driver.state(str(letter.job_id)) == "failed"


@pytest.mark.parametrize("ids", ["", "x", "1,x", "1;2", "1,\x00", ",".join(map(str, range(1_001))), "9" * 400])
def test_ids_that_cannot_be_are_a_clear_400_or_404(driver, ids):
    answer = somebody("requeuer").post(url("deadletter", "answer", "requeue"), {"ids": ids, "reason": "because"})
    assert answer.status_code in (302, 400, 404)
    assert somebody("requeuer").get(url("deadletter", "answer", "requeue"), {"id": ids}).status_code in (400, 404)


def test_an_answer_that_there_is_not_is_nothing(driver):
    assert somebody("root").get(url("deadletter", "answer", "delete"), {"id": 1}).status_code == 404
    assert somebody("root").get(url("job", "answer", "requeue"), {"id": 1}).status_code == 404


def test_the_way_back_leads_to_this_list_and_nowhere_else(driver):
    """No open redirect."""
    letter = letters(driver, 1)[0]
    client = somebody("requeuer")
    for asked in ("https://evil.example/", "//evil.example/admin/jobs/deadletter/", "/admin/logout/", "javascript:x()"):
        answer = client.post(url("deadletter", "answer", "requeue"),
                             {"ids": letter.pk, "reason": "because", "back": asked})
        assert answer["Location"] == url("deadletter")
    kept = url("deadletter") + "?answer=open"
    answer = client.post(url("deadletter", "answer", "requeue"), {"ids": letter.pk, "reason": "because", "back": kept})
    assert answer["Location"] == kept
    assert act(client, "deadletter", "requeue", letter.pk, query="?answer=requeued").context["back"] == (
        url("deadletter") + "?answer=requeued")


def finish() -> None:
    """Carry on every bulk operation to its end."""
    duty = Triage()
    for begun in BulkOperation.objects.all():
        while duty.carry_on(begun.pk, 500):
            pass


def across(client, preview, **more) -> Any:
    """Confirm what was asked of all that match."""
    kept = {name: preview.context[name] for name in ("across", "upto", "token", "back")}
    return client.post(preview.context["address"], {**kept, "reason": "because", **more}, follow=True)


def test_more_letters_than_one_confirmation_names_are_one_bulk_operation(driver):
    """case-G03: all that match, confirmed with their count; what comes later and what was answered stays."""
    seed(1_100, 1_050)
    first = DeadLetter.objects.first()
    dead_letters.discard(first, by="user:else")
    client = somebody("discarder")
    preview = act(client, "deadletter", "discard", first.pk, across=True, query="?answer=open")
    assert "Discard 1,049 dead letters?" in text(preview)
    assert not BulkOperation.objects.exists()
    assert "name=\"ids\"" not in preview.content.decode()
    later = letters(driver, 1)[0]
    assert across(client, preview, reason=" ").context["form"].errors["reason"]
    # A form that is sent twice begins nothing more.
    for _ in range(2):
        assert "has begun" in told(across(client, preview))[0]
    begun = BulkOperation.objects.get()
    assert (begun.expected, begun.by, begun.reason) == (1_049, "user:discarder", "because")
    assert LogEntry.objects.get().object_id == str(begun.pk)
    finish()
    begun.refresh_from_db()
    assert (begun.end, begun.done) == ("finished", 1_049)
    assert list(DeadLetter.objects.filter(resolved_at=None)) == [later]
    assert Receipt.objects.filter(kind="job.discarded").count() == 1_050


def test_more_jobs_than_one_confirmation_names_are_one_bulk_operation_on_the_lists_filters(driver):
    """case-G03: filters bind it; a search, which no operation can be told, is a thousand at a time as before."""
    for _ in range(6):
        driver.enqueue()
    kept = driver.enqueue(queue="chat")
    client, some = somebody("canceller"), Job.objects.first()
    with patch.object(across_module, "MOST", 5), patch.object(answering, "MOST", 5):
        preview = act(client, "job", "cancel", some.pk, across=True, query="?queue=collect&state=queued")
        assert "Cancel 6 jobs?" in text(preview)
        for query in ("?queue=collect&group=system", "?created=2026-99", "?answer=open"):
            assert across(client, preview, across=query[1:]).status_code == 400
        for broken in ({"upto": "x"}, {"upto": ""}, {"token": "x"}):
            assert across(client, preview, **broken).status_code == 400
        assert across(somebody("pauser"), preview).status_code == 403
        assert not BulkOperation.objects.exists()
        assert "has begun" in told(across(client, preview))[0]
        assert "across" not in act(client, "job", "cancel", some.pk, across=True, query="?q=echo").context
    finish()
    assert {job.state for job in Job.objects.exclude(pk=kept)} == {"cancelled"}
    assert driver.state(kept) == "queued"


def test_a_letter_is_answered_from_its_own_page(driver):
    """Django 6.1 has actions on that page; 5.2 gets a button with an address of its own."""
    letter = letters(driver, 1)[0]
    client = somebody("requeuer")
    page = client.get(url("deadletter", letter.pk, "change"))
    if django.VERSION >= (6, 1):
        assert 'name="CHANGE_FORM-action"' in page.content.decode()
        asked = client.post(url("deadletter", letter.pk, "change"), {
            "CHANGE_FORM-action": "requeue", "index": "0", "_selected_action": letter.pk})
        back = url("deadletter", letter.pk, "change")
    else:
        address = re.search(r'href="([^"]*answer/requeue/[^"]*)"', page.content.decode()).group(1)
        assert "answer/discard/" not in page.content.decode()
        asked = client.get(address.replace("&amp;", "&"))
        back = url("deadletter", letter.pk, "change")
    assert asked.status_code == 200
    assert "Requeue 1 dead letter?" in text(asked)
    answer = confirm(client, "deadletter", "requeue", letter.pk, back=asked.context["back"])
    assert answer.redirect_chain == [(back, 302)]
    assert told(answer) == ["1 requeued."]


def test_a_viewer_who_posts_the_action_of_a_letters_page_is_refused(driver):
    letter = letters(driver, 1)[0]
    for name in ("action", "CHANGE_FORM-action"):
        answer = somebody("viewer").post(url("deadletter", letter.pk, "change"), {
            name: "requeue", "index": "0", "_selected_action": letter.pk})
        assert answer.status_code == 403


def test_jobs_are_cancelled_paused_and_resumed(driver):
    """B19, E5: what has ended is skipped, by its reason."""
    client = somebody("root")
    done = in_state(driver, State.COMPLETED).id
    first, second = driver.enqueue(), driver.enqueue()
    assert told(confirm(client, "job", "pause", first, second, done)) == ["2 paused, 1 skipped (1 ended)."]
    assert told(confirm(client, "job", "resume", second, done)) == ["1 resumed, 1 skipped (1 ended)."]
    assert told(confirm(client, "job", "cancel", first, second, done)) == ["2 cancelled, 1 skipped (1 ended)."]
    assert told(confirm(client, "job", "cancel", first)) == ["0 cancelled, 1 skipped (1 cancelled already)."]
    for job_id in (first, second, done):
        check(job_id)


def test_a_pause_or_resume_means_the_job_as_the_confirmation_showed_it(driver):
    """B28: what has moved on since is skipped and said; a cancel means it however it stands."""
    client = somebody("root")
    first, second = driver.enqueue(), driver.enqueue()
    page = act(client, "job", "pause", first, second).content.decode()
    ids, shown = (re.search(f'name="{name}" value="([^"]*)"', page)[1] for name in ("ids", "revisions"))
    assert (sorted(ids.split(",")), shown) == (sorted([first, second]), "1,1")
    driver.pause(second)
    driver.resume(second)
    said = told(confirm(client, "job", "pause", *ids.split(","), revisions=shown))
    assert said == ["1 paused, 1 skipped (1 moved on since they were shown)."]
    assert (driver.state(first), driver.state(second)) == ("paused", "queued")
    assert told(confirm(client, "job", "resume", first, revisions="1")) == [
        "0 resumed, 1 skipped (1 moved on since they were shown)."]
    assert told(confirm(client, "job", "cancel", first, second, revisions="1,1")) == ["2 cancelled."]
    # What was not shown, or not whole, holds nothing up.
    assert told(confirm(client, "job", "pause", driver.enqueue(), revisions="x")) == ["1 paused."]


@pytest.mark.parametrize("when", ["between", "during"])
def test_a_job_that_crashes_its_workers_is_stopped_for_good(driver, when):
    """case-B13: cancel between and during attempts of a crash loop; it never starts again."""
    job_id = driver.enqueue("echo")
    client = somebody("canceller")
    for _ in range(3):
        held = driver.claim_one()
        driver.start(held)
        driver.pass_time(40)
        assert driver.recover() == 1
        driver.pass_time(600)
    if when == "during":
        held = driver.claim_one()
        driver.start(held)
    assert told(confirm(client, "job", "cancel", job_id, reason="poison")) == ["1 cancelled."]
    assert (driver.state(job_id), driver.job(job_id).reason) == ("cancelled", "poison")
    if when == "during":
        refused(driver.complete(held), "stale_claim")
    for _ in range(3):
        driver.pass_time(600)
        driver.recover()
        assert driver.claim() == []
    assert driver.state(job_id) == "cancelled"


def test_the_letter_of_a_job_that_crashed_its_workers_is_discarded_for_good(driver):
    """case-B13: quarantined after ten lapses; discarded, it never starts again."""
    job_id = driver.enqueue("echo", retry=RetryPolicy(max_attempts=20))
    for _ in range(10):
        driver.start(driver.claim_one())
        driver.pass_time(40)
        driver.recover()
        driver.pass_time(600)
    letter = DeadLetter.objects.get()
    assert letter.reason == "quarantined"
    assert told(confirm(somebody("discarder"), "deadletter", "discard", letter.pk)) == ["1 discarded."]
    driver.pass_time(6_000)
    assert driver.claim() == []
    assert driver.state(job_id) == "failed"
    assert told(confirm(somebody("requeuer"), "deadletter", "requeue", letter.pk)) == [
        "0 requeued, 1 skipped (1 not dead-lettered)."]


def test_a_batch_that_the_database_undoes_is_counted_and_the_others_stand(driver, monkeypatch):
    """A deadlock is nobody's error page; what it undid has no log entry."""
    made = letters(driver, 3)
    real = dead_letters.discard

    def sometimes(letter, **said):
        moved = real(letter, **said)
        if letter.pk == made[1].pk:
            raise OperationalError("deadlock detected")
        return moved

    monkeypatch.setattr(dead_letters, "discard", sometimes)
    answer = confirm(somebody("discarder"), "deadletter", "discard", *[letter.pk for letter in made])
    assert told(answer) == ["2 discarded, 1 skipped (1 database busy, try again)."]
    assert DeadLetter.objects.get(resolved_at=None).pk == made[1].pk
    assert LogEntry.objects.count() == 2


def test_nothing_selected_is_a_notice(driver):
    letters(driver, 1)
    client = somebody("requeuer")
    answer = client.post(url("deadletter"), {"action": "requeue", "index": "0"}, follow=True)
    assert "must be selected" in told(answer)[0]
    answer = client.post(url("deadletter"), {"action": "", "index": "0", "_selected_action": "1"}, follow=True)
    assert told(answer) == ["No action selected."]


def test_jobs_of_a_tenant_are_reached_from_its_page(driver):
    intake.enqueue("echo", {}, tenant="acme")
    tenant = Tenant.objects.get(subject="acme")
    client = somebody("viewer")
    page = client.get(url("tenant", tenant.pk, "change")).content.decode()
    address = f"{url('job')}?tenant={tenant.pk}"
    assert address in page
    assert len(client.get(address).context["cl"].result_list) == 1
