"""Another input for a job that waits for an answer: through its definition's codec, with the difference in a receipt.

Payloads stay out of receipts (E12): of a difference they hold where, and hashes of what stood there before and after.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from jobs.codecs import canonical, digest, pointer
from jobs.conf import conf, registry
from jobs.errors import JobNotFound
from jobs.receipts import Kind
from jobs.services import words
from jobs.store import changing

MOST = 20
HASH = 16


def change(job_id: str, given: Any, *, by: str, reason: str) -> None:
    """Replace the input of a locked job, and what its definition derives from it; an equal one changes nothing.

    The fingerprint stays that of the request (E6). Raises Invalid with all faults, or what `canonical` raises.
    """
    found = changing.read(job_id)
    if found is None:
        raise JobNotFound()
    definition = registry().exact(found.type, found.version)
    text = definition.input.normal(given)
    if text == found.input:
        return
    typed = json.loads(text) if definition.reads_input else {}
    spans = definition.spans(typed, agent=found.agent, lease_s=conf().LEASE_S, timeout_s=conf().TIMEOUT_S)
    row = {"input": text, "input_hash": digest(text), "subject": definition.subject_of(typed),
           "lease_ms": words.span_ms(spans.lease_s, "lease_s"),
           "timeout_ms": words.span_ms(spans.timeout_s, "timeout_s"),
           "max_duration_ms": words.span_ms(spans.max_duration_s, "max_duration_s")}
    changing.write(job_id, row, Kind.CHANGED, {
        "by": by, "reason": reason, "input": digest(text).hex(), "before": digest(found.input).hex(),
        **difference(_loaded(found.input), json.loads(text), frozenset(_names(definition.input.json_schema())))})


def difference(before: Any, after: Any, names: Collection[str]) -> dict[str, Any]:
    """Where two JSON values differ: at most 20 pointers with hashes, and how many `more` there are.

    Only `names`, the site's own, are spelled out: other keys are a caller's words, and stand as `#` and a hash.
    """
    found = list(_differences(before, after, ()))
    listed = [{"at": pointer(_shown(path, names)), **{side: digest(canonical(value))[:HASH // 2].hex()
                                       for side, value in (("before", old), ("after", new)) if value is not _MISSING}}
              for path, old, new in found[:MOST]]
    return {"changes": listed, "more": len(found) - MOST if len(found) > MOST else None}


_MISSING = object()


def _shown(path: tuple[object, ...], names: Collection[str]) -> tuple[object, ...]:
    return tuple(step if type(step) is int or step in names else f"#{digest(canonical(step))[:4].hex()}"
                 for step in path)


def _names(schema: Any) -> Iterator[str]:
    """The names of fields that a JSON Schema declares, wherever."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _names(inner)
    elif isinstance(schema, dict):
        for word, inner in schema.items():
            if word == "properties" and isinstance(inner, dict):
                yield from inner
            yield from _names(inner)


def _loaded(text: str) -> Any:
    """A stored input; one that no longer reads is one value like any other, so that it can be mended."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _differences(before: Any, after: Any, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], Any, Any]]:
    if type(before) is not type(after) or not isinstance(before, (dict, list)):
        if before != after or type(before) is not type(after):
            yield path, before, after
        return
    if isinstance(before, list):
        if len(before) != len(after):
            yield path, before, after
            return
        for n, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*path, n))
        return
    for key in sorted(before.keys() | after.keys()):
        yield from _differences(before.get(key, _MISSING), after.get(key, _MISSING), (*path, key))
