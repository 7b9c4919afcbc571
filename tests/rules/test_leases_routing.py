"""Heartbeats and time-outs by the lease, and routing rules: agent first, then type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import leases, routing
from jobs.routing import Rule

RULES = (
    Rule("receipt-codex", type_prefix="factory.integration."),
    Rule("receipt-codex", agent="codex"),
    Rule("receipt-control", agent="factory-control"),
    Rule("receipt-chat", type_prefix="factory."),
)


@pytest.mark.parametrize(("lease_s", "beat_s"), [
    (1, 1), (2, 1), (3, 1), (30, 10), (300, 100), (900, 200), (3_600, 200)])
def test_a_heartbeat_is_a_third_of_the_lease_within_its_bounds(lease_s: float, beat_s: float) -> None:
    """A45, E8, E15: a third of min(lease, 600 s), not below one second."""
    assert leases.heartbeat_s(lease_s) == beat_s


@given(st.floats(3, 7_200), st.floats(0.01, 10_000))
def test_an_override_only_lowers_it_and_two_renewals_fit_in_a_lease(lease_s: float, override_s: float) -> None:
    """A45."""
    assert leases.heartbeat_s(lease_s, override_s) <= min(leases.heartbeat_s(lease_s), override_s)
    assert 2 * leases.heartbeat_s(lease_s, override_s) < lease_s


@pytest.mark.parametrize(("lease_s", "timeout_s"), [(1, 5), (5, 5), (6, 5), (7, 6), (300, 299), (900, 899)])
def test_a_timeout_that_nobody_declares_follows_the_lease(lease_s: float, timeout_s: float) -> None:
    """A44: lease less a second, at least five."""
    assert leases.timeout_s(lease_s) == timeout_s


@pytest.mark.parametrize(("agent", "type_", "group"), [
    ("codex", "factory.dispatch", "receipt-codex"),
    ("factory-control", "factory.integration.publish", "receipt-control"),
    ("factory", "factory.integration.publish", "receipt-codex"),
    (None, "factory.integration.validate", "receipt-codex"),
    ("factory", "factory.task.run", "receipt-chat"),
    (None, "noop", "default"),
    ("nobody", "noop", "default"),
])
def test_the_agent_routes_before_the_type_and_the_definition_last(agent: str | None, type_: str, group: str) -> None:
    """A23: also where a rule on types stands before the rule on the agent."""
    assert routing.route(RULES, agent, type_, "default") == group


def test_a_rule_may_be_about_an_agent_and_types_at_once() -> None:
    """A23: what the agent is asked beside goes where it always goes."""
    rule = Rule("receipt-codex", agent="codex", type_prefix="factory.")
    groups = [routing.route([rule], agent, type_, "own")
              for agent, type_ in (("codex", "factory.run"), ("codex", "noop"), ("factory", "factory.run"))]
    assert groups == ["receipt-codex", "own", "own"]
    assert not Rule("nowhere").matches("codex", "noop")


def test_a_rule_on_an_agent_says_nothing_about_jobs_without_one() -> None:
    """A23."""
    assert routing.route([Rule("x", agent="codex")], None, "codex", "own") == "own"


def test_a_group_that_the_rules_overrule_is_reported() -> None:
    """A24: detected and reported, with both groups named."""
    said = routing.disagreements(RULES, [("factory.dispatch", "receipt-control"), ("factory.task.run", "receipt-chat"),
                                         ("noop", "default")])
    assert len(said) == 1
    assert all(word in said[0] for word in ("factory.dispatch", "receipt-control", "receipt-chat"))
