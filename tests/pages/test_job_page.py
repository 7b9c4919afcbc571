"""The page of one job: why it waits, what happened, what went in, for whom, whatever anybody wrote (E1, E12, A64)."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction

from jobs import clock, selectors
from jobs.conf import registry
from jobs.models import Attempt, AttemptLog, DeadLetter, Job, Receipt, Worker
from jobs.pages import drawing, payload
from jobs.services import cancellation, commands, dead_letters, explain, progress, tenancy, timeline, timers
from jobs.states import MOVES, State
from jobs.store import position
from jobs.store.sql import _cursor, chain_hash, packed
from tests import database
from tests.driver import claimer
from tests.making import in_state, limit
from tests.pages.corpus import XSS
from tests.pages.people import person
from tests.pages.seeing import asked, buttons
from tests.pages.site import Console
from tests.store import noise


@pytest.fixture
def seen(client, driver):
    """A client of somebody who may look at everything and change nothing."""
    client.force_login(person("viewer", "view_job", "view_payload", staff=False))
    return client


def read(client, pk, query=""):
    answer = client.get(f"/jobs/{pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def retold(client, pk):
    """The sentences of the receipts that a page shows, by number."""
    return [(int(n.replace(",", "")), said.strip()) for n, said in re.findall(
        r'<td class="num">([\d,]+)</td><td class="nowrap">.*?</td><td class="told">(.*?)(?:<|$)', read(client, pk))]


def test_a_waiting_job_says_first_why_it_is_not_running_and_where_it_stands(seen, driver):
    """DESIGN 7.1, C5, C6: in words, with its position in its tenant's queue and the jobs before it."""
    driver.enqueue("echo", tenant="acme")
    pk = driver.enqueue("echo", tenant="acme")
    driver.enqueue("echo", tenant="globex")
    page = read(seen, pk)
    assert "Why it is not running" in page
    assert "No live worker serves group &#x27;default&#x27;, queue &#x27;collect&#x27;." in page
    assert "It is number 2 in its tenant&#x27;s queue; at most 2 jobs of everybody&#x27;s go before it." in page
    assert page.index("Why it is not running") < page.index("What happened")
    driver.pause(pk, reason="the store is closed")
    assert "It is paused (the store is closed) until somebody resumes it. user:test paused it at" in read(seen, pk)
    assert "in its tenant&#x27;s queue" not in read(seen, pk)


@pytest.mark.parametrize("state", list(State))
def test_the_drawing_marks_where_it_stands_and_numbers_the_moves_it_made(seen, driver, state):
    """E1: every state is there, the present one marked, the same in words for who does not see it."""
    pk = in_state(driver, state).id
    page = read(seen, pk)
    assert set(re.findall(r'class="node node-([a-z]+)', page)) == {s.value for s in State}
    assert re.findall(r'class="node node-([a-z]+) here"', page) == [state.value]
    assert f"The job is {state}. It went through these states: queued" in page
    made = page.count('<path class="way" ')
    assert made == Receipt.objects.filter(job_id=pk, kind__in=[
        "job.leased", "job.heartbeat", "job.completed", "job.failed", "job.cancelled", "job.paused",
        "job.superseded"]).count()


def test_every_move_that_there_is_can_be_drawn():
    """E1: a path and a label for each; no two moves on one path."""
    paths = set()
    moves = {(begin, end) for (begin, _), ends in MOVES.items() for end in ends}
    for begin, end in moves:
        made = drawing.drawing(end, [[begin.value, end.value]]).made
        assert len(made) == 1
        assert made[0].label == "1"
        paths.add(made[0].path)
    assert len(paths) == len(moves)
    assert drawing.drawing("queued", [["queued", "what", "leased"] * 9]).made[0].label.startswith("9")


BUTTONS = {
    State.QUEUED: {"cancel", "pause"}, State.LEASED: {"cancel", "abort", "pause"},
    State.RUNNING: {"cancel", "abort", "pause"}, State.PAUSED: {"cancel", "resume"},
    State.FAILED: {"requeue", "discard"}, State.COMPLETED: set(), State.CANCELLED: set(), State.SUPERSEDED: set(),
}
NEEDS = {"cancel": "cancel_job", "abort": "cancel_job", "pause": "pause_job", "resume": "pause_job",
         "requeue": "requeue_job", "discard": "discard_job"}


