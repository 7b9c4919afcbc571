"""Callbacks over the API: what was told of a job or a tenant, sending it again, and the secrets that sign (E11).

What receivers answered is no caller's business: by an address of his choice he could read what only we can reach.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import boolean, ref, text, told, whole
from jobs.api.security import caller, named_tenant, tenant_scope
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.models import CallbackSecret, Delivery, DeliveryTry, Tenant
from jobs.services import deliveries, signing, tenancy
from jobs.services.keys import Permission

MOST = 200
_LIST = {"status": text("Those that stand so", among=deliveries.STATES), "limit": whole(1, MOST, default=50),
         "cursor": text("As `next_cursor` said")}
_FRESH = {"rotate": boolean("End all but the newest", default=False)}


def shape(row: Delivery, log: list[DeliveryTry] | None = None) -> dict[str, Any]:
    """A delivery as callers see it; with its tries where they were asked for."""
    told = {
        "id": str(row.pk), "job": str(row.job_id), "event": row.event, "chain": row.chain, "revision": row.revision,
        "status": row.state, "tries": row.tries, "replays": row.replays, "host": row.host or None, "site": row.site,
        "http_status": row.http_status, "milliseconds": row.ms, "code": row.code, "at": jsonable(row.at),
        "ended_at": jsonable(row.ended_at)}
    if log is None:
        return told
    return told | {"log": [{"number": one.number, "at": jsonable(one.at), "http_status": one.http_status,
                            "milliseconds": one.ms, "code": one.code} for one in log]}


def secret_shape(row: CallbackSecret) -> dict[str, Any]:
    """A secret by its last characters."""
    return {"id": row.pk, "hint": row.hint, "state": "revoked" if row.revoked_at else "live", "by": row.by,
            "created_at": jsonable(row.created_at), "revoked_at": jsonable(row.revoked_at)}


class OfJob(View):
    """`/jobs/{id}/deliveries`."""

    permissions = {"GET": Permission.CALLBACKS}

    @told({200: ref("JobDeliveries")}, refuses={404: "job_not_found"})
    def get(self, request: Request, name: str) -> Response:
        """What was and is to be told of a job, the oldest first, with every try."""
        parsing.query(request)
        rows = deliveries.of_job(selectors.job(tenant_scope(request), name).pk)
        log = deliveries.tries(rows)
        return answer({"deliveries": [shape(row, log[row.pk]) for row in rows]})


class Deliveries(View):
    """`/deliveries`."""

    permissions = {"GET": Permission.CALLBACKS}

    @told({200: ref("Deliveries")}, query=_LIST)
    def get(self, request: Request) -> Response:
        """A tenant's, the newest first."""
        said = parsing.query(request, *_LIST)
        found = deliveries.page(tenant_scope(request), said.get("status"),
                                limit=fields.whole(said, "limit", 50, 1, MOST), cursor=said.get("cursor"))
        return answer(shapes.page("deliveries", found, [shape(row) for row in found.items]))


class Replay(View):
    """`/deliveries/{id}/replay`."""

    permissions = {"POST": Permission.CALLBACKS}

    @told({202: ref("Delivery")}, body={}, bodiless=True, refuses={
        403: "callbacks_disabled", 404: "delivery_not_found", 409: "delivery_pending delivery_redacted"})
    def post(self, request: Request, name: str) -> Response:
        """Send an ended one again under the same id: 202."""
        parsing.body(request, (), optional=True)
        row = deliveries.one(tenant_scope(request), name)
        return answer(shape(deliveries.replay(row.pk, by=caller(request).by)), 202)


def _tenant(request: Request, *, make: bool = False) -> Tenant:
    """Whose secrets are meant: the tenant that is named, else the workspace's own. Raises TenantNotFound."""
    who = caller(request)
    subject = who.subject(named_tenant(request))
    if make and subject is not None:
        return tenancy.tenant(who.place, subject, make=True)
    seen = selectors.known(tenant_scope(request))
    return Tenant.objects.get(pk=seen.tenant_id or 0)


class Secrets(View):
    """`/callback-secrets`."""

    permissions = {"GET": Permission.CALLBACKS, "POST": Permission.CALLBACKS}

    @told({200: ref("Secrets")})
    def get(self, request: Request) -> Response:
        """Those of the tenant, the newest first, by their last characters."""
        parsing.query(request)
        return answer({"secrets": [secret_shape(row) for row in signing.all_of(_tenant(request).pk)]})

    @told({201: ref("Secret")}, body=_FRESH, bodiless=True,
          refuses={403: "callbacks_disabled tenant_archived", 409: "too_many_secrets tenant_deleting"})
    def post(self, request: Request) -> Response:
        """Make one, 201: the only showing of `secret`. `rotate` ends all but the newest first."""
        body = parsing.body(request, _FRESH, optional=True)
        verb = signing.rotate if fields.boolean(body, "rotate", False) else signing.make
        row, shown = verb(_tenant(request, make=True), by=caller(request).by)
        return answer(secret_shape(row) | {"secret": shown}, 201)


class Secret(View):
    """`/callback-secrets/{id}`."""

    permissions = {"DELETE": Permission.CALLBACKS}

    @told({200: ref("Secret")}, refuses={404: "secret_not_found"})
    def delete(self, request: Request, name: str) -> Response:
        """End it at once; ended already: a quiet yes."""
        parsing.query(request)
        if not (name.isascii() and name.isdigit() and len(name) < 19):
            raise signing.SecretNotFound()
        return answer(secret_shape(signing.revoke(_tenant(request), int(name), by=caller(request).by)))
