"""Where a job stands and why it waits, over HTTP: on single reads alone, and nothing that another tenant owns."""

from __future__ import annotations

import pytest

from jobs.models import Job
from jobs.store import position
from tests.edges.caller import Caller, problem
from tests.making import limit

STANDS = ("queue_position", "queue_position_capped", "jobs_ahead", "jobs_ahead_capped", "eta_s", "estimated_start_at")


def stands(api: Caller, job_id: str) -> tuple[object, ...]:
    told = api.get(f"/jobs/{job_id}").json()
    return tuple(told[name] for name in STANDS)


def test_a_waiting_job_tells_its_position_and_what_goes_before_it_on_single_reads_alone(api: Caller) -> None:
    """C5, C6: 1 = next; null for what does not wait for its turn; a list does not count."""
    first, second = api.enqueue()["id"], api.enqueue()["id"]
    later = api.enqueue(delay_s=60)["id"]
    assert stands(api, first) == (1, False, 0, False, None, None)
    assert stands(api, second) == (2, False, 1, False, None, None)
    assert stands(api, later) == (None, False, None, False, None, None)
    api.claim_one()
    assert stands(api, first) == (None, False, None, False, None, None)
    assert stands(api, second) == (1, False, 0, False, None, None)
    assert not set(STANDS) & set(api.get("/jobs").json()["jobs"][0])


def test_a_thousand_are_counted_and_no_more(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: capped, and says so."""
    for name in ("_OWN", "_AHEAD"):
        monkeypatch.setattr(position, name, getattr(position, name).replace("1000", "3"))
    monkeypatch.setattr(position, "CAP", 3)
    ids = [api.enqueue()["id"] for _ in range(5)]
    assert [stands(api, id_)[:4] for id_ in ids] == [
        (1, False, 0, False), (2, False, 1, False), (3, False, 2, False), (None, True, 3, True), (None, True, 3, True)]


def test_the_reasons_of_a_job_are_data_with_codes_and_numbers(api: Caller) -> None:
    """DESIGN 7.1: the first reason first, by stable codes, of any job that the key may read."""
    limit(exclusive_group_max=1)
    first = api.enqueue(exclusive_group="g")["id"]
    second = api.enqueue(exclusive_group="g", job_id="mine")["id"]
    answer = api.get("/jobs/mine/explain")
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    told = answer.json()
    assert (told["id"], told["job_id"], told["status"], told["queue_position"]) == (second, "mine", "queued", None)
    assert told["blockers"][0] == {
        "code": "exclusive_group_full", "exclusive_group": "g", "scope": "tenant", "most": 1, "used": 1,
        "holders": [first], "message": f"Its exclusive group 'g' lets 1 in at once; before it: {first}."}
    held = api.claim_one()
    assert [one["code"] for one in api.get(f"/jobs/{first}/explain").json()["blockers"]] == ["held"]
    assert api.assignment(held, "complete", {"artifact": {}}).status_code == 200
    assert [one["code"] for one in api.get(f"/jobs/{first}/explain").json()["blockers"]] == ["completed"]
    assert api.get(f"/jobs/{second}/explain").json()["blockers"][-1]["code"] == "claimable_now"


def test_what_another_tenant_owns_is_not_named(database: None) -> None:
    """E2, C25: holders of other tenants are neither named nor counted; their jobs are not found."""
    limit(exclusive_group_max=1, exclusive_group_scope="workspace")
    mine, theirs = Caller("mine", tenant="me"), Caller("theirs", tenant="other")
    first = theirs.enqueue(exclusive_group="g")["id"]
    job_id = mine.enqueue(exclusive_group="g")["id"]
    answer = mine.get(f"/jobs/{job_id}/explain")
    assert answer.json()["blockers"][0]["code"] == "exclusive_group_full"
    assert first not in answer.content.decode()
    assert "used" not in answer.json()["blockers"][0]
    problem(mine.get(f"/jobs/{first}/explain"), 404, "job_not_found")
    problem(mine.get(f"/jobs/{job_id}/explain?all=1"), 400, "unknown_parameter")
    assert Job.objects.count() == 2


def test_a_key_that_may_not_read_may_not_ask_why(api: Caller) -> None:
    """C25: as for the job itself."""
    job_id = api.enqueue()["id"]
    problem(Caller("writer", permissions=["enqueue"]).get(f"/jobs/{job_id}/explain"), 403, "permission_denied")
