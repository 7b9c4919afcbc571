"""Lanes in the Django admin: every row to look at by `jobs.view_job`, verbs by the operator's own grants (E15)."""

from lanes.admin import lane, quorum  # noqa: F401
