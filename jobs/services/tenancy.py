"""Workspaces and tenants: finding them, making them, archiving and restoring them (B37). Deleting is `erasure`'s."""

from __future__ import annotations

import logging

from django.db import transaction

from jobs import clock, codecs
from jobs.conf import conf
from jobs.errors import Conflict, Invalid, NotFound, Refused
from jobs.models import Tenant, Workspace

log = logging.getLogger("jobs.tenancy")


class SystemTenant(Refused):
    """The untenanted tenant of a workspace is the house's own: it cannot be archived or deleted."""

    code = "system_tenant"


class TenantDeleting(Conflict):
    """This tenant is being deleted for good."""

    code = "tenant_deleting"

SUBJECT_LIMIT = 255


def make_defaults() -> None:
    """The default workspace and its system tenant, if missing (E2)."""
    make_workspace(conf().WORKSPACE)


def make_workspace(slug: str, name: str = "") -> Workspace:
    """The workspace of this slug with its system tenant, made if missing."""
    with transaction.atomic():
        Workspace.objects.bulk_create([Workspace(slug=slug, name=name)], ignore_conflicts=True)
        workspace = Workspace.objects.get(slug=slug)
        Tenant.objects.bulk_create([Tenant(workspace=workspace, subject=None)], ignore_conflicts=True)
    return workspace


def workspace(slug: str | None = None) -> Workspace:
    """The workspace of this slug, by default the site's own; raises NotFound."""
    wanted = slug or conf().WORKSPACE
    # What no database holds is not asked for.
    found = Workspace.objects.filter(slug=wanted).first() if wanted.isprintable() else None
    if found is None:
        raise NotFound(f"There is no workspace {codecs.printable(wanted, 64)!r}.", field="workspace")
    return found


def demand_grant(workspace: Workspace, demanded: bool, *, by: str) -> bool:
    """Whether only conductors may enqueue there (E2, D2); false where it was so already. From the next request on."""
    done = Workspace.objects.filter(pk=workspace.pk, create_requires_grant=not demanded).update(
        create_requires_grant=demanded)
    if done:
        word = "demands" if demanded else "needs not"
        log.info("workspace %s %s a grant to enqueue, by %s", workspace.slug, word, by)
    return bool(done)


def tenant(workspace: Workspace, subject: str | None, *, make: bool = False) -> Tenant:
    """The tenant of a workspace (None: its system tenant), made on first use if `make`; raises NotFound."""
    if subject is not None:
        check_subject(subject)
    found = Tenant.objects.filter(workspace=workspace, subject=subject).first()
    if found is None and make and subject is not None:
        Tenant.objects.bulk_create([Tenant(workspace=workspace, subject=subject)], ignore_conflicts=True)
        found = Tenant.objects.filter(workspace=workspace, subject=subject).first()
    if found is None:
        raise no_such_tenant()
    return found


def no_such_tenant() -> NotFound:
    """What is said of a tenant that is not there."""
    return NotFound("There is no such tenant.", field="tenant_subject")


def check_subject(subject: str) -> None:
    """A tenant's subject is 1 to 255 printable characters; raises Invalid."""
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LIMIT or not subject.isprintable():
        raise Invalid(f"must be 1 to {SUBJECT_LIMIT} printable characters", field="tenant_subject",
                      code="invalid_tenant_subject")


def archive(tenant: Tenant, *, by: str, reason: str) -> bool:
    """Take no new jobs for this tenant; what was admitted goes on, and so does what it continues with (B37, E3).

    Meanwhile its jobs cannot be requeued, callers cannot cancel them, and publication hooks cannot commit. False where
    it was archived already. Raises SystemTenant, TenantDeleting and NotFound. Joins the caller's transaction.
    """
    _check(tenant)
    done = Tenant.objects.filter(pk=tenant.pk, archived_at=None, deleting_at=None).update(
        archived_at=clock.Now(), archived_by=by[:200], archive_reason=reason)
    return _noted(tenant, bool(done), "archived", by)


def restore(tenant: Tenant, *, by: str) -> bool:
    """Take jobs for this tenant again; false where it was not archived. Raises as `archive` does (B37)."""
    _check(tenant)
    done = Tenant.objects.filter(pk=tenant.pk, deleting_at=None).exclude(archived_at=None).update(
        archived_at=None, archived_by=None, archive_reason=None)
    return _noted(tenant, bool(done), "restored", by)


def _check(tenant: Tenant) -> None:
    if tenant.subject is None:
        raise SystemTenant()


def _noted(tenant: Tenant, done: bool, word: str, by: str) -> bool:
    if done:
        # Not its subject: logs are kept longer than what is erased.
        log.info("tenant %d was %s by %s", tenant.pk, word, by)
        return True
    now = Tenant.objects.filter(pk=tenant.pk).values_list("deleting_at", flat=True)
    if not now:
        raise NotFound("There is no such tenant.", field="tenant_subject")
    if now[0] is not None:
        raise TenantDeleting()
    return False


def inactive(tenant_id: int) -> Refused | None:
    """Why nothing may be published for this tenant, if so: it is archived, or is gone (B37)."""
    active = Tenant.objects.filter(pk=tenant_id, archived_at=None).exists()
    return None if active else Refused("This tenant is archived; nothing is published for it.", code="tenant_archived")
