"""Retry budgets of tenants: so many restarts in a window, and no other tenant is affected (C20, E4)."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from jobs.models import DeadLetter, Job, TenantWindow
from jobs.outcomes import Failed
from jobs.retry import RetryPolicy
from jobs.services import budgets, dead_letters, limits, recovery, settlement, tenancy
from jobs.store import windows
from jobs.store.moves import Moved
from jobs.store.windows import Kind
from tests import database as db
from tests.driver import Driver

MANY = RetryPolicy(max_attempts=50, base_delay_s=1, max_delay_s=1)


def budget(n: int | None, subject: str | None = None, window_s: int | None = 3600) -> int:
    """Give a tenant, or the whole workspace, a retry budget; the tenant's id."""
    workspace = tenancy.workspace()
    tenant = tenancy.tenant(workspace, subject, make=True)
    limits.set_limits(workspace, tenant if subject else None, retry_budget=n, retry_budget_window_s=window_s)
    return tenant.pk


def fail_all(driver: Driver, n: int, **more: Any) -> None:
    jobs = driver.claim(n)
    assert len(jobs) == n
    settlement.settle([settlement.Report(j.id, j.fence, Failed("flaky")) for j in jobs], driver.claimer.by)


def test_failures_beyond_the_budget_are_dead_letters_and_those_within_it_run_again(driver: Driver) -> None:
    """C20, C24: one batch of five failures, a budget of three; the oldest jobs have them."""
    tenant = budget(3, "busy")
    ids = [driver.enqueue(tenant="busy", retry=MANY) for _ in range(5)]
    fail_all(driver, 5)
    assert [driver.job(id_).state for id_ in ids] == ["queued"] * 3 + ["failed"] * 2
    letters = DeadLetter.objects.filter(job_id__in=ids)
    assert {(d.reason, d.reason_code) for d in letters} == {("retry_budget_exhausted", "flaky")}
    assert all(driver.job(id_).failures == 1 for id_ in ids)
    assert TenantWindow.objects.get(tenant_id=tenant).spent == 3


def test_another_tenant_of_the_workspace_is_not_affected(driver: Driver) -> None:
    """C20, E14.8: in the very same batch."""
    budget(1, "busy")
    calm = driver.enqueue(tenant="calm", retry=MANY)
    busy = [driver.enqueue(tenant="busy", retry=MANY) for _ in range(3)]
    fail_all(driver, 4)
    assert driver.job(calm).state == "queued"
    assert [driver.job(id_).state for id_ in busy] == ["queued", "failed", "failed"]
    assert not TenantWindow.objects.filter(tenant_id=budget(None, "calm")).exists()


def test_the_next_window_has_a_budget_of_its_own(driver: Driver) -> None:
    """C20: it begins with the first restart after the last one's end."""
    tenant = budget(1, "busy", window_s=60)
    ids = [driver.enqueue(tenant="busy", retry=MANY) for _ in range(3)]
    fail_all(driver, 2)
    assert [driver.job(id_).state for id_ in ids] == ["queued", "failed", "queued"]
    db.pass_time(61)
    fail_all(driver, 1)
    assert driver.job(ids[2]).state == "queued"
    window = TenantWindow.objects.get(tenant_id=tenant)
    assert window.spent == 1
    left = budgets.left(tenant)
    assert left is not None
    assert left.left == 0
    assert 0 < left.left_s <= 60


def test_a_lapse_spends_the_budget_as_well(driver: Driver) -> None:
    """C20, C21, E4: "every restart after a failure or lapse"."""
    tenant = budget(1, "busy")
    ids = [driver.enqueue(tenant="busy", retry=MANY) for _ in range(2)]
    assert len(driver.claim(2)) == 2
    db.pass_time(3600 * 24)
    recovery.Recovery().run()
    assert sorted(driver.job(id_).state for id_ in ids) == ["failed", "queued"]
    assert DeadLetter.objects.get().reason == "retry_budget_exhausted"
    assert TenantWindow.objects.get(tenant_id=tenant).spent == 1


def test_what_uses_no_retry_spends_nothing(driver: Driver) -> None:
    """C20, E4: a release, an interruption, a terminal failure, and a last one."""
    budget(5, "busy")
    job = driver.enqueue(tenant="busy", retry=MANY)
    driver.release(driver.claim_one())
    driver.interrupt(driver.claim_one())
    driver.fail(driver.claim_one(), "tool_refused")
    assert driver.job(job).state == "failed"
    assert DeadLetter.objects.get().reason == "terminal_error"
    driver.enqueue(tenant="busy", retry=RetryPolicy(max_attempts=1))
    driver.fail(driver.claim_one())
    assert not TenantWindow.objects.exists()


def test_a_budget_of_none_is_a_dead_letter_at_the_first_failure(driver: Driver) -> None:
    """C20: 0 is a budget too, and the workspace's holds for tenants without one of their own."""
    budget(0)
    job = driver.enqueue(tenant="any", retry=MANY)
    driver.fail(driver.claim_one())
    assert driver.job(job).state == "failed"
    budget(1, "any")
    job = driver.enqueue(tenant="any", retry=MANY)
    driver.fail(driver.claim_one())
    assert driver.job(job).state == "queued"


