"""The catalogue of what may be enqueued (B5, B7, B10, B43)."""

from __future__ import annotations

from tests.edges.caller import Caller, problem


def test_the_catalogue_says_what_may_be_enqueued_and_by_which_rules(api, settings):
    """B5, B7, B10, B30, E8, B43: contracts and limits; credits are told and limit nothing."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.outside",
                                                      "tests.edges.catalogued"]}
    found = {(d["type"], d["version"]): d for d in api.get("/definitions").json()["definitions"]}
    assert not [name for name, _ in found if name == "job-ended"]
    old, new = found["report", 1], found["report", 2]
    assert (old["current"], new["current"]) == (False, True)
    assert (new["label"], new["description"], new["executor"], new["queue"]) == (
        "Monthly report", "Writes it.", "in_process", "chat")
    assert new["origins"] == ["planner", "user"]
    assert new["stages"] == [{"stage": "read", "label": "Reading"}, {"stage": "write", "label": "Writing"}]
    limits = new["limits"]
    assert (limits["max_ai_credits"], limits["max_input_bytes"], limits["duration_scope"]) == (40, 100, "chain")
    assert (limits["lease_s"], limits["timeout_s"], limits["max_duration_s"]) == (
        {"of": "input", "at_most": 3_600}, {"of": "lease"}, 7_200)
    assert new["retry"] == {"max_attempts": 2, "base_delay_s": 1, "max_delay_s": 1, "retry_on": ["no_luck"],
                            "deadline_s": None, "deadline_at": None}
    assert new["input_schema"]["required"] == ["month"]
    assert new["input_schema"]["additionalProperties"] is False
    assert new["artifact_schema"] == {"type": "string"}
    assert (found["disabled", 1]["enabled"], found["disabled", 1]["enqueueable"]) == (False, False)
    assert (found["outside-stopped", 1]["runs"], found["outside-stopped", 1]["executor"]) == (False, "external")
    assert (found["scheduled-only", 1]["enqueueable"], found["never-retried", 1]["retry"]) == (False, None)
    # More than it has said that a job may use: nobody counts (B10).
    assert api.post("/jobs", {"type": "report", "input": {"month": 3}}).status_code == 202


def test_one_type_is_asked_for_by_its_name_and_readers_alone_may(api):
    """B5, E2."""
    assert [d["type"] for d in api.get("/definitions?type=echo").json()["definitions"]] == ["echo"]
    told = problem(api.get("/definitions?type=ecco"), 404, "definition_not_found")
    assert "'echo'" in told["detail"]
    problem(api.get("/definitions?name=echo"), 400, "unknown_parameter", "name")
    problem(Caller(permissions=["enqueue", "claim"]).get("/definitions"), 403, "permission_denied")
    problem(api.post("/definitions", {}), 405, "method_not_allowed")
