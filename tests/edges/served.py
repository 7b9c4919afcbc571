"""Serves the site by daphne on the test database: `python -m tests.edges.served PORT DATABASE`."""

from __future__ import annotations

import os
import sys


def main(port: str, database: str) -> None:
    """Serve until terminated."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = database
    # Pages of a test's own.
    settings.ROOT_URLCONF = os.environ.get("SERVED_URLCONF", settings.ROOT_URLCONF)
    import django

    django.setup()
    from jobsite import serving

    serving.serve(serving.listen("127.0.0.1", int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
