"""Three kinds of research, which runners with a model execute: evidence, answer, brief (B43 to B45, E9).

`document-summary@1`, the fourth of the family, runs here (`documents`). Completed evidence asks for its answer by
`jobsite.research.chain`.
"""

from __future__ import annotations

from typing import Any, Final

from jobs import RetryPolicy
from jobs.registry import Definition, external
from jobsite.research import chain
from jobsite.research.contents import (
    ANSWER,
    BRIEF,
    EVIDENCE,
    AnswerAsked,
    BriefAsked,
    Evidence,
    EvidenceAsked,
    Prepared,
    Report,
)
from jobsite.research.switches import Switches, said, switches

GROUP: Final = "research"
STAGE_S: Final = 300.0
# Of one search, its authorization included; a runner that waits longer fails with one of these codes (B44).
SEARCH_S: Final = 60.0
SEARCH_TIMEOUT: Final = "web_search_timeout"
AUTHORIZATION_TIMEOUT: Final = "web_search_authorization_timeout"
STAGE_CREDITS: Final = 30
RETRY: Final = RetryPolicy(max_attempts=3, base_delay_s=1, max_delay_s=300)


def definitions(on: Switches, credential: Any = "owner") -> list[Definition]:
    """The three under these flags, run with nobody's credential or with that of the tenant's `owner`."""
    family: dict[str, Any] = {
        "worker_group": GROUP, "credential": credential, "strict_lease": True, "lapse_counts": False,
        "origins": {"user", "planner"}, "retry": RETRY, "retention": None, "isolated": False}
    return [
        external(
            EVIDENCE, label="Research: evidence", **family, enabled=on.public, runs=on.public,
            description="Looks for public evidence on the web, with nothing but the brief.",
            input=EvidenceAsked, artifact=Evidence, max_input_bytes=48 * 1024, max_artifact_bytes=1024 * 1024,
            stages={"search": "Searching the web"}, max_ai_credits=STAGE_CREDITS, timeout_s=STAGE_S,
            subject=lambda asked: asked["request_id"], on_ended=chain.collected),
        external(
            ANSWER, label="Research: answer", **family, enabled=on.private, runs=on.private,
            description="Answers by the parent document and the evidence, in two steps that see no web.",
            input=AnswerAsked, artifact=Report, max_input_bytes=8 * 1024 * 1024, max_artifact_bytes=1024 * 1024,
            stages={"analyze": "Analyzing the document", "write": "Writing the report"},
            max_ai_credits=2 * STAGE_CREDITS, timeout_s=2 * STAGE_S, subject=lambda asked: asked["request_id"],
            publish=chain.publish),
        external(
            BRIEF, label="Research: brief", **family, enabled=on.private, runs=on.private,
            description="Prepares the brief that a chat's offer of research shows.",
            input=BriefAsked, artifact=Prepared, max_input_bytes=4 * 1024 * 1024, max_artifact_bytes=64 * 1024,
            stages={"prepare": "Preparing the brief"}, max_ai_credits=STAGE_CREDITS, timeout_s=STAGE_S,
            subject=lambda asked: asked["offer_id"])]


DEFINITIONS = definitions(switches(), said().get("CREDENTIAL", "owner"))
