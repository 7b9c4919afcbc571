"""Who acts: a user or a key, by the name that receipts keep and the id that grants are found by.

Plain Python. What an actor may do is said by its grants alone (`jobs.models.Grant`): that somebody is a superuser, or
may do something on the whole site, says nothing here (E2, E15).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Actor:
    """One principal: `user:ann` or `key:ab12cd34`, and exactly one of the two ids.

    `tenant_id`: of a key that sees one tenant only (C25); of jobs in a lane it sees that tenant's.
    """

    name: str
    user_id: str | None = None
    key_id: int | None = None
    tenant_id: int | None = None

    def __post_init__(self) -> None:
        # One without an id would find whatever grant has none of that kind.
        if (self.user_id is None) == (self.key_id is None):
            raise ValueError("An actor is a user or a key.")

    @property
    def granted(self) -> dict[str, Any]:
        """The filter that finds this actor's grants."""
        return {"user_id": self.user_id} if self.key_id is None else {"key_id": self.key_id}

    def is_one_of(self, user_id: str | None, key_id: int | None) -> bool:
        """Whether this user or this key is the actor."""
        return key_id == self.key_id if self.key_id is not None else user_id == self.user_id


def of_user(user: Any) -> Actor:
    """A Django user that is signed in."""
    return Actor(f"user:{user.get_username()}"[:200], user_id=str(user.pk))


def of_key(key: Any) -> Actor:
    """A live key of the API."""
    return Actor(f"key:{key.prefix}", key_id=key.pk, tenant_id=key.tenant_id)
