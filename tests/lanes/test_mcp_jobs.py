"""Jobs as tools, by the SDK's own client against a server in this process: what they do, and each refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.shared.exceptions import MCPError

from jobs.models import Job
from jobs.services import grants, intake, keys
from tests.driver import check
from tests.edges.caller import Caller, everything
from tests.lanes.talking import Talk, inside

JOB_TOOLS = {"job_create": "enqueue", "job_get": "read", "job_claim": "claim", "job_extend": "claim",
             "job_complete": "claim", "job_release": "claim"}
NOTHING = {"assignments": [], "again": False}
UNKNOWN = "0197c000-0000-7000-8000-000000000000"


@pytest.fixture
def api(driver: Any) -> Caller:
    """A workspace key with every permission."""
    return Caller()


@pytest.fixture
def talk(api: Caller) -> Iterator[Talk]:
    """A client with that key."""
    with inside(api.secret) as talk:
        yield talk


def held(talk: Talk, **fields: Any) -> dict[str, Any]:
    """One fresh assignment."""
    talk.good("job_create", type="outside", **fields)
    [one] = talk.good("job_claim")["assignments"]
    return one


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_job_goes_from_its_creation_to_its_end(api: Caller, mode: str) -> None:
    """D1, D2, D3, D4, D14: in both eras of the protocol; nobody is assigned before somebody claims."""
    with inside(api.secret, mode) as talk:
        made = talk.good("job_create", type="outside", input={"text": "Zoë"}, idempotency_key="k", priority=7)
        assert (made["state"], made["claims"], made["repeated"], made["priority"]) == ("queued", 0, False, 7)
        again = talk.good("job_create", type="outside", input={"text": "Zoë"}, idempotency_key="k", priority=7)
        assert (again["id"], again["repeated"]) == (made["id"], True)
        [one] = talk.good("job_claim", slots=5)["assignments"]
        assert (one["job"]["input"], one["job"]["idempotency_key"]) == ({"text": "Zoë"}, f"{made['id']}:1")
        beat = talk.good("job_extend", assignment_id=one["assignment_id"], checkpoint={"seq": 1, "at": "half"})
        assert (beat["checkpoint_number"], beat["abort"], beat["commands"]) == (1, None, [])
        end = talk.good("job_complete", assignment_id=one["assignment_id"], artifact={"n": 1}, cost_usd="0.25")
        assert end == {"id": made["id"], "status": "completed", "state": "completed", "repeated": False}
        read = talk.good("job_get", id=made["id"])
        assert (read["result_envelope"]["artifact"], read["cost_usd"]) == ({"n": 1}, "0.25")
        assert "input" not in read
        assert talk.good("job_get", id=made["id"], include_input=True)["input"] == {"text": "Zoë"}
    assert check(made["id"])
    assert Job.objects.get().origin == "user"


def test_a_request_made_here_is_the_same_over_http(api: Caller, talk: Talk, settings: Any) -> None:
    """C3, E6: one key, one job, whichever of the two is asked first."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    body = {"type": "outside", "input": {"n": 1}, "idempotency_key": "k"}
    made = talk.good("job_create", **body)
    answer = api.post("/jobs", body)
    assert (answer.status_code, answer.json()["id"], answer.json()["repeated"]) == (200, made["id"], True)


def test_the_same_outcome_again_is_quiet_and_any_other_word_is_refused(talk: Talk) -> None:
    """D4, E5: whichever of the two ends it was; nothing changes any more."""
    ends: list[dict[str, Any]] = [{"artifact": {"n": 1}}, {"outcome": "failed", "reason_code": "x", "retryable": False}]
    for mine, other in (ends, ends[::-1]):
        name = held(talk)["assignment_id"]
        first = talk.good("job_complete", assignment_id=name, **mine)
        rows = everything()
        assert talk.good("job_complete", assignment_id=name, **mine) == {**first, "repeated": True}
        told = talk.refused("job_complete", "stale_claim", assignment_id=name, **other)
        assert told["job_state"] == first["state"]
        talk.refused("job_release", "stale_claim", assignment_id=name)
        talk.refused("job_extend", "stale_claim", assignment_id=name)
        assert everything() == rows


