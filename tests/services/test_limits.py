"""Limits that are set while jobs are already waiting."""

from __future__ import annotations

import pytest

from jobs.errors import Invalid
from jobs.models import Job
from jobs.services import limits, tenancy
from jobs.services.intake import Options, Request, enqueue_many
from tests.driver import Driver


def _waiting(n: int, group: str) -> None:
    enqueue_many([Request("echo", {}, Options(exclusive_group=group)) for _ in range(n)])


def test_setting_a_group_limit_holds_what_already_waits_beyond_it(driver: Driver) -> None:
    """C11, CLAIM: all but the first in line leave the claim's index at once, in batches."""
    _waiting(2_500, "printer")
    limits.set_limits(tenancy.workspace(), exclusive_group_max=2)
    assert Job.objects.filter(gate="exclusive").count() == 2_498
    free = list(Job.objects.filter(gate=None).order_by("id").values_list("id", flat=True))
    assert free == list(Job.objects.order_by("id").values_list("id", flat=True)[:2])
    assert len(driver.claim(10)) == 2


def test_raising_and_removing_a_group_limit_lets_held_jobs_in(driver: Driver) -> None:
    """C11, C37."""
    limits.set_limits(tenancy.workspace(), exclusive_group_max=1)
    _waiting(6, "printer")
    assert Job.objects.filter(gate=None).count() == 1
    limits.set_limits(tenancy.workspace(), exclusive_group_max=3)
    assert Job.objects.filter(gate=None).count() == 3
    limits.set_limits(tenancy.workspace(), exclusive_group_max=None)
    assert Job.objects.filter(gate=None).count() == 6


def test_a_limit_of_the_whole_workspace_counts_all_tenants(driver: Driver) -> None:
    """E2: `exclusive_group_scope` workspace."""
    for tenant in ("a", "b"):
        enqueue_many([Request("echo", {}, Options(exclusive_group="printer", tenant=tenant)) for _ in range(3)])
    limits.set_limits(tenancy.workspace(), exclusive_group_max=2, exclusive_group_scope="workspace")
    assert Job.objects.filter(gate=None).count() == 2
    assert len(driver.claim(10)) == 2


def test_raising_a_tenants_cap_brings_its_parked_line_back(driver: Driver) -> None:
    """C9, C37."""
    limits.set_limits(tenancy.workspace(), tenant_concurrency=1)
    for _ in range(4):
        driver.enqueue()
    assert len(driver.claim(4)) == 1
    assert driver.claim(4) == []
    limits.set_limits(tenancy.workspace(), tenant_concurrency=3)
    assert len(driver.claim(4)) == 2


@pytest.mark.parametrize(("name", "value", "code"), [
    ("tenant_concurency", 1, "unknown_limit"), ("tenant_concurrency", 0, "invalid_limit"),
    ("tenant_concurrency", True, "invalid_limit"), ("tenant_concurrency", "5", "invalid_limit"),
    ("exclusive_group_scope", "planet", "invalid_limit"), ("claim_max_wait_s", -1, "invalid_limit"),
])
def test_impossible_limits_are_refused_by_name(driver: Driver, name: str, value: object, code: str) -> None:
    """C37."""
    with pytest.raises(Invalid) as caught:
        limits.set_limits(tenancy.workspace(), **{name: value})
    assert (caught.value.reason_code, caught.value.field) == (code, name)
