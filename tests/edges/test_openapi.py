"""The API's document: complete, valid, cacheable, and open to everybody (API9)."""

from __future__ import annotations

import json
import re

import jsonschema_rs
from django.urls import URLPattern
from drf_spectacular.validation import validate_schema

from jobs.api import errors, openapi
from jobs.api.urls import urlpatterns
from lanes.api.urls import urlpatterns as lanes
from tests.architecture import test_refusals
from tests.architecture.test_refusals import NEVER
from tests.edges.caller import Caller, problem
from tests.edges.documented import document

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_every_route_and_method_stands_in_the_document_and_none_too_many():
    """API9: the document and the routes are the same list; one that says nothing of itself is named."""
    routes = {(method, "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(route.pattern)))
              for route in [*lanes, *urlpatterns] if isinstance(route, URLPattern) and hasattr(route.callback, "cls")
              for method in METHODS & set(route.callback.cls.permissions)}
    said = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    assert said == routes
    assert not openapi.untold("/api"), "these methods need @told(...), see jobs/README.md"


def test_the_document_is_valid_and_names_each_operation_once():
    """It is OpenAPI 3.1, its schemas are JSON Schema 2020-12, its references lead somewhere."""
    made = openapi.document("/api")
    assert made["openapi"] == "3.1.0"
    validate_schema(made)
    operations = [operation for item in made["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"]
        for parameter in operation["parameters"]:
            jsonschema_rs.meta.validate(parameter["schema"])
    for schema in made["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    for kind, name in re.findall(r'"#/components/(\w+)/([\w-]+)"', json.dumps(made)):
        assert name in made["components"][kind]


def test_examples_are_what_they_are_examples_of():
    """An example that its own schema refuses would be worse than none."""
    for item in document()["paths"].values():
        for operation in item.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "example" in content:
                jsonschema_rs.validate({**content["schema"], "components": document()["components"]},
                                       content["example"])


def test_each_code_stands_under_its_own_number():
    """The table of refusals says the same number, where it says one."""
    table = test_refusals.table()
    told = [(status, code) for item in document()["paths"].values() for operation in item.values()
            for status, answer in operation["responses"].items() if int(status) >= 400
            for schema in [answer["content"][errors.MEDIA_TYPE]["schema"]["allOf"][1]]
            for code in schema["properties"]["code"]["enum"]]
    assert [(status, code) for status, code in told if table.get(code, NEVER) not in (NEVER, status)] == []
    assert ("404", "job_not_found") in told


def test_the_document_is_served_to_everybody_and_read_once(api):
    """Without a key; a second reader who has it learns that it is the same."""
    nobody = Caller()
    nobody.secret = ""
    first = nobody.send("GET", "/openapi.json", Authorization="")
    assert first.status_code == 200
    assert first["Content-Type"] == "application/json"
    assert first["Cache-Control"] == "public, max-age=300"
    assert first.json() == json.loads(json.dumps(openapi.document("/api")))
    again = nobody.send("GET", "/openapi.json", Authorization="", If_None_Match=first["ETag"])
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    problem(nobody.send("POST", "/openapi.json", {}, Authorization=""), 405, "method_not_allowed")
