"""What a person may be allowed to do, each thing by itself; admin and pages ask for these and nothing else."""

from __future__ import annotations

from enum import Enum


class Permission(Enum):
    """A permission of Django's on jobs. Superusers have all of them, staff have none of themselves."""

    VIEW = ("view_job", "Can view job")
    VIEW_PAYLOAD = ("view_payload", "Can view inputs, artifacts and checkpoints")
    ENQUEUE = ("enqueue_job", "Can enqueue jobs")
    CANCEL = ("cancel_job", "Can cancel jobs")
    PAUSE = ("pause_job", "Can pause and resume jobs")
    REQUEUE = ("requeue_job", "Can requeue dead letters")
    DISCARD = ("discard_job", "Can discard dead letters")
    ARCHIVE = ("archive_tenant", "Can archive and restore tenants")
    ERASE = ("erase", "Can redact jobs, and redact or delete tenants for good")
    MANAGE_LIMITS = ("manage_limits", "Can manage limits")
    MANAGE_KEYS = ("manage_keys", "Can manage keys of the API")
    MANAGE_OWNERS = ("manage_owners", "Can manage owners")
    MANAGE_TIMERS = ("manage_timers", "Can manage timers")

    @property
    def codename(self) -> str:
        """As Django stores it."""
        return self.value[0]

    @property
    def label(self) -> str:
        """As `user.has_perm` takes it."""
        return f"jobs.{self.value[0]}"


# For Meta.permissions: `view_job` is a default permission of the model already.
OWN = [p.value for p in Permission if p is not Permission.VIEW]
