"""Checks what a run left behind against RELIABILITY 5.3, with plain SQL and Python: nothing of the product is imported.

`check` answers a list of sentences, one for each violation; an empty list is what a run must end with.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import psycopg
from psycopg.rows import dict_row

ENDED = {"completed", "failed", "cancelled", "superseded"}
HELD = {"leased", "running"}
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def check(dsn: str, wanted: Sequence[str] | None, lines: Sequence[dict[str, Any]]) -> list[str]:
    """All violations among these jobs (None: all there are), given the recorder's lines. Nothing may be running."""
    with psycopg.connect(dsn, row_factory=dict_row, autocommit=True) as connection:
        jobs = connection.execute("SELECT * FROM jobs_job ORDER BY id").fetchall()
        attempts = _by_job(connection, "SELECT * FROM jobs_attempt ORDER BY job_id, number")
        receipts = _by_job(connection, "SELECT * FROM jobs_receipt ORDER BY job_id, number")
        artifacts = _by_job(connection, "SELECT * FROM jobs_artifact")
        letters = _by_job(connection, "SELECT * FROM jobs_dead_letter ORDER BY job_id, chain")
        left = connection.execute("SELECT count(*) AS n FROM jobs_attempt_cap").fetchone()
    found = list(_lost_or_invented(jobs, wanted))
    if left is not None and left["n"]:
        found.append(f"I9: {left['n']} cap rows are left though nothing runs")
    for job in jobs:
        id_ = job["id"]
        mine = [line for line in lines if line.get("job") == str(id_)]
        for check_one in (_stuck, _fenced, _bounded, _chained, _folded, _result, _executed):
            found += [f"{said} (job {id_}, {job['type']})" for said in check_one(
                job, attempts[id_], receipts[id_], artifacts[id_], letters[id_], mine)]
    return found


def _by_job(connection: Any, sql: str) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(sql):
        found[row["job_id"]].append(row)
    return found


def _lost_or_invented(jobs: Sequence[dict[str, Any]], wanted: Sequence[str] | None) -> Iterator[str]:
    if wanted is None:
        return
    there = {str(job["id"]) for job in jobs}
    yield from (f"I1: lost {id_}" for id_ in set(wanted) - there)
    yield from (f"I1: invented {id_}" for id_ in there - set(wanted))


def _stuck(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    if job["state"] not in ENDED:
        yield f"I8: still {job['state']}"
    if job["attempt_id"] is not None or any(a["ended_at"] is None for a in attempts):
        yield "I2: an attempt is live though nothing runs"


def _fenced(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    numbers = [a["number"] for a in attempts]
    if numbers != list(range(1, job["claims"] + 1)):
        yield f"I3: attempts {numbers} of {job['claims']} claims"
    for before, after in pairwise(attempts):
        if before["ended_at"] is None or before["ended_at"] > after["leased_at"]:
            yield f"I2: attempt {after['number']} began before {before['number']} had ended"


def _bounded(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    ends = Counter(a["outcome"] for a in attempts if a["chain"] == job["chain"])
    if job["max_attempts"] is not None and job["failures"] > job["max_attempts"]:
        yield f"I5: {job['failures']} failures of {job['max_attempts']}"
    counted = {"lapses": "lapsed", "releases": "released", "interruptions": "interrupted", "pauses": "paused"}
    for column, outcome in counted.items():
        if job[column] != ends[outcome]:
            yield f"I5: {job[column]} {column}, {ends[outcome]} attempts that ended so"
    if job["chain_claims"] != sum(ends.values()):
        yield f"I5: {job['chain_claims']} claims of the chain, {sum(ends.values())} attempts"


def _chained(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    if [r["number"] for r in receipts] != list(range(1, job["number"] + 1)):
        yield "I7: the receipts have gaps"
    if [r["number"] for r in receipts if r["kind"] == "job.enqueued"] != [1]:
        yield "I7: not exactly one job.enqueued, as the first"
    head = bytes(32)
    for r in receipts:
        micros = (r["at"] - EPOCH) // (EPOCH.resolution)
        kind = r["kind"].encode()
        head = hashlib.sha256(head + r["job_id"].bytes + r["number"].to_bytes(8, "big") + micros.to_bytes(8, "big")
                              + len(kind).to_bytes(4, "big") + kind + r["body"].encode()).digest()
        if head != bytes(r["hash"]):
            yield f"I7: hash mismatch at receipt {r['number']}"
            return
    if head != bytes(job["head"]):
        yield "I7: the head is not the last receipt's"


def _folded(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    """A reducer of its own: what the receipts say must be what the row says."""
    state, holder, claims, failures, revision, ends = "", None, 0, 0, 0, 0
    for r in receipts:
        body = json.loads(r["body"])
        if r["kind"] == "job.requeued":
            failures = 0
        if "to" not in body:
            continue
        if body.get("attempt") is not None and r["kind"] != "job.leased" and body["attempt"] != holder:
            yield f"I3: receipt {r['number']} is of an attempt that was not live"
        if state in ENDED and r["kind"] != "job.requeued":
            yield f"I4: receipt {r['number']} moves an ended job"
        if r["kind"] == "job.leased" and state != "queued":
            yield f"I2: receipt {r['number']} leases a {state} job"
        state, revision = body["to"], revision + 1
        claims += r["kind"] == "job.leased"
        failures += bool(body.get("failure"))
        ends += state in ENDED
        holder = body["attempt"] if state in HELD else None
    seen = {"state": state, "claims": claims, "failures": failures, "revision": revision}
    for name, value in seen.items():
        if job[name] != value:
            yield f"I6: the receipts say {name} {value}, the row {job[name]}"
    if state in ENDED and ends != job["chain"]:
        yield f"I4: {ends} ends in {job['chain']} chains"


def _result(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    if (job["state"] == "completed") != (len(artifacts) == 1):
        yield f"I13: {job['state']} with {len(artifacts)} artifacts"
    for artifact in artifacts:
        if hashlib.sha256(artifact["value"].encode()).digest() != bytes(artifact["hash"]):
            yield "I13: the artifact is not what its hash says"
    open_letters = [x for x in letters if x["resolved_at"] is None]
    if len(open_letters) > 1 or (open_letters and job["state"] != "failed"):
        yield f"I4: {len(open_letters)} open dead letters of a {job['state']} job"


def _executed(job: Any, attempts: Any, receipts: Any, artifacts: Any, letters: Any, lines: Any) -> Iterator[str]:
    """By the recorder: a handler ran once for a claim, and never under a claim that there was not."""
    starts = Counter(line["claims"] for line in lines if line["what"] == "start")
    for claims, times in starts.items():
        if times > 1:
            yield f"I2: claim {claims} was run {times} times"
        if claims > job["claims"]:
            yield f"I1: claim {claims} was run, the job has {job['claims']}"
    ended = {line["claims"] for line in lines if line["what"] == "end"}
    done = [a["number"] for a in attempts if a["outcome"] == "completed"]
    if lines and not set(done) <= ended:
        yield f"I1: attempt {done} completed though its handler never ended"
