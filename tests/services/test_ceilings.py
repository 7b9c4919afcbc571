"""Ceilings of what waits, and caps of what a request may ask: refused before the first write (C10, C12, C13, E3)."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from jobs import clock
from jobs.errors import Invalid
from jobs.models import Job, Tenant
from jobs.retry import RetryPolicy
from jobs.services import ceilings as services
from jobs.services import commands, dead_letters, intake, limits, tenancy
from jobs.services.ceilings import QueueSaturated
from jobs.services.intake import Options, Request, enqueue_many
from jobs.store import ceilings
from jobs.store.sql import rows
from tests.driver import Driver
from tests.edges.caller import everything


def ceiling(subject: str | None = None, **said: Any) -> None:
    workspace = tenancy.workspace()
    limits.set_limits(workspace, tenancy.tenant(workspace, subject, make=True) if subject else None, **said)


def refused(**options: Any) -> QueueSaturated:
    """The refusal of one more job, which changes nothing."""
    before = everything()
    with pytest.raises(QueueSaturated) as caught:
        intake.enqueue("echo", {}, **options)
    assert everything() == before
    assert caught.value.reason_code == "queue_saturated"
    assert 1 <= caught.value.retry_after_s <= 300
    return caught.value


def test_a_full_tenant_is_refused_and_its_neighbours_are_not(driver: Driver) -> None:
    """C10, E14.8: with the scope of the tenant, until one of its jobs has begun."""
    ceiling(tenant_ceiling=3)
    for _ in range(3):
        driver.enqueue(tenant="full")
    assert refused(tenant="full").scope == "tenant"
    driver.enqueue(tenant="other")
    driver.claim(4)
    driver.enqueue(tenant="full")


def test_a_full_workspace_refuses_every_tenant_also_a_new_one(driver: Driver) -> None:
    """C10: with the scope of the workspace; the tenant of a refused first job is not made."""
    ceiling(workspace_ceiling=2)
    driver.enqueue(tenant="a")
    driver.enqueue(tenant="b")
    assert refused(tenant="a").scope == "workspace"
    assert refused(tenant="never-seen").scope == "workspace"
    assert refused().scope == "workspace"
    assert not Tenant.objects.filter(subject="never-seen").exists()


def test_other_workspaces_and_the_houses_own_jobs_count_for_nobody(driver: Driver) -> None:
    """C10, E11."""
    tenancy.make_workspace("elsewhere")
    driver.enqueue(workspace="elsewhere")
    ceiling(workspace_ceiling=1)
    Job.objects.filter(pk=driver.enqueue()).update(worker_group="system")
    driver.enqueue()
    refused()


def test_held_jobs_wait_too_and_those_that_are_put_off_do_not(driver: Driver) -> None:
    """C10, C11: what an exclusive group holds back is counted; what is not due yet waits for its time."""
    ceiling(exclusive_group_max=1, tenant_ceiling=3, workspace_ceiling=3)
    driver.enqueue(delay_s=60)
    for _ in range(3):
        driver.enqueue(exclusive_group="printer")
    assert refused().scope == "tenant"
    ceiling(tenant_ceiling=None)
    assert refused().scope == "workspace"


def test_a_batch_counts_its_own_and_is_made_whole_or_not_at_all(driver: Driver) -> None:
    """C10, A18: and a second batch of the same transaction counts the first."""
    ceiling(tenant_ceiling=5)
    wanted = [Request("echo", {}, Options(tenant="t")) for _ in range(6)]
    with pytest.raises(QueueSaturated):
        enqueue_many(wanted)
    assert not Job.objects.exists()
    with transaction.atomic():
        enqueue_many(wanted[:3])
        with pytest.raises(QueueSaturated):
            enqueue_many(wanted[:3])
        enqueue_many(wanted[:2])
    assert Job.objects.count() == 5


def test_repeats_and_steers_pass(driver: Driver) -> None:
    """C10, E3.3: whoever makes no new job is not asked."""
    first = driver.enqueue(idempotency_key="k", session_key="s")
    ceiling(tenant_ceiling=0, workspace_ceiling=0)
    assert intake.enqueue("echo", {}, idempotency_key="k", session_key="s").repeated
    steered = intake.enqueue("echo", {"value": "x"}, session_key="s", singleton="steer")
    assert (steered.steered, steered.id) == (True, first)
    assert len(commands.unread([first])[first]) == 1
    refused(session_key="other", singleton="steer")


def test_what_cancel_or_supersede_would_free_is_not_counted(driver: Driver) -> None:
    """C10, E3.3: and the older job goes on."""
    ceiling(tenant_ceiling=1)
    waiting = driver.enqueue(session_key="s", target="t")
    refused(session_key="s", singleton="cancel")
    refused(target="t")
    assert driver.state(waiting) == "queued"


def test_a_requeue_ignores_ceilings(driver: Driver) -> None:
    """C10, E4."""
    job = driver.enqueue("breaks")
    driver.fail(driver.claim_one(), "tool_refused")
    ceiling(tenant_ceiling=0)
    dead_letters.requeue(Job.objects.get(pk=job).dead_letters.get(), by="user:test")
    assert driver.state(job) == "queued"


def test_retry_after_is_told_by_the_tenants_own_line(driver: Driver) -> None:
    """C10: four that have waited 40 s begin one in 10 s; a tenant with none in line is told a constant."""
    for _ in range(4):
        driver.enqueue(tenant="t")
    driver.pass_time(40)
    ceiling(workspace_ceiling=4)
    assert 10 <= refused(tenant="t").retry_after_s <= 13
    driver.pass_time(86_400)
    assert refused(tenant="t").retry_after_s == 300
    assert refused(tenant="new").retry_after_s == 10


def test_the_probe_reads_no_more_of_the_index_than_its_ceiling(driver: Driver) -> None:
    """C10, DESIGN 5: with 20,000 waiting, by an index alone and no further than the ceiling."""
    driver.enqueue(tenant="t")
    tenant = Tenant.objects.get(subject="t").pk
    columns = [f.column for f in Job._meta.concrete_fields if f.column != "id"]
    listed = ", ".join(columns)
    rows(f"INSERT INTO jobs_job (id, {listed}) SELECT gen_random_uuid(), {listed} FROM jobs_job,"
         " generate_series(1, 20000) RETURNING 1")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE jobs_job")
    assert ceilings.waiting_of_tenant(tenant, 500) == 500
    assert ceilings.waiting_of_tenant(tenant, 30_000) == 20_001
    workspace = tenancy.workspace().pk
    assert ceilings.waiting_of_workspace(workspace, 500) == 500
    for lines, column, id_ in ((ceilings._PAIRS, "tenant_id", tenant), (ceilings._LINES, "workspace_id", workspace)):
        sql = ceilings._COUNT.format(lines=lines, column=column, of=ceilings._OF[column], most=500)
        plan = "\n".join(r[0] for r in rows(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {sql}", [id_] * 4))
        assert "Index Only Scan using job_claim" in plan, plan
        assert "Seq Scan on jobs_job" not in plan, plan
        buffers = next(line for line in plan.splitlines() if "Buffers" in line)
        hit = sum(int(part.partition("=")[2]) for part in buffers.split() if "=" in part)
        # At most a row's page for each entry, where no vacuum has said yet that all may see it.
        assert hit < 1_200, plan


def test_what_a_paused_type_holds_back_counts_as_waiting(driver: Driver) -> None:
    """C10, C9: claims put it aside, behind its gate; enqueues must not go on without end meanwhile."""
    workspace = tenancy.workspace()
    for tenant in ("t", "other"):
        for _ in range(3):
            driver.enqueue(tenant=tenant)
            driver.enqueue("noop", tenant=tenant)
    for type_ in ("echo", "noop"):
        rows("UPDATE jobs_job SET gate = 'type' WHERE type = %s AND id IN (SELECT id FROM jobs_job WHERE type = %s"
             " ORDER BY tenant_id LIMIT 5) RETURNING 1", [type_, type_])
    tenant = Tenant.objects.get(subject="t").pk
    assert [ceilings.waiting_of_tenant(tenant, most) for most in (4, 6, 7)] == [4, 6, 6]
    assert [ceilings.waiting_of_workspace(workspace.pk, most) for most in (7, 12, 20)] == [7, 12, 12]
    ceiling("t", tenant_ceiling=6)
    refused(tenant="t")


def test_a_large_ceiling_is_counted_now_and_then_and_never_overshot_by_that(
        driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """C10: a count serves for a second or an eighth of the room, so that it costs an enqueue next to nothing."""
    monkeypatch.setattr(services, "EXACT", 0)
    monkeypatch.setattr(services, "_counts", {})
    monkeypatch.setattr(services.clock, "monotonic", lambda: 1.0)
    probes: list[int] = []

    def probe(id_: int, most: int) -> int:
        probes.append(id_)
        return ceilings.waiting_of_tenant(id_, most)

    monkeypatch.setitem(services._PROBES, "tenant", probe)
    ceiling(tenant_ceiling=100)
    for _ in range(12):
        driver.enqueue()
    assert len(probes) == 1
    driver.enqueue()
    assert len(probes) == 2
    enqueue_many([Request("echo", {}, Options()) for _ in range(87)])
    refused()
    counted = len(probes)
    driver.claim(1)
    refused()
    assert len(probes) == counted
    monkeypatch.setattr(services.clock, "monotonic", lambda: 3.0)
    driver.enqueue()


def test_a_policy_beyond_the_tenants_cap_is_refused_and_an_own_one_is_cut(driver: Driver) -> None:
    """C13, C18, C37: the request's own word is refused, the definition's and the site's are cut to the cap."""
    ceiling("t", max_attempts_cap=3)
    with pytest.raises(Invalid) as caught:
        intake.enqueue("echo", {}, tenant="t", retry=RetryPolicy(max_attempts=4))
    assert (caught.value.reason_code, caught.value.field) == ("retry_policy_exceeds_cap", "retry.max_attempts")
    assert driver.job(driver.enqueue(tenant="t")).max_attempts == 3
    assert driver.job(driver.enqueue(tenant="t", retry=RetryPolicy(max_attempts=2))).max_attempts == 2
    assert driver.job(driver.enqueue(tenant="t", retry=None)).max_attempts is None
    assert driver.job(driver.enqueue(retry=RetryPolicy(max_attempts=4))).max_attempts == 4


