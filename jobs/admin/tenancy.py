"""Workspaces and tenants in the admin, with the way to what is theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from jobs.admin import finding, grant, showing
from jobs.admin.answering import Answer, AnsweringAdmin, refused
from jobs.admin.erasure import named
from jobs.admin.filters import WorkspaceFilter
from jobs.models import Tenant, Workspace
from jobs.models.permissions import Permission
from jobs.services import erasure, tenancy
from jobs.services.erasure import Foreseen

# Tenants of which the confirmation says in full what would go.
FORETOLD = 3


def _links(parameter: str, pk: Any) -> Any:
    names = (("job", "jobs"), ("deadletter", "dead letters"), ("claimline", "lines"))
    return format_html_join(" · ", '<a href="{}?{}={}">{}</a>', (
        (reverse(f"admin:jobs_{model}_changelist"), parameter, pk, label) for model, label in names))


class Demand:
    """Let conductors enqueue, and nobody else (E2, D2)."""

    name, verb, done, permission, batch, danger = "demand", "Demand a grant", "changed", Permission.MANAGE_KEYS, 1, True
    means = ("Keys and people without the role conductor cannot enqueue there any more, whatever else they may. Code "
             "of the site still can.")
    demanded = True

    def foresee(self, rows: Sequence[Workspace]) -> dict[Any, str]:
        """Those that are so already."""
        return {row.pk: "so_already" for row in rows if row.create_requires_grant is self.demanded}

    def give(self, rows: Sequence[Workspace], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return [None if tenancy.demand_grant(row, self.demanded, by=by) else "so_already" for row in rows]


class Waive(Demand):
    """Let everybody with the permission enqueue."""

    name, verb, danger, demanded = "waive", "Demand no grant", False, False
    means = "Whoever has the permission may enqueue there."


@admin.register(Workspace)
class WorkspaceAdmin(AnsweringAdmin):
    """The isolation boundary."""

    answers = (Demand(), Waive())
    list_display = ("slug", "name", "create_requires_grant", "created_at")
    fields = ("slug", "name", "create_requires_grant", "created_at", "members", "theirs")
    search_fields = ("slug",)
    search_help_text = "A whole slug."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By its slug."""
        return (queryset.filter(slug=search_term) if search_term else queryset), False

    @admin.display(description="members")
    def members(self, workspace: Workspace) -> Any:
        """The first of them, and where all are."""
        return grant.shown_members(workspace)

    @admin.display(description="its")
    def theirs(self, workspace: Workspace) -> Any:
        """Lists narrowed to it."""
        tenants = format_html('<a href="{}?workspace={}">tenants</a> · ', reverse("admin:jobs_tenant_changelist"),
                              workspace.pk)
        return tenants + _links("workspace", workspace.pk)


def _unable(tenant: Tenant) -> str | None:
    """Why nothing can be done to it."""
    if tenant.subject is None:
        return "system_tenant"
    return "tenant_deleting" if tenant.deleting_at is not None else None


def _each(rows: Sequence[Tenant], verb: Callable[[Tenant], object], already: str) -> list[str | None]:
    def one(tenant: Tenant) -> str | None:
        answers: list[object] = []
        return refused(lambda: answers.append(verb(tenant))) or (already if answers == [False] else None)

    return [one(tenant) for tenant in rows]


class Archive:
    """Take no new jobs for tenants (B37)."""

    name, verb, done, permission, batch, danger = "archive", "Archive", "archived", Permission.ARCHIVE, 50, False
    means = ("They take no new jobs until somebody restores them. Jobs that were admitted go on, and so does what they "
             "continue with; callers cannot cancel them, and nothing is published for them.")

    def foresee(self, rows: Sequence[Tenant]) -> dict[Any, str]:
        """The house's own, and those that are archived."""
        return {t.pk: why for t in rows if (why := _unable(t) or ("archived_already" if t.archived_at else None))}

    def give(self, rows: Sequence[Tenant], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda tenant: tenancy.archive(tenant, by=by, reason=reason), "archived_already")


class Restore:
    """Take jobs for tenants again (B37)."""

    name, verb, done, permission, batch, danger = "restore", "Restore", "restored", Permission.ARCHIVE, 50, False
    means = "They take jobs again."

    def foresee(self, rows: Sequence[Tenant]) -> dict[Any, str]:
        """Those that are not archived."""
        return {t.pk: why for t in rows if (why := _unable(t) or (None if t.archived_at else "not_archived"))}

    def give(self, rows: Sequence[Tenant], by: str, reason: str) -> list[str | None]:
        """Through the service."""
        return _each(rows, lambda tenant: tenancy.restore(tenant, by=by), "not_archived")


class _Erasing:
    """What the confirmations of erasures have in common."""

    def foretell(self, rows: Sequence[Tenant]) -> list[tuple[str, str]]:
        """What would go, tenant by tenant."""
        return [(str(tenant), _told(erasure.foresee(tenant))) for tenant in rows[:FORETOLD]]