@pytest.mark.parametrize("state", list(State))
def test_a_job_has_the_buttons_of_its_state_and_of_its_reader(client, driver, state):
    """E1: what a state does not allow is not offered, nor what the reader may not do."""
    pk = in_state(driver, state).id
    boss = person("boss")
    client.force_login(boss)
    allow(boss, "view_job", *set(NEEDS.values()))
    assert buttons(client.get(f"/jobs/{pk}/")) == BUTTONS[state]
    for permission in sorted(set(NEEDS.values())):
        allow(boss, "view_job", permission)
        expected = {verb for verb in BUTTONS[state] if NEEDS[verb] == permission}
        assert buttons(client.get(f"/jobs/{pk}/")) == expected
    allow(boss, "view_job", "view_payload")
    assert buttons(client.get(f"/jobs/{pk}/")) == set()


def test_who_is_asked_to_stop_already_is_not_asked_again(client, driver):
    """E5: an abort that is pending is shown, and has no button any more."""
    pk = in_state(driver, State.LEASED).id
    commands.abort(pk, by="user:ann", reason="it takes too long")
    client.force_login(person("boss", "view_job", "cancel_job", "pause_job"))
    answer = client.get(f"/jobs/{pk}/")
    assert "abort asked for" in answer.content.decode()
    assert buttons(answer) == {"cancel", "pause"}


def allow(user, *permissions):
    """These permissions and no others, from the next request on."""
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobs", codename__in=permissions))


AFTER = {"cancel": "cancelled", "abort": "leased", "pause": "paused", "resume": "queued", "requeue": "queued",
         "discard": "failed"}


@pytest.mark.parametrize("verb", list(NEEDS))
def test_each_button_asks_acts_through_its_service_and_leads_back(client, driver, verb):
    """Each with its permission, a reason, and the person's name in the receipt; refused without it, byte for byte."""
    state = next(s for s, verbs in BUTTONS.items() if verb in verbs)
    pk = in_state(driver, state).id
    before = database.row_hash(pk)
    said = {"verb": verb, "id": pk, "reason": "because I say so"}
    client.force_login(person("viewer", "view_job", *set(NEEDS.values()) - {NEEDS[verb]}))
    assert client.get("/jobs/act/", said).status_code == 403
    assert client.post("/jobs/act/", said).status_code == 403
    client.force_login(person("boss", "view_job", NEEDS[verb]))
    assert "this job?" in client.get("/jobs/act/", {"verb": verb, "id": pk}).content.decode()
    assert database.row_hash(pk) == before
    answer = client.post("/jobs/act/", said, follow=True)
    assert answer.redirect_chain == [(f"/jobs/{pk}/", 302)]
    assert driver.state(pk) == AFTER[verb]
    body = json.loads(Receipt.objects.filter(job_id=pk).order_by("-number")[0].body)
    assert (body["by"], body["reason"]) == ("user:boss", "because I say so")
    again = client.post("/jobs/act/", {**said, "reason": "again"}, follow=True)
    assert again.status_code == 200
    assert "1 skipped" in again.content.decode() or "already" in again.content.decode()


def test_a_requeue_says_that_it_drops_a_deadline_that_has_passed(client, driver):
    """E4: the new chain has none; whoever has asked is told."""
    pk = driver.enqueue("echo", deadline_at=clock.now() + timedelta(seconds=60))
    driver.fail(driver.claim_one(), retryable=False)
    driver.pass_time(61)
    client.force_login(person("boss", "view_job", "requeue_job"))
    said = {"verb": "requeue", "id": pk, "reason": "because I say so"}
    assert "Its deadline had passed and is dropped" in client.post("/jobs/act/", said, follow=True).content.decode()
    assert driver.job(pk).deadline_at is None


def test_a_dead_letter_stands_on_the_page_until_it_is_answered(seen, driver):
    """C22: an open one above, an answered one with who and why below."""
    pk = in_state(driver, State.FAILED).id
    assert "It waits for an answer: requeue or discard." in read(seen, pk)
    driver.requeue(pk)
    page = read(seen, pk)
    assert "It waits for an answer" not in page
    assert "Dead letters that were answered" in page
    assert DeadLetter.objects.get(job_id=pk).resolution == "requeued"


# --- the history ---------------------------------------------------------------------------------------------------


