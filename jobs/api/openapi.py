"""The OpenAPI 3.1 document of the API, made from its own routes, permissions and tables by drf-spectacular (API9).

Every route and method stands in it with all of its answers; what a method says of itself is `describing.told`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from django.http import HttpResponse
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from rest_framework.request import Request

from jobs.api import errors
from jobs.api.describing import Told, ref, text, told
from jobs.api.forms import FORMS
from jobs.api.security import SCHEME
from jobs.api.views import Open, View
from jobs.models.throttle import KINDS

VERSION: Final = "1"
MAX_AGE_S: Final = 300
_BODY = ("bad_request malformed_json not_an_object invalid_encoding not_json duplicate_key too_deep too_many_keys"
         " too_many_containers integer_too_large invalid_number invalid_text missing_field unknown_field")
_QUERY = "unknown_parameter repeated_parameter"
_IDS = re.compile(r"\s*\((?:case-)?[A-Z]{1,4}\d[^)]*\)")
# What a name in a path is, by the word before it.
_NAMES = {"jobs": "The job's id, or the caller's own job_id", "assignments": "The id of the assignment",
          "agents": "The agent's name", "bulk": "The id of the bulk operation", "deliveries": "The id of the delivery",
          "workspaces": "The slug or the number of your workspace", "callback-secrets": "The id of the secret",
          "throttles": f"One of {', '.join(KINDS)}", "{kind}": "The name of it; of a tenant its subject"}
_HEADERS = {
    "X-Tenant-Subject": "The tenant that the request is about; what the key's own is needs no name",
    "Idempotency-Key": "The caller's name for this request: said again, it has no second effect",
    "If-Match": "The ETag that was read: refused where the resource has moved on",
    "If-None-Match": "The ETag that was read", "Last-Event-ID": "The number of the last event that was read",
}
_SAID = {
    "RateLimit-Policy": "What this key may: `\"key\";q=<requests at once>;w=<seconds to have them all again>`",
    "RateLimit": "What is left: `\"key\";r=<requests>;t=<seconds until there are all again>`",
    "X-Request-ID": "Of this request: the caller's own, or ours",
}


class Documented(AutoSchema):
    """The operation of one method of one View."""

    def get_operation(self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any) -> Any:
        """The Operation Object."""
        view: Any = self.view
        code = getattr(view, method.lower())
        said: Told = getattr(code, "told", _UNTOLD)
        first, _, rest = " ".join(_IDS.sub("", code.__doc__ or "").split()).partition(". ")
        needed = view.permissions.get(method)
        operation = {
            "operationId": re.sub(r"[^A-Za-z0-9-]+", "_", f"{method.lower()}{path.removeprefix('/v1')}").strip("_"),
            "summary": first.removesuffix("."), "tags": [path.split("/")[2].partition(".")[0]],
            "description": f"{rest} Needs the permission `{needed}`.".strip() if needed else rest,
            "parameters": [*_parameters(path, said, view.named)], "responses": _responses(said),
            "security": [] if said.public else [{SCHEME: []}]}
        if said.body is not None:
            operation["requestBody"] = _request(said)
        return operation


_UNTOLD = Told({}, None, (), False, {}, (), {}, False, False, None)


def _parameters(path: str, said: Told, named: str) -> Iterator[dict[str, Any]]:
    for before, name in re.findall(r"([^/]+)/(?=\{(\w+)\})", path):
        yield {"name": name, "in": "path", "required": True, "schema": text(most=200),
               "description": named or _NAMES.get(before, f"Which of {before}")}
    subject = {"tenant_subject": text("As the header `X-Tenant-Subject`", most=255)} if said.tenant else {}
    words = {**said.query, **subject}
    for name, schema in words.items():
        yield {"name": name, "in": "query", "schema": schema, "description": schema.get("description", "")}
    for name in (*said.headers, *(("X-Tenant-Subject",) if said.tenant else ())):
        yield {"name": name, "in": "header", "schema": text(), "description": _HEADERS[name]}


def _request(said: Told) -> dict[str, Any]:
    schema = {"type": "object", "properties": dict(said.body or {}), "required": list(said.needed),
              "additionalProperties": said.open_body}
    example = {} if said.example is None else {"example": said.example}
    return {"required": not said.bodiless, "content": {"application/json": {"schema": schema, **example}}}


def _responses(said: Told) -> dict[str, Any]:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in _SAID if not said.public}
    found: dict[str, Any] = {}
    for status, schema in said.answers.items():
        kind = "text/event-stream" if schema.get("format") == "event-stream" else "application/json"
        content = {} if status in (204, 304) else {"content": {kind: {"schema": schema}}}
        found[str(status)] = {"description": _GOOD[status], "headers": headers, **content}
    for status, codes in sorted(_refusals(said).items()):
        schema = {"allOf": [ref("Problem"), {"properties": {"code": {"enum": codes}}}]}
        found[str(status)] = {"description": errors.TITLES[status], "headers": headers,
                              "content": {errors.MEDIA_TYPE: {"schema": schema}}}
    return found


_GOOD: Final = {200: "Done, or as it is.", 201: "Made.", 202: "Taken.", 204: "Done.", 304: "As it was read."}


def _refusals(said: Told) -> dict[int, list[str]]:
    """The codes of each status: the method's own, and those that all of its kind may meet."""
    found: dict[int, set[str]] = {}

    def add(status: int, codes: Iterable[str]) -> None:
        found.setdefault(status, set()).update(code for code in codes if errors.BY_CODE.get(code, status) == status)

    add(500, ["internal_error"])
    add(400, ["bad_request"])
    if not said.public:
        for status, codes in ((400, "workspace_required invalid_workspace"), (401, "unauthenticated"),
                              (403, "permission_denied csrf_failed"), (404, "workspace_not_found"),
                              (429, "rate_limited"), (503, "storage_unavailable")):
            add(status, codes.split())
    if said.tenant:
        add(400, ["invalid_tenant_subject"])
        add(404, ["tenant_not_found"])
    if said.body is None or said.query:
        add(400, [*_QUERY.split(), *(f"invalid_{_snake(name)}" for name in said.query)])
    if said.body is not None:
        add(400, [*_BODY.split(), *(f"invalid_{_snake(name)}" for name in said.body)])
        add(413, ["too_large"])
        add(415, ["unsupported_media_type"])
    if "If-Match" in said.headers:
        add(400, ["invalid_if_match"])
        add(412, [] if 412 in said.refuses else ["revision_mismatch"])
    for status, own in said.refuses.items():
        add(status, own.split())
    return {status: sorted(codes) for status, codes in found.items()}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


