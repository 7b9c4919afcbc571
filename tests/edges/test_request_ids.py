"""Every answer and every log line of a request carry its id (A62, RELIABILITY "Error pages")."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from jobs.requests import present_id
from jobsite import urls as site
from tests.edges.caller import Caller, problem
from tests.edges.loops import awaited

log = logging.getLogger("myshop")


def said(request: HttpRequest) -> HttpResponse:
    log.warning("looking at the shelf", extra={"shelf": 4})
    return HttpResponse(present_id() or "")


async def said_async(request: HttpRequest) -> HttpResponse:
    return await asyncio.to_thread(said, request)


def broken(request: HttpRequest) -> HttpResponse:
    raise ValueError("inside")


def away(request: HttpRequest) -> HttpResponse:
    raise OperationalError("connection refused")


urlpatterns = [path("said/", said), path("said-async/", said_async), path("broken/", broken), path("away/", away),
               path("api/broken/", broken), *site.urlpatterns]
handler400, handler403 = site.handler400, site.handler403
handler404, handler500 = site.handler404, site.handler500


@pytest.fixture(autouse=True)
def _routes(settings):
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def visitor():
    return Client(raise_request_exception=False)


ANSWERS = [("/livez", 200), ("/readyz", 200), ("/", 302), ("/login/", 200), ("/admin/login/", 200), ("/nothing", 404),
           ("/api/v1/jobs", 401), ("/api/v1/nothing", 404), ("/static/jobs/jobsite.css", 200),
           ("/static/none.css", 404), ("/broken/", 500), ("/away/", 503), ("/api/broken/", 500), ("/admin/jobs/", 302)]


@pytest.mark.parametrize(("where", "status"), ANSWERS)
def test_every_answer_says_its_id(database, visitor, where, status):
    """The caller's own, or a new one for each request."""
    answer = visitor.get(where, headers={"X-Request-ID": "from-the-proxy_1.2"})
    assert (answer.status_code, answer["X-Request-ID"]) == (status, "from-the-proxy_1.2")
    new = {visitor.get(where)["X-Request-ID"] for _ in range(2)}
    assert len(new) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in new)
    assert awaited(AsyncClient(raise_request_exception=False).get(
        where, headers={"X-Request-ID": "b"}))["X-Request-ID"] == "b"


@pytest.mark.parametrize("name", ["", "a b", "a\r\nSet-Cookie: x=y", "ü", "x" * 129, "<script>", "a/b", "a\n", "%0a"])
def test_an_id_that_could_be_more_than_an_id_is_replaced(database, visitor, name):
    """1 to 128 of A-Za-z0-9._-; nothing of a caller's goes into a header or a log that is not of that form."""
    answer = visitor.get("/livez", headers={"X-Request-ID": name})
    assert re.fullmatch("[0-9a-f]{32}", answer["X-Request-ID"])
    assert visitor.get("/livez", headers={"X-Request-ID": "x" * 128})["X-Request-ID"] == "x" * 128


@pytest.mark.parametrize("where", ["/said/", "/said-async/"])
def test_what_a_view_logs_has_the_id_in_threads_too(database, caplog, where):
    """Sync and async, and nothing is left behind when the request is over."""
    caplog.handler.addFilter(_filter())
    headers = {"X-Request-ID": uuid.uuid4().hex}
    with caplog.at_level(logging.INFO):
        assert Client().get(where, headers=headers).content.decode() == headers["X-Request-ID"]
        assert awaited(AsyncClient().get(where, headers=headers)).content.decode() == headers["X-Request-ID"]
    assert {record.request_id for record in caplog.records} == {headers["X-Request-ID"]}
    assert len([record for record in caplog.records if record.getMessage() == "looking at the shelf"]) == 2
    assert present_id() is None


def test_a_fault_is_found_in_the_log_by_the_id_that_its_page_shows(database, visitor, caplog):
    """Django logs some refusals when the middleware has been left: the request in `extra` has the id."""
    caplog.handler.addFilter(_filter())
    page = visitor.get("/broken/")
    assert page["Content-Type"].startswith("text/html")
    assert f"<code>{page['X-Request-ID']}</code>" in page.content.decode()
    assert "inside" not in page.content.decode()
    [fault] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert fault.request_id == page["X-Request-ID"]
    assert fault.exc_info is not None


def test_a_page_says_that_the_database_is_away_without_asking_it(database, visitor):
    """503 with the moment to come again, also to somebody whose session cannot be read."""
    user = get_user_model().objects.create_superuser(f"op-{uuid.uuid4().hex[:8]}", password="x")
    visitor.force_login(user)
    answer = visitor.get("/away/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert "The database does not answer" in answer.content.decode()
    user.delete()


def test_a_problem_names_its_request(database, visitor):
    """In every problem of the API, and only there: other bodies are the same each time."""
    caller = Caller()
    for answer in (caller.get("/nothing"), caller.get("/jobs/unknown"), caller.post("/jobs", {"type": 7}),
                   caller.get("/jobs", Authorization=""),
                   visitor.get("/api/broken/", headers={"X-Request-ID": "test"})):
        told = problem(answer, answer.status_code, answer.json()["code"])
        assert told["request_id"] == answer["X-Request-ID"] == "test"
    assert "request_id" not in caller.get("/jobs").json()


def _filter() -> logging.Filter:
    from jobs.requests import RequestFilter

    return RequestFilter()