class Redact(_Erasing):
    """Redact what the ended jobs of tenants say (E13)."""

    name, verb, done, permission, batch, danger = "redact", "Redact", "marked for redaction", Permission.ERASE, 1, True
    means = ("Inputs, artifacts, checkpoints, keys, messages and log lines of all their jobs that have ended are "
             "emptied for good. The jobs, their receipts and the tenants stay; active jobs go on as they are.")

    def foresee(self, rows: Sequence[Tenant]) -> dict[Any, str]:
        """The house's own, and those that go."""
        return {t.pk: why for t in rows if (why := _unable(t))}

    def give(self, rows: Sequence[Tenant], by: str, reason: str) -> list[str | None]:
        """Begun; the duty carries it on."""
        return [refused(lambda t=t: erasure.redact_tenant(t, by=by, reason=reason)) for t in rows]  # type: ignore[misc]


class Delete(_Erasing):
    """Delete tenants with everything of theirs (B38)."""

    name, verb, done, permission, batch, danger = "delete", "Delete", "marked for deletion", Permission.ERASE, 1, True
    means = ("From now on they take no jobs and none is claimed. What runs is cancelled, and then everything of theirs "
             "is deleted for good: jobs with all that belongs to them, targets, limits, keys, owners, and the "
             "tenants themselves. This cannot be stopped or undone.")

    def foresee(self, rows: Sequence[Tenant]) -> dict[Any, str]:
        """The house's own, and those that go already."""
        return {t.pk: why for t in rows if (why := _unable(t))}

    def give(self, rows: Sequence[Tenant], by: str, reason: str) -> list[str | None]:
        """Begun; the duty carries it on."""
        return [refused(lambda t=t: erasure.delete(t, by=by, reason=reason)) for t in rows]  # type: ignore[misc]


def _told(seen: Foreseen) -> str:
    """`8 jobs, over 10,000 receipts; 7 are active; blocked: ...`."""
    parts = [f"{f'over {seen.most:,}' if n > seen.most else f'{n:,}'} {named(table, n)}"
             for table, n in seen.counts.items() if n]
    text = ", ".join(parts) or "no jobs"
    if seen.active:
        text += f"; of the newest jobs {seen.active:,} are active"
    return text + (f"; blocked: {'; '.join(seen.blocked)}" if seen.blocked else "")


@admin.register(Tenant)
class TenantAdmin(AnsweringAdmin):
    """Whose work it is."""

    answers = (Archive(), Restore(), Redact(), Delete())
    list_display = ("shown_subject", "workspace", "shown_state", "archived_at", "created_at")
    list_filter = (WorkspaceFilter,)
    list_select_related = ("workspace",)
    fields = ("subject", "workspace", "shown_state", "archived_at", "archived_by", "archive_reason", "deleting_at",
              "erasure", "created_at", "theirs")
    search_fields = ("pk",)
    search_help_text = "A whole subject."

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By its subject, workspace by workspace, or by its number."""
        if not search_term:
            return queryset, False
        workspaces = list(Workspace.objects.order_by("pk").values_list("pk", flat=True)[: finding.MOST_TENANTS])
        return queryset.filter(workspace_id__in=workspaces, subject=search_term), False

    @staticmethod
    def _log(request: HttpRequest, answer: Answer, rows: Sequence[Any], reason: str) -> None:
        """By number: the log outlives the tenant, and must not name its subject."""
        kind = ContentType.objects.get_for_model(Tenant)
        LogEntry.objects.bulk_create([LogEntry(
            user_id=int(request.user.pk or 0), content_type=kind, object_id=str(tenant.pk),
            object_repr=f"tenant {tenant.pk}", action_flag=CHANGE,
            change_message=f"{answer.done.capitalize()}: {reason}") for tenant in rows])

    @admin.display(description="state")
    def shown_state(self, tenant: Tenant) -> Any:
        """As a badge."""
        if tenant.deleting_at is not None:
            return showing.badge("being deleted", "failed")
        return showing.badge("archived", "paused") if tenant.archived_at else showing.badge("active", "completed")

    @admin.display(description="erasure")
    def erasure(self, tenant: Tenant) -> Any:
        """The latest one, and how it stands."""
        last = erasure.latest(tenant.pk)
        if last is None:
            return showing.NOTHING
        return format_html('<a href="{}">{}: {}</a>', reverse("admin:jobs_erasure_change", args=[last.pk]), last.verb,
                           last.end or last.phase)

    @admin.display(description="subject")
    def shown_subject(self, tenant: Tenant) -> str:
        """The untenanted one has none."""
        return tenant.subject or "(untenanted)"

    @admin.display(description="its")
    def theirs(self, tenant: Tenant) -> Any:
        """Lists narrowed to it."""
        return _links("tenant", tenant.pk)
