"""The owner of a tenant over the API: whose credential runs its jobs (B35, E10). Of its reference only a hint."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing
from jobs.api.describing import boolean, moment, or_null, ref, text, told, whole
from jobs.api.security import caller, named_tenant, tenant_scope, without_subject
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.models import Owner
from jobs.services import owners
from jobs.services.keys import Permission

_FIELDS = {
    "reference": text("Names the secret in the site's store; no secret"), "label": or_null(text(most=200)),
    "expires_at": or_null(moment()), "concurrency": or_null(whole(1, means="Most of its jobs at once")),
    "rotate": boolean("A new secret under the same name", default=False)}
_NONE = {404: "owner_not_found"}


def shape(owner: Owner) -> dict[str, Any]:
    """An owner as callers see it."""
    return {
        "owner": owner.pk, "tenant_subject": owner.tenant.subject, "state": owners.state(owner),
        "reference_hint": owners.hint(owner), "label": owner.label,
        "generation": owner.generation, "revision": owner.revision, "concurrency": owners.most(owner),
        "running": len(owners.running(owner)),
        "expires_at": jsonable(owner.expires_at), "revoked_at": jsonable(owner.revoked_at),
        "created_at": jsonable(owner.created_at), "updated_at": jsonable(owner.updated_at),
    }


def _told(owner: Owner, status: int = 200) -> Response:
    return answer(shape(owner), status, ETag=f'"r{owner.revision}"')


class OwnerOfTenant(View):
    """`/owner`."""

    permissions = {"GET": Permission.OWNERS, "PUT": Permission.OWNERS, "DELETE": Permission.OWNERS}

    @told({200: ref("Owner")}, refuses=_NONE)
    def get(self, request: Request) -> Response:
        """The owner of the tenant, live or not."""
        parsing.query(request)
        return _told(owners.of(tenant_scope(request).tenant_id))

    @told({200: ref("Owner"), 201: ref("Owner")}, body=_FIELDS, needed=("reference",), headers=("If-Match",),
          refuses={409: "tenant_deleting", 403: "tenant_archived", **_NONE})
    def put(self, request: Request) -> Response:
        """Make it, or say anew all that is known of it; 201 for the first generation. A new tenant is made with it."""
        body = without_subject(request, parsing.body(request, (*_FIELDS, "tenant_subject")))
        reference = fields.text(body, "reference")
        label, rotate = fields.text(body, "label", default=""), fields.boolean(body, "rotate", False)
        until = fields.moment(body, "expires_at", "invalid_expires_at")
        revision = parsing.if_match(request)
        who = caller(request)
        made = owners.put_for(
            who.place, who.subject(named_tenant(request)), reference, by=who.by, label=label, expires_at=until,
            concurrency=body.get("concurrency"), revision=revision, rotate=rotate)
        return _told(made, 201 if made.revision == 1 else 200)

    @told({200: ref("Owner")}, headers=("If-Match",), refuses=_NONE)
    def delete(self, request: Request) -> Response:
        """Revoke it: what runs under it ends now, what waits is paused. Revoked already: a quiet yes."""
        parsing.query(request)
        owner = owners.of(tenant_scope(request).tenant_id)
        return _told(owners.revoke(owner.tenant_id, by=caller(request).by, revision=parsing.if_match(request)))