BODY = '{"progress":{"event":"started","stage":"read"}}'
LENGTHEN = """DO $$ DECLARE n int; h bytea; k int; BEGIN
    SELECT number, head INTO k, h FROM jobs_job WHERE id = '{pk}';
    FOR n IN k + 1 .. k + {count} LOOP
        h := {hash};
        INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash)
            VALUES ('{pk}', n, 'job.progress', jobs_now(), '{body}', h);
    END LOOP;
    UPDATE jobs_job SET number = k + {count}, head = h WHERE id = '{pk}'; END $$"""


def lengthen(pk, count):
    """So many receipts more, chained as the store chains them."""
    link = chain_hash("h", f"'{pk}'::uuid", "n", "job.progress", f"'{BODY}'")
    noise.execute(LENGTHEN.format(pk=pk, count=count, hash=link, body=BODY))


def test_a_whole_history_is_told_in_order_checked_and_folded(seen, driver):
    """E12: every receipt by its number, in words, newest last, with the mark of its chain."""
    pk = driver.enqueue("echo", tenant="acme")
    job = driver.claim_one()
    driver.start(job)
    driver.fail(job, message="no route")
    told = retold(seen, pk)
    assert [n for n, _ in told] == [1, 2, 3, 4]
    assert told[0][1] == "enqueued as echo@1 (origin user)"
    assert told[3][1].startswith("attempt 1 failed with attempt_error; the job waits again, not before")
    page = read(seen, pk)
    assert "✓ chain holds" in page
    assert "no route" in page


def test_a_job_of_a_timer_says_so(seen, driver):
    """D13: its name and the moment for which it was made, beside the origin."""
    tenant = tenancy.tenant(tenancy.workspace(), "acme", make=True)
    timer = timers.put(tenant, "night", timers.Draft("echo", cron="0 3 * * *"), by="user:ann")
    made = timers.run_now(timer, by="user:<b>")
    page = read(seen, made.job_id)
    assert "timer night, run by user:&lt;b&gt;" in page
    assert "timer night" not in read(seen, driver.enqueue("echo"))


def test_a_very_long_history_shows_its_beginning_and_its_end_and_the_rest_by_pages(seen, driver):
    """10,000 receipts: a bounded number of rows and statements, and every receipt can be reached.

    One statement more than for a short history: the beginning and the end are two ranges of receipts.
    """
    pk = driver.enqueue("staged")
    few_answer, few = asked(seen, f"/jobs/{pk}/")
    lengthen(pk, 9_999)
    answer, many = asked(seen, f"/jobs/{pk}/")
    assert len(many) <= len(few) + 1 <= 28
    numbers = [n for n, _ in retold(seen, pk)]
    assert numbers == [*range(1, timeline.FIRST + 1), *range(10_001 - timeline.LAST, 10_001)]
    page = answer.content.decode()
    assert "✓ what is shown holds" in page
    assert "Show receipts 51 to 9,800" in page
    begin, reached = 51, 50
    while begin is not None:
        page = read(seen, pk, f"?from={begin}")
        found = [int(n.replace(",", "")) for n in re.findall(r'<tr><td class="num">([\d,]+)</td>', page)]
        assert found[0] == reached + 1
        assert "✓ what is shown holds" in page
        reached = found[-1]
        later = re.search(r'href="\?from=(\d+)">Later', page)
        begin = int(later[1]) if later and reached < 1_000 else None
    assert reached >= 1_000
    assert few_answer.status_code == 200


