"""The site as a Django app, for its commands."""

from django.apps import AppConfig


class JobsiteConfig(AppConfig):
    """Holds `manage.py demo` and what else belongs to the site and not to jobs."""

    name = "jobsite"
    verbose_name = "Jobsite"