def test_a_job_that_is_given_back_is_claimable_and_keeps_its_attempts(talk: Talk) -> None:
    """D5: and a stale holder ends nothing (D3)."""
    one = held(talk)
    assert talk.good("job_release", assignment_id=one["assignment_id"])["state"] == "queued"
    [two] = talk.good("job_claim")["assignments"]
    assert (two["job"]["id"], two["job"]["attempt"]) == (one["job"]["id"], 2)
    told = talk.refused("job_complete", "stale_claim", assignment_id=one["assignment_id"], artifact={})
    assert told["job_state"] == "leased"
    talk.good("job_release", assignment_id=two["assignment_id"], delay_s=600)
    assert talk.good("job_claim") == NOTHING
    check(one["job"]["id"])


def test_attempts_are_bounded_at_five(talk: Talk, driver: Any) -> None:
    """D3: by the site's policy, and each of them stands in the history."""
    job = talk.good("job_create", type="outside")["id"]
    for n in range(1, 6):
        [one] = talk.good("job_claim")["assignments"]
        assert one["job"]["attempt"] == n
        talk.good("job_complete", assignment_id=one["assignment_id"], outcome="failed", reason_code="no_luck")
        driver.pass_time(400)
    assert talk.good("job_claim") == NOTHING
    read = talk.good("job_get", id=job)
    assert (read["state"], read["claims"], read["dead_letter"]["reason"]) == ("failed", 5, "attempts_exhausted")


def test_nothing_available_and_nothing_authorised_are_one_answer(api: Caller, talk: Talk) -> None:
    """D3, E15: what waits for others changes nothing, also for who waits for it."""
    with inside(api.secret) as other:
        empty = other.said("job_claim").content[0].text
    talk.good("job_create", type="outside")
    talk.good("job_create", type="outside", tenant_subject="theirs")
    others = [Caller(workspace="elsewhere"), Caller(tenant="mine"), Caller(worker_groups=[]),
              Caller(worker_groups=["vault"])]
    with ExitStack() as open_:
        strangers = [open_.enter_context(inside(caller.secret)) for caller in others]
        waits = [stranger.begin("job_claim", wait_seconds=1) for stranger in strangers]
        for stranger, waited in zip(strangers, waits, strict=True):
            assert stranger.said("job_claim").content[0].text == empty
            assert waited.result(60).content[0].text == empty


def test_a_foreign_assignment_and_a_foreign_job_are_none(api: Caller, talk: Talk) -> None:
    """C35, I16: an unknown, a malformed and a foreign name are answered alike."""
    one, tenants = held(talk), Caller(tenant="mine")
    others = [Caller("same"), Caller(workspace="elsewhere"), tenants]
    rows = everything()
    for caller in others:
        with inside(caller.secret) as stranger:
            for tool in ("job_extend", "job_complete", "job_release"):
                said = [stranger.refused(tool, "assignment_not_found", assignment_id=name)
                        for name in (one["assignment_id"], UNKNOWN, "x")]
                assert said[0] == said[1] == said[2]
            if caller.key.name != "same":
                said = [stranger.refused("job_get", "job_not_found", id=name) for name in (one["job"]["id"], UNKNOWN)]
                assert said[0] == said[1]
    assert everything() == rows


def test_where_a_conductor_is_demanded_no_permission_is_enough(api: Caller, talk: Talk) -> None:
    """D2: conductor and an explicit grant in the project; a broad key is refused, whatever it may."""
    place = api.key.workspace
    place.create_requires_grant = True
    place.save()
    keys.forget()
    talk.refused("job_create", "grant_required", type="outside")
    for role in ("member", "assignee"):
        grants.give(place, role, by="test", key=api.key)
        talk.refused("job_create", "grant_required", type="outside")
    grants.give(place, "conductor", by="test", key=api.key)
    assert talk.good("job_create", type="outside")["state"] == "queued"
    assert Job.objects.count() == 1


