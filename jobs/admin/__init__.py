"""The Django admin: every row to look at, none to edit; people act through the services (RELIABILITY 6.2).

One module a noun. Rows with a composite key have no page of their own in Django's admin: receipts stand on their job,
counted caps on their attempt.
"""

from jobs.admin import (  # noqa: F401
    artifact,
    attempt,
    bulk_operation,
    command,
    dead_letter,
    delivery,
    erasure,
    firing,
    grant,
    job,
    key,
    limits,
    line,
    owner,
    target,
    tenancy,
    throttle,
    timer,
    worker,
)
