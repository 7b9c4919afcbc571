"""What the commands of lanes share: who acts, which quorum and which lane are meant, and how they are told."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model

from jobs.codecs import printable
from jobs.errors import Invalid, NotFound
from jobs.models import Workspace
from jobs.services import tenancy
from lanes import actors
from lanes.actors import Actor
from lanes.errors import LaneNotFound, QuorumNotFound
from lanes.models import Lane, Quorum


def acting(parser: argparse.ArgumentParser) -> None:
    """The options of every verb."""
    parser.add_argument("--as", dest="username", required=True, metavar="USER",
                        help="the Django user who does it; its grants decide, as over HTTP")
    parser.add_argument("--workspace", help="slug; default: the site's own")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def actor(said: dict[str, Any]) -> Actor:
    """The user of `--as`. Raises NotFound for an unknown one and for one that is not active."""
    name, user = said["username"], None
    if name.isprintable() and apps.is_installed("django.contrib.auth"):
        User = get_user_model()
        user = User._default_manager.filter(**{User.USERNAME_FIELD: name}).first()
    if user is None or not user.is_active:
        raise NotFound(f"There is no such active user: {printable(name, 80)!r}.", field="as", code="user_not_found")
    return actors.of_user(user)


def place(said: dict[str, Any]) -> Workspace:
    """The workspace of `--workspace`. Raises NotFound."""
    return tenancy.workspace(said["workspace"])


def quorum(said: dict[str, Any]) -> str:
    """The id of the quorum that is named, by id or name. Whether the actor may see it is asked by who looks at it."""
    text: str = said["quorum"]
    if not text.isprintable():
        raise QuorumNotFound()
    return _found(Quorum.objects.filter(name=text), said) or text


def lane(said: dict[str, Any]) -> str:
    """The id of the lane that is named, by id or as `QUORUM/LANE`; as `quorum`."""
    text: str = said["lane"]
    if not text.isprintable():
        raise LaneNotFound()
    quorum, _, name = text.partition("/")
    return _found(Lane.objects.filter(quorum__name=quorum, name=name), said) or text


def _found(rows: Any, said: dict[str, Any]) -> str | None:
    found = rows.filter(workspace=place(said)).values_list("pk", flat=True).first()
    return None if found is None else str(found)


def whole(text: str) -> int:
    """A whole number of the command line."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise argparse.ArgumentTypeError("must be a whole number")
    return int(text)


def reconcile(text: str | None) -> Any:
    """The reconcile job of the command line, as JSON. Raises Invalid."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid('must be JSON like {"type": "reconcile", "input": {}}', field="reconcile",
                      code="invalid_reconcile") from None
