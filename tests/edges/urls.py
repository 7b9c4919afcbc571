"""The API of jobs and of lanes alone, for its own tests: what a site does with it."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("api/", include("lanes.api.urls")), path("api/", include("jobs.api.urls"))]
handler400 = "jobs.api.errors.bad_request"
handler403 = "jobs.api.errors.permission_denied"
handler404 = "jobs.api.errors.page_not_found"
handler500 = "jobs.api.errors.server_error"
