"""The content security policy and its neighbours on every answer, refusals of each layer included (RELIABILITY)."""

from __future__ import annotations

import pytest
from django.test import AsyncClient, Client

from tests.edges.loops import awaited
from tests.pages.people import person

POLICY = {"default-src 'self'", "img-src 'self' data:", "object-src 'none'", "base-uri 'none'", "form-action 'self'",
          "frame-ancestors 'none'"}


def protected(answer, status):
    assert answer.status_code == status
    assert set(answer["Content-Security-Policy"].split("; ")) == POLICY
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"
    assert "camera=()" in answer["Permissions-Policy"]


@pytest.mark.parametrize(("path", "status"), [
    ("/", 302), ("/login/", 200), ("/admin/", 302), ("/admin/login/", 200), ("/nothing", 404), ("/api/v1/jobs", 401),
    ("/static/jobs/icon.svg", 200),
])
def test_every_answer_is_protected(database, path, status):
    """Pages, files and the API; for strangers."""
    protected(Client().get(path), status)
    protected(awaited(AsyncClient().get(path)), status)


def test_refusals_of_the_middleware_are_protected_and_told_as_pages(database, settings):
    """A host that is not ours, refused before anything else; a form without a token; HTTPS asked for."""
    answer = Client().get("/login/", headers={"Host": "evil.example"})
    protected(answer, 400)
    assert "<style" not in answer.content.decode()
    answer = Client(enforce_csrf_checks=True).post("/login/", {"username": "x"})
    protected(answer, 403)
    assert "This form was not accepted" in answer.content.decode()
    settings.SECURE_SSL_REDIRECT = True
    protected(Client().get("/login/"), 301)
    protected(Client().get("/login/", headers={"Host": "evil.example"}), 400)


@pytest.mark.parametrize("path", ["/", "/jobs/", "/dead-letters/", "/workers/", "/admin/", "/admin/auth/user/",
                                  "/admin/auth/user/add/", "/nothing"])
def test_no_page_has_anything_inline(database, client, path):
    """No script, sheet, attribute or handler of its own: the policy would stop them."""
    client.force_login(person("operator", superuser=True))
    answer = client.get(path)
    protected(answer, 404 if path == "/nothing" else 200)
    text = answer.content.decode()
    assert not [part for part in (" style=", "<style", " onclick=", " onload=", "javascript:") if part in text]
    assert "<script>" not in text
