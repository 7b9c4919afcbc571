"""`python -m jobsite COMMAND`: the command line of manage.py, also where the site is an installed package."""

import os
import sys


def main() -> None:
    """Run the command that the process was called with."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    from jobsite.cli import execute

    execute(sys.argv)


if __name__ == "__main__":
    main()
