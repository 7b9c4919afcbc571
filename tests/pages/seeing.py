"""What tests of pages read out of an answer: the jobs of a list, the buttons of a job, the statements of a request."""

from __future__ import annotations

import re
from typing import Any

from tests.making import statements

_JOB = re.compile(r'<a class="id" href="/jobs/([0-9a-f-]{36})/"')


def listed(answer: Any) -> list[str]:
    """The jobs that a page links to, in order."""
    assert answer.status_code == 200, answer.status_code
    return _JOB.findall(answer.content.decode())


def link(answer: Any, word: str) -> str | None:
    """Where the link with this word leads, as a browser reads it."""
    found = re.search(rf'href="(\?[^"]*)"[^>]*>[^<]*{word}', answer.content.decode())
    return found[1].replace("&amp;", "&") if found else None


def buttons(answer: Any) -> set[str]:
    """The verbs that a job's page offers."""
    return set(re.findall(r'href="/jobs/act/\?verb=([a-z]+)&amp;id=', answer.content.decode()))


def asked(client: Any, path: str) -> tuple[Any, list[str]]:
    """The answer to a GET, and the statements that it took."""
    with statements() as seen:
        answer = client.get(path)
    return answer, [sql for sql, _ in seen]
