"""The limits of a workspace, and of one tenant in it, for whoever speaks for the workspace (C36, C37)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing
from jobs.api.describing import mapping, or_null, ref, text, told
from jobs.api.security import caller, named_tenant, whole_workspace
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.conf import conf
from jobs.errors import Invalid, NotFound
from jobs.models import Limits, Tenant, Workspace
from jobs.money import shown
from jobs.services import limits, tenancy
from jobs.services.keys import Permission

_FIELDS = {"limits": mapping("Limits by their names; null takes one away, what is not said stays"),
           "tenant_subject": or_null(text("Those of one tenant", most=255))}
_NONE = {404: "not_found"}


class JobLimits(View):
    """`/workspaces/{id}/job-limits`: the slug or the number of the caller's own workspace."""

    permissions = {"GET": Permission.LIMITS, "PUT": Permission.LIMITS}
    # What they let in comes back before the answer.
    waits = ("PUT",)

    @told({200: ref("JobLimits")}, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """What is set, what holds in the end, and the most that may be set; with an ETag."""
        parsing.query(request)
        workspace, subject = _place(request, name), named_tenant(request)
        tenant = None if subject is None else tenancy.tenant(workspace, subject)
        return _told(workspace, tenant, limits.of(workspace, tenant))

    @told({200: ref("JobLimits")}, body=_FIELDS, needed=("limits",), headers=("If-Match",),
          example={"limits": {"tenant_concurrency": 20, "tenant_ceiling": 10_000}}, refuses={
              **_NONE, 400: "unknown_limit limit_exceeds_platform invalid_limit", 409: "tenant_deleting",
              428: "precondition_required"})
    def put(self, request: Request, name: str) -> Response:
        """Set some, all of them or none; null takes one away, what is not said stays. Demands If-Match, or `*`."""
        body = parsing.body(request, _FIELDS)
        said, workspace = fields.limits(body), _place(request, name)
        if "HTTP_IF_MATCH" not in request._request.META:
            raise Invalid("Say by If-Match which limits you have read, or `*` for whichever there are.",
                          field="If-Match", code="precondition_required")
        revision, subject = parsing.if_match(request), named_tenant(request, body.get("tenant_subject"))
        with fields.beneath_field("limits."):
            checked = limits.checked(said, of_tenant=subject is not None)
        row = limits.set_for(workspace, subject, revision=revision, by=caller(request).by, **checked)
        return _told(workspace, row.tenant, row)


def _place(request: Request, name: str) -> Workspace:
    """The caller's workspace by either name. A tenant's key has no say: limits are set for it and not by it."""
    workspace = whole_workspace(request)
    if name not in (workspace.slug, str(workspace.pk)):
        raise NotFound("There is no such workspace, or it is not yours.", field="workspace")
    return workspace


def _told(workspace: Workspace, tenant: Tenant | None, row: Limits) -> Response:
    platform = conf().PLATFORM_LIMITS
    return answer({
        "workspace": workspace.slug, "tenant_subject": None if tenant is None else tenant.subject,
        "revision": row.revision, "limits": {name: _plain(getattr(row, name)) for name in limits.NAMES},
        "effective": {name: _plain(value) for name, value in limits.effective(workspace, tenant).items()},
        "platform": {name: _plain(platform.get(name)) for name in limits.NAMES if name != "exclusive_group_scope"},
        "updated_at": jsonable(row.updated_at) if row.pk else None,
    }, ETag=f'"r{row.revision}"')


def _plain(value: Any) -> Any:
    return shown(value) if isinstance(value, Decimal) else value