REFUSALS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("job_create", "missing_field", "type", {}),
    ("job_create", "unknown_field", "typ", {"type": "outside", "typ": 1}),
    ("job_create", "invalid_type", "type", {"type": 7}),
    ("job_create", "unknown_job_type", "type", {"type": "outsid"}),
    ("job_create", "unknown_queue", "queue", {"type": "outside", "queue": "nowhere"}),
    ("job_create", "invalid_input", "/input/a", {"type": "outside-exact", "input": {"a": "x"}}),
    ("job_create", "invalid_available_at", "available_at", {"type": "outside", "available_at": "soon"}),
    ("job_create", "invalid_tenant_subject", "tenant_subject", {"type": "outside", "tenant_subject": ""}),
    ("job_create", "lane_not_found", None, {"type": "outside", "lane": UNKNOWN}),
    ("job_get", "missing_field", "id", {}),
    ("job_get", "invalid_id", "id", {"id": None}),
    ("job_get", "job_not_found", None, {"id": "nobody"}),
    ("job_get", "invalid_include_input", "include_input", {"id": "x", "include_input": 1}),
    ("job_claim", "invalid_slots", "slots", {"slots": 101}),
    ("job_claim", "invalid_slots", "slots", {"slots": True}),
    ("job_claim", "invalid_wait_seconds", "wait_seconds", {"wait_seconds": -1}),
    ("job_claim", "unknown_worker_group", "worker_groups", {"worker_groups": ["nowhere"]}),
    ("job_claim", "group_served_in_process", "worker_groups", {"worker_groups": ["default"]}),
    ("job_claim", "unknown_queue", "queue", {"queues": ["nowhere"]}),
    ("job_claim", "unknown_job_type", "types", {"types": ["nothing"]}),
    ("job_claim", "invalid_request_id", "request_id", {"request_id": "a b"}),
    ("job_extend", "invalid_assignment_id", "assignment_id", {"assignment_id": 7}),
    ("job_extend", "unknown_field", "seconds", {"assignment_id": UNKNOWN, "seconds": 1}),
    ("job_complete", "missing_field", "assignment_id", {"artifact": {}}),
    ("job_complete", "invalid_outcome", "outcome", {"assignment_id": UNKNOWN, "outcome": "cancelled"}),
    ("job_complete", "unknown_field", "reason_code", {"assignment_id": UNKNOWN, "reason_code": "x"}),
    ("job_complete", "missing_field", "reason_code", {"assignment_id": UNKNOWN, "outcome": "failed"}),
    ("job_complete", "unknown_field", "artifact", {"assignment_id": UNKNOWN, "outcome": "failed", "artifact": 1}),
    ("job_complete", "invalid_reason_code", "reason_code",
     {"assignment_id": UNKNOWN, "outcome": "failed", "reason_code": "No luck"}),
    ("job_release", "invalid_release", "delay_s", {"assignment_id": UNKNOWN, "delay_s": "1"}),
    ("job_release", "assignment_not_found", None, {"assignment_id": "x\u0001y"}),
]


def test_a_refusal_has_its_code_and_its_field(talk: Talk, settings: Any) -> None:
    """E2: the words of the API's problems, and nothing is written."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside"]}
    for tool, code, field, arguments in REFUSALS:
        told = talk.refused(tool, code, field, **arguments)
        assert not {"status", "type", "title", "detail"} & told.keys()
    assert Job.objects.count() == 0


def test_refusals_of_a_held_job(talk: Talk, settings: Any) -> None:
    """B8, C33: a bad artifact leaves the attempt live."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside"]}
    talk.good("job_create", type="outside-exact", input={"a": 1})
    [one] = talk.good("job_claim", request_id="mine")["assignments"]
    name = one["assignment_id"]
    assert talk.good("job_claim", request_id="mine")["assignments"] == [one]
    talk.refused("job_claim", "request_id_reused", "request_id", request_id="mine", slots=2)
    # Refused before anything is claimed, though there is something.
    talk.good("job_create", type="outside")
    talk.refused("job_claim", "invalid_wait_seconds", "wait_seconds", wait_seconds="20")
    assert talk.good("job_get", id=talk.good("job_claim")["assignments"][0]["job"]["id"])["claims"] == 1
    talk.refused("job_extend", "invalid_checkpoint", "checkpoint.seq", assignment_id=name, checkpoint={"seq": "x"})
    talk.refused("job_extend", "undeclared_stage", "progress.stage", assignment_id=name,
                 progress={"stage": "x", "event": "started"})
    talk.refused("job_extend", "unknown_command", "consumed", assignment_id=name, consumed=[UNKNOWN])
    talk.refused("job_release", "invalid_release", "delay_s", assignment_id=name, delay_s=1e9)
    assert talk.good("job_complete", assignment_id=name, artifact={"any": 1})["state"] == "completed"


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_offered_what_it_may_do_and_refused_the_rest(driver: Any) -> None:
    """6.1: by its permissions, in the list and in the calls."""
    for permission in ("enqueue", "read", "claim"):
        with inside(Caller(permissions=[permission]).secret) as talk:
            mine = {name for name, needed in JOB_TOOLS.items() if needed == permission}
            assert set(talk.tools()) == mine
            for tool in JOB_TOOLS.keys() - mine:
                talk.refused(tool, "permission_denied")
    with inside(Caller(permissions=["enqueue"]).secret) as talk:
        talk.refused("job_create", "permission_denied", type="outside", lane=UNKNOWN)


