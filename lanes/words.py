"""The words of a request about lanes, checked one by one: every refusal names the field and what would be right.

Plain Python: what only rows can tell (who may be an assignee, which lanes there are) is asked later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from jobs.codecs import printable
from jobs.errors import Invalid
from lanes.axes import STATES, Axis, verbs
from lanes.errors import CommitRequired

NAME_LIMIT, TITLE_LIMIT, BRANCH_LIMIT, TASK_LIMIT, REASON_LIMIT = 100, 200, 200, 512, 512
MOST_DEPENDENCIES = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)
# What git takes for no part of a name (git-check-ref-format), and blanks of every kind.
_UNFIT = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")
VERB_FIELDS = {Axis.EXECUTION: "state", Axis.REVIEW: "review", Axis.MERGE: "outcome"}


def name(value: Any, field: str = "name") -> str:
    """The name of a quorum or lane."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid("must be 1 to 100 of a-z 0-9 . _ -, and begin with a letter or digit", field=field,
                      code="invalid_name")
    return value


def _text(value: Any, most: int, field: str, *, least: int = 0) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable() \
            or value != value.strip():
        raise Invalid(f"must be {least} to {most} printable characters, without blanks around them", field=field,
                      code=f"invalid_{field}")
    return value


def title(value: Any) -> str:
    """A title for people; may be empty."""
    return _text(value, TITLE_LIMIT, "title")


def task(value: Any) -> str:
    """The one task thread of a lane (D7): an address or a name, whatever the team's tracker has."""
    return _text(value, TASK_LIMIT, "task", least=1)


def reason(value: Any) -> str:
    """Why somebody does it; may be empty."""
    if not isinstance(value, str) or len(value) > REASON_LIMIT or not value.isprintable():
        raise Invalid(f"must be at most {REASON_LIMIT} printable characters", field="reason", code="invalid_reason")
    return value


def branch(value: Any) -> str:
    """A name that git takes for a branch (`git check-ref-format --branch`), at most 200 characters (D7)."""
    if not isinstance(value, str) or not 0 < len(value) <= BRANCH_LIMIT or not _is_branch(value):
        raise Invalid(f"must be a name that git takes for a branch, at most {BRANCH_LIMIT} characters", field="branch",
                      code="invalid_branch")
    return value


def _is_branch(value: str) -> bool:
    if _UNFIT.search(value) or not value.isprintable() or value in ("@", "HEAD") or value.startswith("-"):
        return False
    if ".." in value or "@{" in value or value.endswith("."):
        return False
    return all(part and not part.startswith(".") and not part.endswith(".lock") for part in value.split("/"))


def commit(value: Any, *, required: bool = False) -> str | None:
    """The pointer to a commit: 7 to 64 hexadecimal digits, kept in lower case. Raises CommitRequired too (D11)."""
    if value in (None, ""):
        if required:
            raise CommitRequired(field="commit")
        return None
    if not isinstance(value, str) or not _COMMIT.fullmatch(value.lower()):
        raise Invalid("must be 7 to 64 hexadecimal digits", field="commit", code="invalid_commit")
    return value.lower()


def verb(axis: Axis, value: Any) -> str:
    """A verb of this axis. Of execution and merge each state is one, though to some of them nothing leads."""
    field, known = VERB_FIELDS[axis], verbs(axis)
    if not isinstance(value, str) or (value not in known and (axis is Axis.REVIEW or value not in STATES[axis])):
        raise Invalid(f"must be one of {', '.join(known)}", field=field, code=f"unknown_{field}")
    return value


def state(axis: Axis, value: Any) -> str | None:
    """A state of this axis by which a list is narrowed."""
    if value is not None and (not isinstance(value, str) or value not in STATES[axis]):
        raise Invalid(f"must be one of {', '.join(STATES[axis])}", field=axis.value, code="unknown_state")
    return value


def version(value: Any) -> int | None:
    """The version that a caller has read."""
    if value is not None and (type(value) is not int or not 1 <= value < 2 ** 31):
        raise Invalid("must be a whole number from 1", field="version", code="invalid_version")
    return value


def dependencies(value: Any) -> list[str]:
    """Lanes by id or name, each once, in the order given."""
    code = "invalid_dependency"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Invalid("must be a list of lanes, by id or name", field="depends_on", code=code)
    said: dict[str, None] = {}
    for one in value:
        if not isinstance(one, str) or not 0 < len(one) <= NAME_LIMIT or not one.isprintable():
            raise Invalid(f"must hold ids or names of lanes: {printable(str(one), 40)!r} is none", field="depends_on",
                          code=code)
        said[one] = None
        if len(said) > MOST_DEPENDENCIES:
            raise Invalid(f"must hold at most {MOST_DEPENDENCIES} lanes", field="depends_on", code=code)
    return list(said)