def test_a_tenant_without_a_budget_costs_no_statement_more(driver: Driver, django_assert_num_queries: Any) -> None:
    """DESIGN 5: the settling statements read what the budget needs."""
    driver.enqueue(retry=MANY)
    job = driver.claim_one()
    with django_assert_num_queries(99, exact=False) as seen:
        settlement.settle([settlement.Report(job.id, job.fence, Failed("flaky"))], driver.claimer.by)
    assert not [q["sql"] for q in seen.captured_queries if "jobs_tenant_window" in (q["sql"] or "")]


def test_requeues_spend_it_and_are_told_when_to_come_back(driver: Driver) -> None:
    """C20, C28: 429 `rate_limited` with Retry-After, all of them or none."""
    tenant = budget(3, "busy")
    budgets.spend(tenant, 2)
    with pytest.raises(budgets.RateLimited) as refused:
        budgets.spend(tenant, 2)
    assert refused.value.reason_code == "rate_limited"
    assert 0 < refused.value.facts["retry_after_s"] <= 3600
    assert TenantWindow.objects.get(tenant_id=tenant).spent == 2
    assert budgets.take({tenant: 5}) == {tenant: 1}
    free = tenancy.tenant(tenancy.workspace(), "free", make=True).pk
    assert budgets.take({free: 7}) == {free: 7}
    budgets.spend(free, 1000)


def test_what_a_caller_rolls_back_was_not_spent(driver: Driver) -> None:
    """C20: a requeue joins the caller's transaction."""
    tenant = budget(3, "busy")
    with transaction.atomic():
        budgets.spend(tenant, 3)
        transaction.set_rollback(True)
    left = budgets.left(tenant)
    assert left is not None
    assert left.left == 3


def test_a_clock_that_was_set_back_does_not_keep_a_window_open_for_ever(driver: Driver) -> None:
    """C20: a window that begins ahead of now begins anew."""
    tenant = budget(1, "busy", window_s=60)
    budgets.spend(tenant)
    with pytest.raises(budgets.RateLimited):
        budgets.spend(tenant)
    TenantWindow.objects.update(began_at=F("began_at") + timedelta(days=365))
    budgets.spend(tenant)


def test_a_rate_of_requeues_does_not_close_for_ever_either(driver: Driver) -> None:
    """C28: the same windows; each kind of spending has one of its own."""
    tenant = budget(1, "busy", window_s=60)
    limits.set_limits(tenancy.workspace(), tenancy.tenant(tenancy.workspace(), "busy"), requeue_rate=1,
                      requeue_window_s=60)
    with transaction.atomic():
        assert [windows.take(kind, {tenant: 3}) for kind in Kind] == [{tenant: 1}] * 2
    TenantWindow.objects.filter(kind="requeue").update(began_at=F("began_at") + timedelta(days=365))
    with transaction.atomic():
        assert [windows.take(kind, {tenant: 3}) for kind in Kind] == [{tenant: 0}, {tenant: 1}]


def test_what_the_budget_refuses_does_not_use_up_the_rate(driver: Driver) -> None:
    """C20, C28: of three requeues the budget lets one go, and one is counted by the rate."""
    tenant = budget(0, "busy")
    for _ in range(3):
        driver.enqueue(tenant="busy", retry=MANY)
        driver.fail(driver.claim_one())
    budget(1, "busy")
    limits.set_limits(tenancy.workspace(), tenancy.tenant(tenancy.workspace(), "busy"), requeue_rate=5)
    letters = list(DeadLetter.objects.order_by("pk").values_list("pk", flat=True))
    answers = dead_letters.requeue_many(letters, by="x", limited=True)
    assert [isinstance(a, budgets.RateLimited) for a in answers] == [False, True, True]
    assert dict(TenantWindow.objects.filter(tenant_id=tenant).values_list("kind", "spent")) == \
        {"retry": 1, "requeue": 1}


def test_the_houses_own_letters_are_requeued_beyond_any_budget(driver: Driver) -> None:
    """DESIGN 5: what the house makes for itself nobody holds back."""
    budget(0)
    limits.set_limits(tenancy.workspace(), requeue_rate=0)
    driver.enqueue(tenant="busy", retry=MANY)
    driver.fail(driver.claim_one())
    letter = DeadLetter.objects.get()
    assert isinstance(dead_letters.requeue_many([letter.pk], by="x")[0], budgets.RateLimited)
    DeadLetter.objects.update(house=True)
    assert isinstance(dead_letters.requeue_many([letter.pk], by="x", limited=True)[0], Moved)
    assert not TenantWindow.objects.exclude(spent=0).exists()


def test_the_budget_is_exact_whoever_spends_it_at_the_same_time(driver: Driver) -> None:
    """C20: eight at once, a budget of twenty, each wants five."""
    tenant = budget(20, "busy")
    granted: list[int] = []
    ready = threading.Barrier(8)

    def work() -> None:
        try:
            ready.wait()
            for _ in range(5):
                granted.append(budgets.take({tenant: 1})[tenant])
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), sum(granted)) == (40, 20)
    assert TenantWindow.objects.get(tenant_id=tenant).spent == 20


def test_a_failure_that_the_database_did_not_take_is_given_back(driver: Driver) -> None:
    """B23, C20: a strict lease had run out, so that nothing was restarted."""
    tenant = budget(5, "busy")
    driver.enqueue("strict", tenant="busy", retry=MANY)
    job = driver.claim_one()
    db.pass_time(3600)
    driver.fail(job)
    assert Job.objects.get().state == "leased"
    assert TenantWindow.objects.get(tenant_id=tenant).spent == 0
