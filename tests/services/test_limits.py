"""Limits that are set while jobs are already waiting."""

from __future__ import annotations

import pytest
from django.db import transaction

from jobs.errors import Invalid
from jobs.models import ClaimLine, Job
from jobs.services import limits, tenancy
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.recovery import Closing
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


def test_a_cap_set_while_jobs_run_counts_them(driver: Driver) -> None:
    """C9: attempts that were claimed without a cap are counted under the one that is set now."""
    for _ in range(5):
        driver.enqueue()
    running = driver.claim(2)
    limits.set_limits(tenancy.workspace(), tenant_concurrency=2)
    assert driver.claim(5) == []
    driver.complete(running[0])
    assert len(driver.claim(5)) == 1


@pytest.mark.parametrize("scope", ["tenant", "workspace"])
def test_a_group_limit_set_while_jobs_run_counts_them(driver: Driver, scope: str) -> None:
    """C11, E2."""
    _waiting(3, "printer")
    running = driver.claim(1)
    limits.set_limits(tenancy.workspace(), exclusive_group_max=1, exclusive_group_scope=scope)
    assert driver.claim(5) == []
    driver.complete(running[0])
    assert len(driver.claim(5)) == 1


def test_a_change_of_scope_counts_running_jobs_anew(driver: Driver) -> None:
    """E2: the cap's key carries the scope."""
    limits.set_limits(tenancy.workspace(), exclusive_group_max=1)
    for tenant in ("a", "b"):
        enqueue_many([Request("echo", {}, Options(exclusive_group="printer", tenant=tenant))])
    assert len(driver.claim(1)) == 1
    limits.set_limits(tenancy.workspace(), exclusive_group_scope="workspace")
    assert driver.claim(5) == []


def test_limits_can_be_set_inside_a_transaction_of_the_callers(driver: Driver) -> None:
    """DESIGN 4: what follows them comes after its commit."""
    _waiting(4, "printer")
    with transaction.atomic():
        limits.set_limits(tenancy.workspace(), exclusive_group_max=1)
        assert Job.objects.filter(gate=None).count() == 4
    assert Job.objects.filter(gate=None).count() == 1


def test_a_cap_is_exact_in_one_claim_over_several_queues(driver: Driver) -> None:
    """C9: what a claim took for one queue counts for the next."""
    limits.set_limits(tenancy.workspace(), tenant_concurrency=1)
    for queue in ("chat", "collect", "steer"):
        driver.enqueue(queue=queue)
    assert len(driver.claim(10)) == 1


def test_second_lines_of_a_tenant_neither_shrink_a_claim_nor_stay(driver: Driver) -> None:
    """CLAIM: callers at REPEATABLE READ open a line each; the closing duty merges them."""
    for _ in range(30):
        driver.enqueue()
    line = ClaimLine.objects.get()
    ClaimLine.objects.bulk_create([
        ClaimLine(workspace_id=line.workspace_id, tenant_id=line.tenant_id, worker_group=line.worker_group,
                  queue=line.queue) for _ in range(40)])
    assert len(driver.claim(20)) == 20
    closing = Closing()
    while closing.tick():
        pass
    assert ClaimLine.objects.count() == 1
    assert len(driver.claim(20)) == 10


def test_parking_parks_every_line_of_a_tenant(driver: Driver) -> None:
    """CLAIM."""
    limits.set_limits(tenancy.workspace(), tenant_concurrency=1)
    for _ in range(3):
        driver.enqueue()
    line = ClaimLine.objects.get()
    ClaimLine.objects.create(workspace_id=line.workspace_id, tenant_id=line.tenant_id, worker_group=line.worker_group,
                             queue=line.queue)
    assert len(driver.claim(3)) == 1
    assert driver.claim(3) == []
    assert set(ClaimLine.objects.values_list("parked", flat=True)) == {"cap"}
