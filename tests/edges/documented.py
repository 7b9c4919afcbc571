"""Whether an answer is one that the API's own document describes: its status, its code, each of its members."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema_rs
from django.http import HttpResponse

from jobs.api import openapi

_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@cache
def document() -> dict[str, Any]:
    """The document, closed: members that it does not name are faults."""
    return _closed(openapi.document("/api"))


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    told = {name: _closed(value) for name, value in node.items()}
    if told.get("type") in ("object", ["object", "null"]) and isinstance(told.get("properties"), dict):
        told.setdefault("additionalProperties", False)
    return told


@cache
def _validator(path: str, method: str, status: str, kind: str) -> Any:
    schema = document()["paths"][path][method]["responses"][status]["content"][kind]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": document()["components"]})


def check(method: str, answer: HttpResponse) -> None:
    """Raises AssertionError, naming the method and what its `@told` should say, for an answer that is not described."""
    found = getattr(answer, "resolver_match", None)
    route = "" if found is None else "/" + _PARAMETER.sub(r"{\1}", found.route).partition("/")[2]
    word = "get" if method == "HEAD" else method.lower()
    operation = document()["paths"].get(route, {}).get(word)
    # A test of its own demands that each method says something.
    if operation is None or not operation["responses"] or answer.streaming:
        return
    at, status = f"@told of {method} {route}", str(answer.status_code)
    code = answer.json().get("code") if answer.status_code >= 400 and method != "HEAD" else None
    assert status in operation["responses"], f"{at} names no answer {status} (of the code {code})"
    if method == "HEAD" or status in ("204", "304"):
        return
    kind = answer["Content-Type"]
    assert kind in operation["responses"][status]["content"], f"{at} answers {status} with {kind}"
    for fault in _validator(route, word, status, kind).iter_errors(answer.json()):
        where = "/".join(map(str, fault.instance_path))
        raise AssertionError(f"{at}: its answer {status} ({code}) is not as described, at {where!r}: {fault.message}")