_Spectacular: Any = SchemaGenerator


class _Generator(_Spectacular):
    def create_view(self, callback: Any, method: str, request: Any = None) -> Any:
        """The view, with our inspector: spectacular is no part of the views themselves."""
        view = super().create_view(callback, method, request)
        view.schema = Documented()
        return view


def routes(mount: str) -> list[URLPattern]:
    """Every route of a View that the site has below `mount`, as `/api`: ours, and what other packages made alike."""
    from jobs.api.urls import urlpatterns

    # Ours alone, where the mount is no plain text.
    found = [*_below(get_resolver().url_patterns, "/", f"{mount}/")] or urlpatterns
    return [route for route in found if issubclass(getattr(route.callback, "cls", object), View)]


def _below(patterns: Iterable[Any], at: str, mount: str) -> Iterator[URLPattern]:
    for one in patterns:
        if not isinstance(one, URLResolver):
            if at == mount:
                yield one
        elif mount.startswith(path := at + str(one.pattern)):
            yield from _below(one.url_patterns, path, mount)


@lru_cache(maxsize=8)
def document(root: str, mount: str | None = None) -> dict[str, Any]:
    """The whole document, for an API that callers find at `root`, as `/api`; `mount`: where the site's routes have it.

    They differ where the site as a whole does not begin at `/`.
    """
    found = routes(root if mount is None else mount)
    views: list[Any] = [route.callback for route in found]
    forms = {name: form for view in views for name, form in view.cls.forms.items()}
    made: dict[str, Any] = _Generator(patterns=found).get_schema(request=None, public=True)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jobs", "version": VERSION,
                 "description": "A durable job server: enqueue and follow jobs, or claim them as a runner. "
                                "Refusals are problems (RFC 9457) with a stable `code`."},
        "servers": [{"url": root or "/"}], "security": [{SCHEME: []}], "paths": made["paths"],
        "components": {
            "schemas": FORMS | forms, "headers": {name: {"description": means, "schema": text()}
                                          for name, means in _SAID.items()},
            "securitySchemes": {SCHEME: {"type": "http", "scheme": "bearer",
                                         "description": "A key, as `Authorization: Bearer prefix.secret`"}}}}


def untold(mount: str) -> list[str]:
    """Methods of views that say nothing of themselves yet, as `METHOD path`."""
    found = _Spectacular.endpoint_inspector_cls(patterns=routes(mount)).get_api_endpoints()
    return [f"{method} {path}" for path, _, method, callback in found
            if not hasattr(getattr(callback.cls, method.lower()), "told")]


@lru_cache(maxsize=8)
def _written(root: str, mount: str) -> tuple[bytes, str]:
    written = json.dumps(document(root, mount), separators=(",", ":"), ensure_ascii=False).encode()
    return written, f'"{hashlib.sha256(written).hexdigest()[:32]}"'


class OpenAPI(Open):
    """`/openapi.json`."""

    permissions = {"GET": None}
    cached = f"public, max-age={MAX_AGE_S}"

    @told({200: {"type": "object"}, 304: {}}, headers=("If-None-Match",), tenant=False, public=True)
    def get(self, request: Request) -> HttpResponse:
        """This document. It is the same for everybody, and changes with a release."""
        own = "/v1/openapi.json"
        written, etag = _written(request.path.removesuffix(own), request._request.path_info.removesuffix(own))
        if etag in request._request.META.get("HTTP_IF_NONE_MATCH", ""):
            return HttpResponse(status=304, headers={"ETag": etag})
        return HttpResponse(written, content_type="application/json", headers={"ETag": etag})