@pytest.mark.parametrize(("change", "number", "why"), [
    ("UPDATE jobs_receipt SET body = replace(body, '\"to\"', '\"ot\"') WHERE number = 3", 3, "hash mismatch"),
    ("UPDATE jobs_receipt SET body = 'no json' WHERE number = 2", 2, "hash mismatch"),
    ("UPDATE jobs_receipt SET kind = 'job.unheard' WHERE number = 2", 2, "hash mismatch"),
    ("DELETE FROM jobs_receipt WHERE number = 2", 2, "broken prev"),
    ("DELETE FROM jobs_receipt WHERE number = 4", 4, "is not there"),
    ("DELETE FROM jobs_receipt", 1, "is not there"),
    ("INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash) SELECT job_id, number + 1, kind, at, body, hash"
     " FROM jobs_receipt WHERE number = 4", 5, "that the job does not know of"),
    ("UPDATE jobs_job SET head = '\\x00'", 4, "is not the one that the job names"),
    ("UPDATE jobs_job SET state = 'cancelled', ended_at = jobs_now()", 4, "differs in state"),
])
def test_a_chain_that_does_not_hold_is_said_in_red_with_what_it_means(seen, driver, change, number, why):
    """E12: whatever somebody changed past the site, the page says where, what it means, and what to do."""
    pk = driver.enqueue("echo")
    job = driver.claim_one()
    driver.start(job)
    driver.release(job)
    with_triggers_off(change)
    page = read(seen, pk)
    assert "The history of this job does not hold" in page
    assert why in page
    assert f"broken at {number}" in page
    assert explain.story(Job.objects.get(pk=pk)).broken is not None
    assert f"manage.py explain {pk}" in page
    assert "chain holds" not in page


def with_triggers_off(change):
    noise.execute("ALTER TABLE jobs_receipt DISABLE TRIGGER USER")
    try:
        noise.execute(change)
    finally:
        noise.execute("ALTER TABLE jobs_receipt ENABLE TRIGGER USER")


def test_a_receipt_that_comes_in_while_the_page_is_read_breaks_nothing(driver):
    """The row is read first: what is written after it is of the next look, and no broken chain."""
    pk = driver.enqueue("echo")
    row = Job.objects.get(pk=pk)
    job = driver.claim_one()
    driver.start(job)
    found = timeline.timeline(row)
    assert found.whole
    assert found.broken is None
    assert len(found.parts[0].steps) == 1


def test_attempts_have_their_holder_their_end_and_their_log(seen, driver):
    """Outcome, code, message and log lines of each attempt; a long log is cut and can be had whole."""
    Worker.objects.create(id=uuid.UUID(driver.claimer.worker_id), name="worker of Berlin", host="h", pid=1, slots=1,
                          worker_groups=["default"], queues=["collect"], types=["echo@1"])
    pk = driver.enqueue("echo")
    driver.fail(driver.claim_one(), message="first line\n" + "x" * 500)
    attempt = Attempt.objects.get(job_id=pk)
    AttemptLog.objects.create(attempt=attempt, lines="the very first\n" + "line\n" * 10_000 + "the last", dropped=7)
    page = read(seen, pk)
    assert "worker worker of Berlin" in page
    assert 'id="message-1"' in page
    assert 'id="log-1"' in page
    assert "the last" in page
    assert "the very first" not in page
    assert "7 were not kept" in page
    log = seen.get(f"/jobs/{pk}/log/1")
    assert log.content.decode().startswith("the very first")
    assert (log["Content-Type"], log["X-Content-Type-Options"]) == ("text/plain; charset=utf-8", "nosniff")
    assert log["Content-Disposition"].startswith("attachment")
    assert seen.get(f"/jobs/{pk}/log/2").status_code == 404


def test_stages_are_shown_by_the_labels_that_code_gave_them(seen, driver):
    """B30, B31: declared stages with their latest event."""
    pk = driver.enqueue("staged")
    job = driver.claim_one()
    driver.start(job)
    progress.stage(registry().current("staged"), job.id, job.fence, "read", "completed", "worker:x")
    page = read(seen, pk)
    assert '<li class="completed">Reading' in page
    assert '<li class="ahead">Writing' in page
    progress.stage(registry().current("staged"), job.id, job.fence, "write", "started", "worker:x", attempt=1)
    assert '<li class="started">Writing' in read(seen, pk)
    driver.release(job)
    assert '<li class="interrupted">Writing' in read(seen, pk)


def test_keys_target_group_and_policy_stand_on_the_page(seen, driver):
    """What a request said, and who is in its exclusive group (C11)."""
    limit(exclusive_group_max=1)
    inside = driver.enqueue("echo", tenant="acme", exclusive_group="reports")
    driver.claim_one()
    pk = driver.enqueue("echo", tenant="acme", job_id="order-1", idempotency_key="key-1", session_key="session-1",
                        target="thing", exclusive_group="reports", priority=7)
    page = read(seen, pk)
    for word in ("order-1", "key-1", "session-1", "echo:thing", "generation 1, the current one", "priority 7",
                 "1 at once; inside:", f'/jobs/{inside}/"',
                 "Its exclusive group &#x27;reports&#x27; lets 1 in at once"):
        assert word in page, word
    driver.enqueue("echo", tenant="acme", target="thing")
    assert "the current one is 2" in read(seen, pk)