def test_a_revoked_key_is_over_at_once(api: Caller, talk: Talk) -> None:
    """C25: in the middle of a session, for calls and for the list."""
    one = held(talk)
    keys.revoke(api.key.prefix)
    told = talk.refused("job_complete", "unauthenticated", assignment_id=one["assignment_id"], artifact={})
    assert api.secret not in str(told)
    for tool in JOB_TOOLS:
        assert talk.refused(tool, "unauthenticated") == told
    with pytest.raises(MCPError) as refused:
        talk.tools()
    assert refused.value.data["code"] == "unauthenticated"
    assert Job.objects.get().state == "leased"


def test_a_key_makes_no_more_calls_than_it_may(driver: Any) -> None:
    """C37: the bucket of the API's requests."""
    caller = Caller()
    keys.limit(caller.key.prefix, requests_per_s=1, request_burst=3)
    with inside(caller.secret) as talk:
        codes = [talk.said("job_get", id="x").structured_content["code"] for _ in range(5)]
        told = talk.refused("job_get", "rate_limited", id="x")
    assert codes[0] == "job_not_found"
    assert codes[-1] == "rate_limited"
    assert 0 < told["retry_after_s"] <= 1


# --- what is offered -------------------------------------------------------------------------------------------------


def test_each_tool_says_what_it_does_and_what_it_takes(talk: Talk) -> None:
    """D1: models read descriptions; clients ask people before what changes something for good."""
    offered = talk.tools()
    assert set(JOB_TOOLS) <= set(offered)
    for name, tool in offered.items():
        schema = tool.input_schema
        Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= schema["properties"].keys()
        assert len(tool.description) > 40, name
        untold = [field for field, said in schema["properties"].items() if not said.get("description")]
        assert untold == [], name
        hints = tool.annotations
        reads = name.endswith(("_get", "_list"))
        assert (hints.read_only_hint, hints.open_world_hint) == (reads, False)
        assert hints.destructive_hint is (name in ("job_complete", "lane_set_state", "lane_merge")), name
        assert hints.idempotent_hint is (reads or name in ("job_complete", "job_release")), name


def test_a_tool_that_there_is_not_is_refused_with_the_nearest(talk: Talk) -> None:
    """E2: by the protocol's own error, as it asks for."""
    with pytest.raises(MCPError) as refused:
        talk.said("job_creat\u0000")
    assert refused.value.data == {"code": "unknown_tool", "field": "name"}
    assert "job_create" in str(refused.value)


# --- hostile callers -------------------------------------------------------------------------------------------------


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE = {
    "a NUL": ({"x": "a\x00b"}, "invalid_text"), "half a character": ({"x": "\ud800"}, "invalid_text"),
    "a huge integer": ({"x": 2**70}, "integer_too_large"), "an endless integer": ({"x": 10**5000}, "integer_too_large"),
    "too deep": ({"x": _deep(100)}, "too_deep"),
    "too many keys": ({"x": {str(n): 0 for n in range(10_001)}}, "too_many_keys"),
    "too long": ({"x": "x" * 1_100_000}, "too_large"),
    "names of a class": ({"__class__": {"__init__": 1}, "x' OR 1=1 --": "<script>"}, None),
}


def test_hostile_arguments_are_refused_by_name_and_never_break_anything(talk: Talk) -> None:
    """RELIABILITY 5.7: the limits of the API's JSON, whatever the protocol's own reader takes."""
    for name, (value, code) in HOSTILE.items():
        result = talk.said("job_create", type="outside", input=value)
        assert result.is_error is (code is not None), name
        if code is not None:
            assert result.structured_content["code"] == code, (name, result.structured_content)
            assert len(result.content[0].text) < 1_000
        assert "Traceback" not in result.content[0].text
    assert Job.objects.count() == 1
    [one] = talk.good("job_claim")["assignments"]
    assert one["job"]["input"] == HOSTILE["names of a class"][0]


def test_what_we_did_not_expect_is_told_without_its_insides(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """E2: `internal_error`; the client goes on."""

    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError("the password is swordfish")

    with monkeypatch.context() as patch:
        patch.setattr(intake, "enqueue_many", broken)
        told = talk.refused("job_create", "internal_error", type="outside")
    assert "swordfish" not in str(told)
    assert talk.good("job_create", type="outside")["state"] == "queued"
