"""Workspaces and tenants: finding them, making them, archiving."""

from __future__ import annotations

from django.db import transaction

from jobs.conf import conf
from jobs.errors import Invalid, NotFound
from jobs.models import Tenant, Workspace

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
    try:
        return Workspace.objects.get(slug=slug or conf().WORKSPACE)
    except Workspace.DoesNotExist:
        raise NotFound(f"There is no workspace {slug or conf().WORKSPACE!r}.", field="workspace") from None


def tenant(workspace: Workspace, subject: str | None, *, make: bool = False) -> Tenant:
    """The tenant of a workspace (None: its system tenant), made on first use if `make`; raises NotFound."""
    if subject is not None:
        check_subject(subject)
    found = Tenant.objects.filter(workspace=workspace, subject=subject).first()
    if found is None and make and subject is not None:
        Tenant.objects.bulk_create([Tenant(workspace=workspace, subject=subject)], ignore_conflicts=True)
        found = Tenant.objects.filter(workspace=workspace, subject=subject).first()
    if found is None:
        raise NotFound("There is no such tenant.", field="tenant_subject")
    return found


def check_subject(subject: str) -> None:
    """A tenant's subject is 1 to 255 printable characters; raises Invalid."""
    if not isinstance(subject, str) or not 0 < len(subject) <= SUBJECT_LIMIT or not subject.isprintable():
        raise Invalid(f"must be 1 to {SUBJECT_LIMIT} printable characters", field="tenant_subject",
                      code="invalid_tenant_subject")
