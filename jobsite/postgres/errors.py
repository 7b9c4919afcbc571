"""Why the embedded PostgreSQL could not be used. Each class is one refusal; its message says what to do."""

from __future__ import annotations

ADVICE = "To use a PostgreSQL server of your own instead, set DATABASE_URL."


class PostgresError(RuntimeError):
    """The embedded PostgreSQL cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\n{ADVICE}")


class BinariesMissing(PostgresError):
    """No PostgreSQL of a supported version was found on this machine."""


class PlaceRefused(PostgresError):
    """A directory that we need belongs to somebody else, is too far down, or cannot be reached."""


class VersionMismatch(PostgresError):
    """The data were made by another major version than the binaries found."""


class InUse(PostgresError):
    """The data, or the server of this project, are in use in a way that we must not disturb."""


class StartFailed(PostgresError):
    """PostgreSQL ended before it accepted connections; the end of its log is in the message."""


class StillBusy(PostgresError):
    """Something did not come to an end in time: a start, a stop, a recovery. It goes on; trying again is right."""
