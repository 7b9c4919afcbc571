"""Static files under ASGI and WSGI, with nothing but the site itself to serve them (issue 4)."""

from __future__ import annotations

import warnings

import pytest
from django.test import AsyncClient, Client

from jobsite.static import Collected, StaticFiles
from tests.edges.loops import awaited

SHEET = "/static/jobs/jobsite.css"


def ask(method: str, path: str, is_async: bool, **headers: str):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if is_async:
        return awaited(getattr(AsyncClient(), method)(path, headers=headers))
    return getattr(Client(), method)(path, headers=headers)


@pytest.mark.parametrize("is_async", [False, True])
def test_files_are_served_whole_in_parts_and_not_again(database, is_async):
    """Content, HEAD, conditional and range requests; of no file is a warning made, which here would be an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = ask("get", SHEET, is_async)
        assert (whole.status_code, whole["Content-Type"]) == (200, 'text/css; charset="utf-8"')
        assert not whole.streaming
        assert len(whole.content) == int(whole["Content-Length"]) > 1_000
        assert "Access-Control-Allow-Origin" not in whole
        head = ask("head", SHEET, is_async)
        assert (head.status_code, head.content, head["Content-Length"]) == (200, b"", whole["Content-Length"])
        same = ask("get", SHEET, is_async, If_None_Match=whole["ETag"])
        assert (same.status_code, same.content) == (304, b"")
        part = ask("get", SHEET, is_async, Range="bytes=10-19")
        assert (part.status_code, part.content) == (206, whole.content[10:20])
        assert ask("post", SHEET, is_async).status_code == 405


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("path", ["/static/", "/static/none.css", "/static/../jobsite/settings.py", "/static/jobs",
                                  "/static/%2e%2e/manage.py", "/static//etc/passwd", "/static/jobs/%00.css"])
def test_what_is_no_file_is_not_found(database, is_async, path):
    """And nothing outside of the folders of static files is one."""
    assert ask("get", path, is_async).status_code == 404


def test_nothing_collected_is_no_fault(settings, tmp_path):
    """No warning of a folder that is not there; in production names stand for files until they are collected."""
    settings.STATIC_ROOT = tmp_path / "none"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        served = StaticFiles(lambda request: None)
        served.autorefresh = False
        assert Collected().url("jobs/jobsite.css") == SHEET