def test_a_job_that_is_not_there_any_more_says_so(seen, database):
    """Retention took it, or it never was: 404, with the way back."""
    pk = uuid.uuid4()
    answer = seen.get(f"/jobs/{pk}/")
    assert answer.status_code == 404
    assert "Ended jobs are deleted after 30 d" in answer.content.decode()
    assert "To the jobs" in answer.content.decode()
    for name in (*payload.sightings.PAYLOADS, "log/1"):
        assert seen.get(f"/jobs/{pk}/{name}").status_code == 404
    assert seen.get("/jobs/not-an-id/").status_code == 404


@pytest.mark.parametrize("begin", ["0", "99", "-1", "x", "1e3", "99999999999999999999", "", "٣"])
def test_a_place_in_the_history_that_is_none_is_no_error(seen, driver, begin):
    """Bad input is never a 500."""
    pk = driver.enqueue("echo")
    assert "What happened" in read(seen, pk, f"?from={begin}")


# --- payloads ------------------------------------------------------------------------------------------------------

CANARY = "canary-5f2d"


def with_payloads(driver, value):
    """A completed job with this in its input, its artifact and its checkpoint."""
    pk = driver.enqueue("outside", value)
    job = driver.claim_one(by=claimer("runners"))
    driver.start(job)
    progress.checkpoint(job.id, job.fence, 1, value, "worker:x")
    driver.complete(job, value)
    return pk


def test_payloads_are_for_those_who_may_see_them(client, driver):
    """RELIABILITY: view_payload is apart from view; without it a sentence says what is missing, and nothing leaks."""
    pk = with_payloads(driver, {"name": CANARY})
    client.force_login(person("viewer", "view_job"))
    page = read(client, pk)
    assert CANARY not in page
    assert "lacks the permission “Can view inputs, artifacts and checkpoints”" in page
    for name in ("input", "artifact", "checkpoint"):
        assert client.get(f"/jobs/{pk}/{name}").status_code == 403
    client.force_login(person("payload", "view_payload"))
    assert client.get(f"/jobs/{pk}/input").status_code == 403
    client.force_login(person("both", "view_job", "view_payload"))
    assert read(client, pk).count(CANARY) == 3
    for name in ("input", "artifact", "checkpoint"):
        answer = client.get(f"/jobs/{pk}/{name}")
        assert json.loads(answer.content) == {"name": CANARY}
        assert answer["Content-Type"] == "application/json; charset=utf-8"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Disposition"] == f'attachment; filename="{pk}-{name}.json"'
        assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize("name", ["authorization", "Cookie", "db_password", "clientSecret", "token", "session_key",
                                  "api_key", "X-Api-Key", "apiKey", "AWS_ACCESS_KEY", "access-key"])
def test_what_is_named_like_a_secret_is_shown_nowhere(seen, driver, name):
    """A64: by the name of its field, on every depth, in the page and in the download."""
    pk = with_payloads(driver, {"kept": "plain", "deep": [{"er": {name: {"inner": CANARY}}}], name: CANARY})
    page = read(seen, pk)
    assert CANARY not in page
    assert page.count("[redacted]") == 6
    assert "plain" in page
    for which in ("input", "artifact", "checkpoint"):
        assert CANARY not in seen.get(f"/jobs/{pk}/{which}").content.decode()


def test_a_large_payload_is_cut_on_the_page_and_whole_in_the_file(seen, driver):
    """case-C11: 64 KiB on the page with a note; beyond 1 MiB the page does not read it at all."""
    pk = with_payloads(driver, {"x": "small"})
    database.rows("UPDATE jobs_job SET input = %s, checkpoint = %s WHERE id = %s RETURNING 1",
                  json.dumps({"x": "y" * 200_000}), json.dumps([{"x": n} for n in range(20_000)]), pk)
    answer = seen.get(f"/jobs/{pk}/")
    assert len(answer.content) < 4 * payload.SHOWN
    assert answer.content.decode().count("Only the first 64 KiB are shown") == 2
    assert len(seen.get(f"/jobs/{pk}/input").content) > 200_000
    assert len(json.loads(seen.get(f"/jobs/{pk}/checkpoint").content)) == 20_000
    database.rows("UPDATE jobs_job SET input = %s WHERE id = %s RETURNING 1",
                  json.dumps({"x": "z" * payload.READ}), pk)
    page = read(seen, pk)
    assert "It is too large to be shown here; download it." in page
    assert "zzz" not in page


