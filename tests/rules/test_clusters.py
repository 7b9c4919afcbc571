"""What makes two errors alike (DESIGN 7.3)."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clusters import LIMIT, normal

ALIKE = [
    ("timeout after 30 s", "timeout after 2.5 s", "timeout after <n> s"),
    ("no job 018f3c5e-8e0b-7cc0-9f3a-111122223333", "no job 118F3C5E8E0B7CC09F3A111122223334", "no job <uuid>"),
    ("etag 0xDEADBEEF", "etag 1234abcd99", "etag <hex>"),
    ("no such file: '/srv/a b.txt'", 'no such file: "x"', "no such file: <str>"),
    ("cannot open /srv/a/1.txt: denied", "cannot open ../b.txt: denied", "cannot open <path>: denied"),
    ("cannot open C:\\a\\b.txt", "cannot open ~/b.txt", "cannot open <path>"),
    ("connect to 10.0.0.3:5432 failed", "connect to 192.168.1.77 failed", "connect to <ip> failed"),
    ("GET https://a.example/x?y=1 gave 503", "GET http://b.example:80/ gave 500", "GET <url> gave <n>"),
    ("mail to bob@example.com bounced", "mail to a.b+c@mail.example.org bounced", "mail to <email> bounced"),
    ("since 2026-11-29T23:00:01.123Z", "since 2025-01-01 10:00", "since <time>"),
    ("upstream-7 sent 1,024 bytes", "upstream-12 sent 9 bytes", "upstream<n> sent <n> bytes"),
    ("bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "bearer AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIII7", "bearer <token>"),
]


@pytest.mark.parametrize(("one", "other", "text"), ALIKE)
def test_what_differs_from_job_to_job_is_left_out(one: str, other: str, text: str) -> None:
    """Numbers, ids, addresses, paths and quoted words stand under their kind."""
    assert normal(one) == normal(other) == text


def test_words_make_errors_differ() -> None:
    """What a person would tell apart stays apart, and plain words with apostrophes and slashes stay words."""
    words = ["connection refused", "connection reset", "it can't and won't", "read and/or write", "no answer", "N/A"]
    assert [normal(w) for w in words] == words


def _thrown(value: str) -> str:
    try:
        int(value)
    except ValueError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError


def test_of_a_traceback_it_is_the_exception_and_where_it_was_raised() -> None:
    """Handlers' exceptions are kept as tracebacks, which begin alike and end apart."""
    assert normal(_thrown("q7")) == normal(_thrown("r")) == "in _thrown: ValueError: invalid literal for int() with " \
        "base <n>: <str>"
    try:
        raise RuntimeError("late\nagain 7") from KeyError("x")
    except RuntimeError as error:
        text = normal("".join(traceback.format_exception(error)))
    assert text == "in test_of_a_traceback_it_is_the_exception_and_where_it_was_raised: RuntimeError: late again <n>"
    assert normal("Traceback (most recent call last):\n  File \"a\", line 1") != ""


@pytest.mark.parametrize("nothing", [None, "", "   ", "\n\x00\n"])
def test_no_message_is_no_text(nothing: str | None) -> None:
    """A lapse and a deadline say nothing of their own."""
    assert normal(nothing) == ""


@given(st.text(max_size=3_000))
def test_it_is_one_bounded_printable_line_and_always_the_same(message: str) -> None:
    """It travels and is stored as it is, whatever a handler raised."""
    text = normal(message)
    assert len(text) <= LIMIT
    assert text.isprintable()
    assert text == text.strip()
    assert normal(message) == text


@pytest.mark.parametrize("unit", ["a.b-", "'", "1:", "/", "a://", "x@", "0", "f", "-", "\\", "::", "<n>", "a=", "é"])
def test_no_text_takes_long(unit: str) -> None:
    """A hostile message costs a batch of settlements no more than any other: bounded, and linear within."""
    from time import perf_counter

    took = []
    for _ in range(5):
        began = perf_counter()
        normal(unit * 100_000)
        took.append(perf_counter() - began)
    assert min(took) < 0.02
