"""Enqueue by hand: a form for one job, which says what is wrong with it field by field."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from jobs import sightings
from jobs.conf import conf, registry
from jobs.errors import Invalid, JobsError
from jobs.models import Job
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.pages.payload import edited, pretty
from jobs.registry import Definition
from jobs.routing import SYSTEM
from jobs.services import grants, intake, tenancy
from jobs.services.draft import Door

# What a text field in a browser is still good for.
EDITABLE = 256 * 1024
TEXTS = ("queue", "workspace", "tenant", "target", "exclusive_group", "job_id")
NUMBERS = {"priority": int, "delay_s": float}


class Enqueue(Page):
    """`/jobs/new/`; `?type=noop` chooses, `?like=<job>` fills the form in for who may see inputs."""

    template_name = "jobs/enqueue.html"
    permission_required = (Permission.VIEW.label, Permission.ENQUEUE.label)
    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form. Its key makes a job that is sent twice one job."""
        said = {"type": request.GET.get("type", ""), "input": "{}", "idempotency_key": f"console:{uuid4()}"}
        return self._shown(said | self._like(request.GET.get("like", "")))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Enqueue, and go to the job."""
        said = {name: value.strip() for name, value in request.POST.items() if isinstance(value, str)}
        try:
            grants.check_user_enqueues(tenancy.workspace(said.get("workspace")), request.user.pk)
            made = intake.enqueue(said.get("type", ""), edited(said.get("input", ""), self._kept(said.get("like", ""))),
                                  door=Door("console", "user", operator(request)), **options(said))
        except JobsError as error:
            return self._shown(said, status=400 if isinstance(error, Invalid) else 409, refused=error,
                               faults=getattr(error, "faults", []))
        messages.success(request, "This form had been sent before: here is its job." if made.repeated else "Enqueued.")
        for warning in made.warnings:
            messages.warning(request, warning["message"])
        return redirect("console:job", pk=made.id)

    def _model(self, name: str) -> Job | None:
        """The job that another one shall be like, for who may see what went into it."""
        try:
            job = sightings.job(UUID(name))
        except ValueError:
            return None
        return job if self.request.user.has_perm(Permission.VIEW_PAYLOAD.label) else None

    def _kept(self, name: str) -> str | None:
        job = self._model(name)
        return None if job is None else sightings.payload(job.pk, "input")

    def _like(self, name: str) -> dict[str, Any]:
        job = self._model(name)
        if job is None:
            return {}
        text = sightings.payload(job.pk, "input") or "{}"
        return {"like": str(job.pk), "type": job.type, "queue": job.queue, "workspace": job.workspace.slug,
                "tenant": job.tenant.subject or "", "priority": str(job.priority),
                "input": pretty(text) if len(text) <= EDITABLE else "{}"}

    def _shown(self, said: dict[str, Any], status: int = 200, **more: Any) -> HttpResponse:
        context = self.get_context_data(said=said, types=offered(), queues=conf().QUEUES, **more)
        return self.render_to_response(context, status=status)


def offered() -> list[Definition]:
    """What a person may ask for: the newest version of each type that takes new work from people."""
    newest = {d.type: d for d in registry() if d.enabled and d.worker_group != SYSTEM and "user" in d.origins}
    return list(newest.values())


def options(said: dict[str, str]) -> dict[str, Any]:
    """The fields that are filled in, as options of enqueue. Raises Invalid for what is no number, or no tenant."""
    found: dict[str, Any] = {name: said[name] for name in (*TEXTS, "idempotency_key") if said.get(name)}
    for name, number in NUMBERS.items():
        if said.get(name):
            try:
                found[name] = number(said[name])
            except ValueError:
                raise Invalid("must be a number", field=name) from None
    if "tenant" in found:
        tenancy.check_subject(found["tenant"])
    return found