def test_a_payload_that_was_redacted_or_is_no_json_is_said_so(seen, driver):
    """E13: emptied by redaction; and text that somebody broke is no error."""
    pk = with_payloads(driver, {"name": CANARY})
    database.rows("UPDATE jobs_job SET input = '', checkpoint = '{\"broken' WHERE id = %s RETURNING 1", pk)
    page = read(seen, pk)
    assert "It was redacted." in page
    assert "(it cannot be read as JSON)" in page
    assert seen.get(f"/jobs/{pk}/input").status_code == 404


# --- where it stands -----------------------------------------------------------------------------------------------


def test_a_position_is_the_claim_s_own_order(driver):
    """C5, C6: by priority, then by availability, then by id; the pool's jobs by turns."""
    low = [driver.enqueue("echo", tenant="a", priority=0) for _ in range(3)]
    high = driver.enqueue("echo", tenant="a", priority=5)
    others = [driver.enqueue("echo", tenant=f"t{n}") for n in range(4)]
    assert position.of(high) == position.Position(1, 4)
    assert [position.of(pk).own for pk in low] == [2, 3, 4]
    assert position.of(low[0]).ahead == 1 + 4
    assert position.of(others[0]) == position.Position(1, 4)
    first = driver.claim_one()
    assert position.of(first.id) is None
    assert position.of(driver.enqueue("echo", tenant="a", delay_s=60)) is None
    assert position.of(str(uuid.uuid4())) is None


@pytest.mark.parametrize("statistics", ["earlier", "of a small table", "right"])
def test_a_position_costs_the_same_behind_any_backlog(driver, statistics):
    """C6, C8: counted up to a cap by index ranges, whatever waits before and behind and the database knows of it."""
    tenant = tenancy.tenant(tenancy.workspace(), "big", make=True).pk
    noise.execute("ALTER TABLE jobs_job SET (autovacuum_enabled = false)")
    try:
        first = driver.enqueue("echo", tenant="big", priority=1)
        if statistics == "of a small table":
            noise.execute("ANALYZE jobs_job")
        noise.jobs(20_000, tenancy.workspace().pk, tenant, state="completed", ended="jobs_now()")
        noise.jobs(10_000, tenancy.workspace().pk, tenant)
        last = driver.enqueue("echo", tenant="big", priority=-1)
        if statistics == "right":
            noise.execute("ANALYZE jobs_job")
        assert selectors.positions([first, last]) == {first: (1, 0), last: (position.CAP + 1, position.CAP)}
        assert position.of(first).own == 1
        assert position.of(last) == position.Position(position.CAP + 1, position.CAP)
        assert position.of(last).own_capped
        with transaction.atomic(), _cursor() as cursor:
            cursor.execute(position.UNSORTED)
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS) " + position._OWN, [packed([last])])
            plan = "\n".join(line for line, in cursor.fetchall())
    finally:
        noise.execute("ALTER TABLE jobs_job RESET (autovacuum_enabled)")
    assert plan.count("using job_claim on jobs_job job") == 2, plan
    assert "using jobs_job_pkey on jobs_job" in plan
    assert "Seq Scan" not in plan
    assert "Rows Removed" not in plan


def test_a_look_at_positions_leaves_the_callers_transaction_as_it_was(driver):
    """What it forbids itself is allowed again."""
    with transaction.atomic():
        selectors.positions([driver.enqueue("echo")])
        assert database.rows("SHOW enable_sort") == [("on",)]


# --- whatever anybody wrote ----------------------------------------------------------------------------------------


