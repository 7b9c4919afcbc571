"""What a credential's words are left out of, however they are written and wherever a text is cut (E10)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.redaction import LIMIT, masked, secrets_of
from jobs.worker import logs

SECRET = "pg://jobs:p4ss-w0rd-9f8e@db/jobs?sslmode=require"


@pytest.mark.parametrize("said", [
    f"cannot connect to {SECRET}", "at https://x/?dsn=pg%3A%2F%2Fjobs%3Ap4ss-w0rd-9f8e%40db%2Fjobs%3Fsslmode%3Drequire",
    "at /pg%3A//jobs%3Ap4ss-w0rd-9f8e%40db/jobs%3Fsslmode%3Drequire", repr({"dsn": SECRET})])
def test_a_secret_is_left_out_as_clients_write_it_into_addresses(said: str) -> None:
    """E10: errors of HTTP clients quote what they were given."""
    assert "p4ss" not in masked(said, secrets_of(SECRET))


def test_bytes_of_a_mapping_are_secrets_too() -> None:
    """E10: as text, and as Python shows them."""
    key = b"key-\xc3\xa9-9f8e7d6c"
    for said in (f"have {key!r}", f"have {key.decode()}", f"have {[key]}"):
        assert "9f8e7d6c" not in masked(said, secrets_of({"key": key}))


class Output:
    """Takes what a worker would write."""

    level = 2

    def __init__(self) -> None:
        self.said: list[Any] = []

    def write(self, event: str, facts: dict[str, Any]) -> None:
        """Keep it."""
        self.said.append((event, facts))


class Unreadable:
    """Cannot be shown without saying too much."""

    def __str__(self) -> str:
        raise ValueError(SECRET)


def raised(before: int) -> ValueError:
    try:
        raise ValueError("x" * before + SECRET + "y" * LIMIT)
    except ValueError as error:
        return error


@pytest.fixture
def run():
    """An attempt that runs with the secret, and the lines that it keeps."""
    lines: list[str] = []
    facts = {"job": "1", "attempt": 1, "type": "t@1", "tenant": None}
    token = logs.present.set(SimpleNamespace(  # type: ignore[arg-type]
        masks=secrets_of(SECRET), facts=facts, lines=lines,
        log=lambda line: lines.append(masked(line, secrets_of(SECRET)))))
    yield lines
    logs.present.reset(token)


def test_no_cut_and_no_shortening_of_a_log_line_leaves_a_part_of_a_secret(run, monkeypatch) -> None:
    """E10: an address loses its query and a long traceback its middle, and what is left of a secret is no word of it
    any more: it is taken out before."""
    log, output = logging.getLogger("tests.masking"), Output()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    with logs.logging_to(output):
        log.warning("cannot connect to %s", SECRET, extra={"seen": {"it": [SECRET]}})
        log.warning("unreadable %s", Unreadable(), extra={"seen": SECRET})
        log.warning("wrong arguments %s %s", SECRET)
        # Wherever the cut falls.
        for before in range(0, 700, len(SECRET) // 3):
            log.error("failed", exc_info=raised(before))
    said = repr(output.said) + repr(run)
    assert "p4ss" not in said
    assert "w0rd" not in said
    assert "jobs:" not in said
    assert "[credential]" in said
    assert sum("exception" in facts for _, facts in output.said) > 20


def test_the_site_s_own_handlers_do_not_see_a_secret_either(run, monkeypatch) -> None:
    """E10: nor the frames of an exception, which hold it, as a mail to the site's admins would show them."""
    taken: list[logging.LogRecord] = []
    own = logging.Handler()
    own.emit = lambda record: taken.append(record)  # type: ignore[method-assign]
    form = logging.Formatter("%(message)s %(seen)s")
    monkeypatch.setattr(logging.getLogger(), "handlers", [own])
    with logs.logging_to(Output()):
        logging.getLogger("tests.masking").error("have %s", SECRET, extra={"seen": SECRET}, exc_info=raised(3),
                                                 stack_info=True)
    record = taken[0]
    text = form.format(record)
    assert "p4ss" not in text
    assert "have [credential] [credential]" in text
    assert "ValueError: xxx[credential]yyy" in text
    assert (record.exc_info, record.args) == (None, None)
