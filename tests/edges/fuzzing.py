"""Asks a served API whatever its document allows and more, by schemathesis."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from jobs.services import grants

SEED = 20_260_101
CHECKS = [not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
          checks.response_schema_conformance]
# They wait: what they answer is the tests' of streams and claims.
WAITING = ("/events", "/wait")


def operations(url: str) -> Iterator[Any]:
    """Every operation of the document that is served there."""
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")
    for found in schema.get_all_operations():
        operation = found.ok()
        if not operation.path.endswith(WAITING):
            yield operation


def ask(operation: Any, secret: str, known: dict[str, str], examples: int, until: float) -> list[str]:
    """So many examples of one operation, half of them wrong on purpose; each answer that should not be, once."""
    faults: dict[str, None] = {}

    @seed(SEED)
    @settings(max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(schemathesis.GenerationMode.POSITIVE)
           | operation.as_strategy(schemathesis.GenerationMode.NEGATIVE))
    def once(case: Any) -> None:
        if time.monotonic() > until:
            return
        _place(case, known)
        response = case.call(headers={"Authorization": f"Bearer {secret}"}, timeout=30)
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as error:
            said = " ".join(f"{type(one).__name__} {one}" for one in error.exceptions)
            said = f"{case.as_curl_command()} -> {' '.join(said.split())[:500]} {response.text[:300]}"
            faults[f"{operation.method.upper()} {operation.path}: {response.status_code} {said}"] = None

    once()
    return list(faults)


def _place(case: Any, known: dict[str, str]) -> None:
    """Every other path names something that is there, and no wait is long."""
    for part, name in known.items():
        named = case.path.startswith(part) and "name" in (case.path_parameters or {})
        if named and zlib.crc32(str(case.body).encode()) % 2:
            case.path_parameters["name"] = name
    if isinstance(case.body, dict) and "wait_seconds" in case.body:
        case.body["wait_seconds"] = 0


def known(api: Any) -> dict[str, str]:
    """A job, an assignment, a quorum and a lane to ask for."""
    api.enqueue()
    held = api.claim_one()
    grants.give(api.key.workspace, "conductor", by="test", key=api.key)
    quorum = api.post("/quorums", {"name": "fuzzed"}).json()["id"]
    lane = api.post("/lanes", {"quorum": quorum, "name": "fuzzed", "branch": "fuzzed", "task": "7",
                               "assignee": f"key:{api.key.prefix}"}).json()["id"]
    return {"/v1/jobs/": held["job"]["id"], "/v1/assignments/": held["assignment_id"], "/v1/quorums/": quorum,
            "/v1/lanes/": lane}
