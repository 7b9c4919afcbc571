"""Engines for the runner. These are demonstrations: they say what they were asked, and use no model and no web.

An engine is a function of `Work` that returns the artifact of its type. Put your own in their place:
`--engines mymodule:ENGINES`, a mapping of types to engines; `evidence_from(search)` makes one of a search of yours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jobsite.examples.holding import Engine, Failure, Work

# Of one search (B44).
SEARCH_S = 60.0
Search = Callable[[str], dict[str, Any]]


def echo_task(work: Work) -> dict[str, Any]:
    """Says which kind it was and what it is about; nothing is done."""
    about = [work.input[name] for name in ("objectiveId", "taskId", "runId") if work.input.get(name)]
    work.checkpoint({"step_id": "read", "completed_step_ids": ["read"]})
    return {"summary": f"Demonstration only: {work.type} was read, and nothing was done. About: "
                       f"{', '.join(about) or 'nothing named'}."}


def echo(work: Work) -> dict[str, Any]:
    """Answers what it was given."""
    return {"echo": work.input}


def nothing_found(work: Work) -> dict[str, Any]:
    """Evidence without a search: none."""
    work.progress("search")
    work.progress("search", "completed")
    return {"sources": [], "findings": []}


def what_was_given(work: Work) -> dict[str, Any]:
    """A report on nothing but its own input: which document, and which sources the evidence named."""
    work.progress("analyze")
    asked, evidence = work.input, work.input["evidence"]
    lines = len(asked["snapshot"]["text"].splitlines())
    work.progress("analyze", "completed")
    work.progress("write")
    sections = [{"heading": "The document", "sources": [],
                 "text": f"{asked['snapshot']['document']} has {lines} lines. Nobody has read them: demonstration."}]
    named = [source["url"] for source in evidence["sources"]]
    sections.append({"heading": "The evidence", "sources": named,
                     "text": f"{len(named)} sources and {len(evidence['findings'])} findings were handed over."})
    work.progress("write", "completed")
    return {"title": "What was given (demonstration)", "sections": sections}


def first_lines(work: Work) -> dict[str, Any]:
    """A brief made of the first line of each chosen message."""
    work.progress("prepare")
    lines = [source["text"].strip().splitlines()[0] for source in work.input["sources"]]
    work.progress("prepare", "completed")
    return {"offer_id": work.input["offer_id"], "generation": work.input["generation"],
            "brief": "\n".join(lines)[:8_000], "sources": [source["id"] for source in work.input["sources"]]}


def evidence_from(search: Search) -> Engine:
    """An engine that asks `search(brief)` for evidence; after 60 s it fails as `web_search_timeout`, to be retried."""
    def look(work: Work) -> dict[str, Any]:
        work.progress("search")
        found = _within(work, lambda: search(work.input["brief"]))
        work.progress("search", "completed")
        return found

    return look


def _within(work: Work, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(call())
        except (Failure, OSError, ValueError, KeyError) as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    for _ in range(int(SEARCH_S * 10)):
        work.check()
        asking.join(0.1)
        if not asking.is_alive():
            break
    else:
        raise Failure("web_search_timeout", "The search gave no answer in time.")
    if answers:
        return answers[0]
    raise errors[0] if errors and isinstance(errors[0], Failure) else Failure("web_search_failed")


ENGINES: dict[str, Engine] = {
    **dict.fromkeys((
        "factory.dispatch", "factory.run", "factory.integration.publish", "factory.integration.validate",
        "factory.objective.audit", "factory.objective.control", "factory.objective.watchdog", "factory.task.monitor",
        "factory.task.run"), echo_task),
    "research-evidence": nothing_found, "research-answer": what_was_given, "research-brief": first_lines,
    "saphira-job": echo,
}