def test_a_cap_is_no_matter_of_a_request_that_steers(driver: Driver) -> None:
    """E3.3: no job is made, so nothing of it is beyond a cap."""
    job = driver.enqueue(session_key="s")
    ceiling(max_attempts_cap=1, max_cost_usd_cap=1)
    said = {"session_key": "s", "singleton": "steer", "retry": RetryPolicy(max_attempts=9), "max_cost_usd": 7}
    assert intake.enqueue("echo", {}, **said).id == job
    with pytest.raises(Invalid):
        intake.enqueue("echo", {}, **{**said, "session_key": "another"})


def test_a_maximum_cost_beyond_the_cap_is_refused(driver: Driver, settings: Any) -> None:
    """C12: unset caps are unlimited; the platform's holds where nobody has set one."""
    assert driver.job(driver.enqueue(max_cost_usd="99999.5")).max_cost_usd == Decimal("99999.5")
    ceiling(max_cost_usd_cap="2.50")
    assert driver.job(driver.enqueue(max_cost_usd=2.5)).max_cost_usd == Decimal("2.5")
    settings.JOBS = {**settings.JOBS, "PLATFORM_LIMITS": {"max_cost_usd_cap": 1}}
    for amount in ("1.000000001", 2):
        with pytest.raises(Invalid) as caught:
            intake.enqueue("echo", {}, max_cost_usd=amount)
        assert (caught.value.reason_code, caught.value.field) == ("max_cost_usd_exceeds_cap", "max_cost_usd")
    assert driver.job(driver.enqueue()).max_cost_usd is None


def test_a_definition_may_bound_what_requests_ask(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """C13: "<= per-kind cap"."""
    from jobs.conf import registry

    definition = registry().current("echo")
    object.__setattr__(definition, "max_attempts_cap", 2)
    try:
        with pytest.raises(Invalid) as caught:
            intake.enqueue("echo", {}, retry=RetryPolicy(max_attempts=3))
        assert caught.value.reason_code == "retry_policy_exceeds_cap"
        assert driver.job(driver.enqueue()).max_attempts == 2
    finally:
        object.__setattr__(definition, "max_attempts_cap", None)


def test_the_same_request_is_a_repeat_whatever_its_cap_has_become(driver: Driver) -> None:
    """C3, E3: known keys are answered before anything is judged."""
    said = {"idempotency_key": "k", "max_cost_usd": Decimal("5"),
            "retry": RetryPolicy(max_attempts=9, deadline_at=clock.now() + timedelta(seconds=60))}
    job = driver.enqueue(**said)
    ceiling(max_attempts_cap=1, max_cost_usd_cap=1, tenant_ceiling=0)
    driver.pass_time(3_600)
    again = intake.enqueue("echo", {}, **said)
    assert (again.id, again.repeated) == (job, True)