def poison(driver, text):
    """A failed job with this text in every field that the pages show and that can hold it."""
    key = text[:200]
    Worker.objects.filter(pk=driver.claimer.worker_id).delete()
    Worker.objects.create(id=uuid.UUID(driver.claimer.worker_id), name=text[:200], host="h", pid=1, slots=1,
                          worker_groups=["default"], queues=["collect"], types=["outside@1"])
    pk = driver.enqueue("outside", {"text": text, text: [text]}, tenant=text[:255], idempotency_key=key,
                        session_key=key, exclusive_group=key, target=text, agent=None)
    by = claimer("runners")
    job = driver.claim_one(by=by)
    driver.start(job)
    database.rows("UPDATE jobs_attempt SET worker_id = %s WHERE job_id = %s RETURNING 1", driver.claimer.worker_id, pk)
    driver.fail(job, message=text, retryable=False)
    attempt = Attempt.objects.get(job_id=pk)
    AttemptLog.objects.create(attempt=attempt, lines=text, dropped=0)
    letter = DeadLetter.objects.get(job_id=pk)
    dead_letters.requeue(letter, by=f"user:{text}"[:200], reason=text)
    job = driver.claim_one(by=by)
    driver.complete(job, {"text": text})
    paused = driver.enqueue("outside", {}, tenant=text[:255])
    cancellation.pause(paused, by=f"user:{text}"[:200], reason=text)
    database.rows("UPDATE jobs_job SET subject = %s WHERE id IN (%s, %s) RETURNING 1", text[:200], pk, paused)
    return pk, paused


@pytest.mark.slow
def test_whatever_anybody_wrote_is_text_in_a_real_browser(console: Console, driver):
    """RELIABILITY, admin XSS: 25 strings in every text field of list, page, confirmation and message; none runs."""
    made = [poison(driver, text) for text in XSS]
    # Every fourth has its own page looked at, all of them stand in the list.
    for text, (pk, _) in list(zip(XSS, made, strict=True))[::4]:
        page = console.open(f"/jobs/{pk}/")
        said = plain(page)
        # Tenant, three keys and the group, target, message, log, input, artifact, worker, who and why of two answers.
        assert said.count(" ".join(text.split())) >= 12, (text, said)
        assert page.locator(DANGEROUS).count() == 0
        assert page.url == f"{console.url}/jobs/{pk}/"
    page = console.open("/jobs/?state=paused")
    said = plain(page)
    assert [text for text in XSS if " ".join(text.split()) not in said] == []
    assert page.locator(DANGEROUS).count() == 0
    page = console.open("/jobs/act/?verb=cancel" + "".join(f"&id={paused}" for _, paused in made))
    assert page.locator(DANGEROUS).count() == 0
    page.fill("#reason", XSS[0])
    page.click("button.danger")
    assert "25 cancelled." in page.inner_text(".messages")
    assert XSS[0] in page.inner_text("main")
    for n in range(5):
        # What a reader was sent to by somebody else's link: each of them in a filter.
        page = console.open("/jobs/?" + urlencode(dict(zip(
            ("q", "tenant", "type", "reason", "since"), XSS[n::5], strict=True))))
        assert console.status == 400
        assert [text for text in XSS[n::5] if " ".join(text.split()) not in plain(page)] == []
        assert page.locator(DANGEROUS).count() == 0


DANGEROUS = ", ".join(f"main {what}" for what in (
    "script", "iframe", "img", "base", "meta", "style", "math", "[onload]", "[onmouseover]", "[href^=javascript]"))


def plain(page):
    """What the page says, as one line."""
    return " ".join(page.evaluate("document.querySelector('main').textContent").split())


def test_the_page_is_read_and_the_button_pressed_without_a_script(served, chromium, operator, driver):
    """The whole way in a browser that runs no script: open a log, requeue a dead letter with a reason."""
    pk = in_state(driver, State.FAILED).id
    AttemptLog.objects.create(attempt=Attempt.objects.get(job_id=pk), lines="what it logged", dropped=0)
    opened = Console(chromium, served, java_script_enabled=False)
    opened.sign_in(operator)
    page = opened.open("/jobs/")
    page.click("tbody .id")
    page.click("text=Log lines")
    assert page.is_visible("text=what it logged")
    page.click("text=Requeue")
    page.fill("#reason", "the store is open again")
    page.click("button.primary")
    assert page.url == f"{opened.url}/jobs/{pk}/"
    assert "1 requeued." in page.inner_text(".messages")
    assert "Why it is not running" in page.inner_text("main")
    assert "a new chain begins (the store is open again)" in page.inner_text("main")
    opened.close()
    assert driver.state(pk) == "queued"
