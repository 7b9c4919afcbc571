"""The payloads of the nine kinds: exact fields, spelled as the callers of A spell them (A20, A21).

The source names the authentication context, `executionPath`, the payload's timeout and the reason of a control job;
what else is here is what those kinds need to name their work. Nothing is open: `codecs.Opaque` is for others (E9).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_TIMEOUT_MS: Final = 86_400_000
MAX_TEXT: Final = 32_768


def _one_line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be printable, on one line, without spaces around it")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("must be an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or " " in text:
        raise ValueError("must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must hold no login")
    return text


Id = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Word = Annotated[str, Field(pattern=r"\A[a-z][a-z0-9_-]{0,63}\z")]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Url = Annotated[str, Field(max_length=2_000), AfterValidator(_one_line), AfterValidator(_url)]
Timeout = Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)]
Commit = Annotated[str, Field(pattern=r"\A[0-9a-f]{40}(?:[0-9a-f]{24})?\z")]


class Strict(BaseModel):
    """Exact fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AuthContext(Strict):
    """On whose behalf: a description without secrets, for the runner to resolve (A21)."""

    userId: Id
    organizationId: Id
    workspaceId: Id | None = None
    receiptConnectGatewayUrl: Url | None = None
    sessionId: Id | None = None
    source: Id | None = None


class Payload(Strict):
    """What every kind but the watchdog has. `timeoutMs` lengthens the lease of a codex job (A43)."""

    authContext: AuthContext
    timeoutMs: Timeout | None = None


class Scoped(Payload):
    """A payload about an objective."""

    objectiveId: Id | None = None


class Dispatch(Scoped):
    """`factory.dispatch`."""

    kind: Literal["factory.dispatch"] = "factory.dispatch"
    goal: Text | None = None
    reason: Word | None = None


class FactoryRun(Scoped):
    """`factory.run`."""

    kind: Literal["factory.run"] = "factory.run"
    runId: Id | None = None
    prompt: Text | None = None


class Publish(Scoped):
    """`factory.integration.publish`."""

    kind: Literal["factory.integration.publish"] = "factory.integration.publish"
    branch: Id | None = None
    commit: Commit | None = None


class Validate(Scoped):
    """`factory.integration.validate`."""

    kind: Literal["factory.integration.validate"] = "factory.integration.validate"
    branch: Id | None = None
    commit: Commit | None = None


class Audit(Scoped):
    """`factory.objective.audit`."""

    kind: Literal["factory.objective.audit"] = "factory.objective.audit"
    reason: Word | None = None


class Control(Scoped):
    """`factory.objective.control`. The watchdog's reason is `reconcile`, with what it saw as `cause` (A49)."""

    kind: Literal["factory.objective.control"] = "factory.objective.control"
    reason: Word | None = None
    cause: Word | None = None


class Watchdog(Strict):
    """`factory.objective.watchdog`: the house's own round over all objectives, on nobody's behalf (A21, A49)."""

    kind: Literal["factory.objective.watchdog"] = "factory.objective.watchdog"
    authContext: AuthContext | None = None
    scanLimit: Annotated[int, Field(ge=1, le=2_000)] | None = None


class Task(Scoped):
    """A payload about one task. `computer` is the execution path in a sandbox, which may be quiet for long (A42)."""

    taskId: Id | None = None
    executionPath: Word | None = None


class Monitor(Task):
    """`factory.task.monitor`."""

    kind: Literal["factory.task.monitor"] = "factory.task.monitor"


class TaskRun(Task):
    """`factory.task.run`."""

    kind: Literal["factory.task.run"] = "factory.task.run"
    prompt: Text | None = None


PAYLOADS: Final[dict[str, type[Strict]]] = {model.model_fields["kind"].default: model for model in (
    Dispatch, FactoryRun, Publish, Validate, Audit, Control, Watchdog, Monitor, TaskRun)}


class Finished(Strict):
    """The result of every kind: what came of it in words, and where more is to be found."""

    summary: Annotated[str, Field(max_length=MAX_TEXT)]
    references: Annotated[list[Url], Field(max_length=32)] = []
