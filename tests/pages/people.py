"""People of the console's tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Permission

PASSWORD = "correct horse battery staple"


@cache
def _hashed(hasher: str) -> str:
    # Meant to be slow, and the same for all of them; tests that choose a quick hasher know only that one.
    return make_password(PASSWORD)


def person(name: str, *permissions: str, superuser: bool = False, staff: bool = True) -> Any:
    """A user with these permissions of jobs (`view_job`, `requeue_job`, ...), made anew."""
    User = get_user_model()
    User.objects.filter(username=name).delete()
    make = User.objects.create_superuser if superuser else User.objects.create_user
    user = make(name, password=None, is_staff=staff or superuser)
    user.password = _hashed(settings.PASSWORD_HASHERS[0])
    user.save(update_fields=["password"])
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobs", codename__in=permissions))
    assert user.user_permissions.count() == len(permissions), "there is no such permission"
    return user
