"""Who is meant by `user:ann` or `key:ab12cd34`: principals that may be given a lane of a workspace at this moment."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from jobs.clock import Now
from jobs.models import Grant, Key
from lanes.actors import Actor, of_key, of_user
from lanes.axes import Role

# Who may be given a lane (D8).
ASSIGNABLE = (Role.ASSIGNEE.value, Role.CONDUCTOR.value)


def live_keys() -> QuerySet[Key]:
    """Those that are neither revoked nor expired."""
    return Key.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None)


def find(name: Any) -> Actor | None:
    """The living user or key of this name; None for nobody."""
    if not isinstance(name, str) or not name.isprintable():
        return None
    kind, _, rest = name.partition(":")
    if kind == "key":
        key = live_keys().filter(prefix=rest).first()
        return of_key(key) if key is not None else None
    if kind == "user" and settings.AUTH_USER_MODEL.partition(".")[0] in apps.app_configs:
        User = get_user_model()
        user = User._default_manager.filter(**{User.USERNAME_FIELD: rest}).first()
        return of_user(user) if user is not None and user.is_active else None
    return None


def assignable(workspace_id: int, name: Any) -> Actor | None:
    """The one of this name, if it may be given a lane of this workspace."""
    found = find(name)
    if found is None or not Grant.objects.filter(**found.granted, workspace_id=workspace_id,
                                                 role__in=ASSIGNABLE).exists():
        return None
    return found
