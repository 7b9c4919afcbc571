"""Every refusal of the product, by class and stable code.

The class says what kind of refusal it is (`NotFound`, `Conflict`, `Refused`, `Invalid`), `code` is the
stable word callers match on, the docstring is the default message. HTTP numbers are the API's business.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class JobsError(Exception):
    """The request was refused."""

    code: ClassVar[str] = "refused"

    def __init__(self, message: str = "", *, field: str | None = None, code: str | None = None, **facts: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.field = field
        self.facts = facts
        self.reason_code = code or type(self).code
        super().__init__(self.message)


class NotFound(JobsError):
    """There is no such thing, or it is not yours."""

    code = "not_found"


class Conflict(JobsError):
    """The thing is in a state that does not allow this."""

    code = "conflict"


class Refused(JobsError):
    """A limit or a rule of this site does not allow this now."""

    code = "refused"


class NeedsReadCommitted(Refused):
    """This needs a transaction at READ COMMITTED: above, it cannot see what others did while it waited."""

    code = "needs_read_committed"


class Invalid(JobsError):
    """The request is malformed. `faults` names every offending field."""

    code = "invalid_request"

    def __init__(self, message: str = "", *, field: str | None = None, code: str | None = None,
                 faults: list[dict[str, str]] | None = None, **facts: Any) -> None:
        super().__init__(message, field=field, code=code, **facts)
        self.faults = faults if faults is not None else ([{"field": field, "message": self.message}] if field else [])


class StaleFence(Conflict):
    """This claim is no longer the live one; nothing was changed."""

    code = "stale_claim"


class JobEnded(Conflict):
    """The job has ended."""

    code = "job_ended"


class IllegalMove(Conflict):
    """The job's state does not allow this."""

    code = "illegal_move"


class RevisionMismatch(Conflict):
    """The job has moved on since it was read."""

    code = "revision_mismatch"


class KeyReused(Refused):
    """This key already names another request."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("This idempotency key already names another request.", field="idempotency_key")


class JobNotFound(NotFound):
    """There is no such job, or it is not yours."""

    code = "job_not_found"


class JobError(Exception):
    """A handler's own failure: a safe, code-owned reason (B25, C14).

    `reason_code` is a snake_case token that people and retry policies see; `retryable` False ends the chain.
    The message is kept for people; neither may hold private text (B31). A malformed code is a ValueError.
    """

    def __init__(self, reason_code: str, message: str = "", *, retryable: bool = True) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", reason_code):
            raise ValueError("A reason code is snake_case, at most 64 characters.")
        self.reason_code = reason_code
        self.message = message or reason_code.replace("_", " ")
        self.retryable = retryable
        super().__init__(self.message)
