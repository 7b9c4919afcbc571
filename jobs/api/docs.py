"""The API's page for people, made of its own document on the server: no script, no style from elsewhere, no CDN."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from jobs.api import openapi
from jobs.api.describing import Schema

# What callers look for first.
_FIRST = ("jobs", "agents", "events", "definitions", "runtime", "assignments")
Words = list[tuple[str, bool]]


class Field(NamedTuple):
    """One field, parameter or member."""

    name: str
    place: str
    kind: str
    means: Words
    needed: bool


class Answer(NamedTuple):
    """One status: what comes with it, or the codes of its refusals."""

    status: str
    means: str
    form: str
    codes: list[str]


class Operation(NamedTuple):
    """One method of one route."""

    anchor: str
    method: str
    path: str
    summary: Words
    description: Words
    fields: list[Field]
    answers: list[Answer]
    refusals: list[Answer]
    curl: str


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """The page; the same for everybody, and no key is asked for."""
    root = request.path.removesuffix("/docs")
    answer = render(request, "jobs/api_docs.html", {
        **_contents(root, request.path_info.removesuffix("/docs")), "root": request.build_absolute_uri(root),
        "document": f"{root}/v1/openapi.json"})
    answer["Cache-Control"] = f"public, max-age={openapi.MAX_AGE_S}"
    return answer


@lru_cache(maxsize=8)
def _contents(root: str, mount: str) -> dict[str, Any]:
    made = openapi.document(root, mount)
    groups: dict[str, list[Operation]] = {}
    for path, item in made["paths"].items():
        for method, said in item.items():
            groups.setdefault(said["tags"][0], []).append(_operation(path, method, said))
    forms = {name: ([_field(member, "", schema, member in form.get("required", ()))
                     for member, schema in form.get("properties", {}).items()], form.get("description", ""))
             for name, form in made["components"]["schemas"].items()}
    first = {tag: groups.pop(tag) for tag in _FIRST if tag in groups}
    limits = {name: _words(header["description"]) for name, header in made["components"]["headers"].items()}
    return {"groups": first | groups, "forms": forms, "limits": limits}


def _operation(path: str, method: str, said: dict[str, Any]) -> Operation:
    content = said.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = content.get("schema", {})
    asked = [_field(p["name"], p["in"], {**p["schema"], "description": p["description"]}, p.get("required", False))
             for p in said["parameters"]]
    fields = [*(field for field in asked if field.place == "path"),
              *(_field(name, "body", schema, name in body["required"])
                for name, schema in body.get("properties", {}).items()),
              *(field for field in asked if field.place != "path")]
    answers = [_answer(status, answer) for status, answer in said["responses"].items()]
    return Operation(
        said["operationId"], method.upper(), path, _words(f"{said['summary']}."), _words(said["description"]), fields,
        [answer for answer in answers if not answer.codes], [answer for answer in answers if answer.codes],
        _curl(path, method.upper(), content, bool(said["security"])))


def _answer(status: str, said: dict[str, Any]) -> Answer:
    contents: dict[str, Any] = said.get("content", {})
    kind = next(iter(contents), "")
    schema: dict[str, Any] = contents[kind].get("schema", {}) if kind else {}
    if "allOf" in schema:
        return Answer(status, said["description"], "Problem", schema["allOf"][1]["properties"]["code"]["enum"])
    form = schema.get("$ref", "").rpartition("/")[2]
    return Answer(status, said["description"] if form or not kind else f"{said['description']} ({kind})", form, [])


def _curl(path: str, method: str, content: dict[str, Any], keyed: bool) -> str:
    lines = [f'curl {"" if method == "GET" else f"-X {method} "}"$JOBS{path}"']
    if keyed:
        lines.append('-H "Authorization: Bearer $KEY"')
    if content:
        lines.append('-H "Content-Type: application/json"')
        lines.append(f"-d '{json.dumps(content.get('example', {}))}'")
    return " \\\n  ".join(lines)


def _field(name: str, place: str, schema: Schema, needed: bool) -> Field:
    return Field(name, place, _kind(schema), _words(schema.get("description", "")), needed)


def _words(text: str) -> Words:
    """Parts of a text, and whether they are code: what stands in backticks."""
    return [(part, n % 2 == 1) for n, part in enumerate(text.split("`")) if part]


def _kind(schema: Schema) -> str:
    """What a value is, in words."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    kinds = schema.get("type", "any JSON")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "enum" in schema:
        return "one of " + ", ".join("null" if word is None else str(word) for word in schema["enum"])
    default = f"; {json.dumps(schema['default'])} unless said" if "default" in schema else ""
    return " or ".join(_one(kind, schema) for kind in kinds) + default


def _one(kind: str, schema: Schema) -> str:
    match kind:
        case "array":
            most = f" (at most {schema['maxItems']:,})" if "maxItems" in schema else ""
            return f"list of {_kind(schema['items'])}{most}"
        case "string":
            most = f", at most {schema['maxLength']:,} characters" if "maxLength" in schema else ""
            return ("moment" if schema.get("format") == "date-time" else "text") + most
        case "integer" | "number":
            low, high = schema.get("minimum"), schema.get("maximum")
            bounds = f" from {low:,} to {high:,}" if low is not None and high is not None else (
                f" from {low:,} on" if low is not None else "")
            return ("whole number" if kind == "integer" else "number") + bounds
        case "object" if schema.get("properties"):
            return "object of " + ", ".join(schema["properties"])
        case _:
            return kind
