"""Which URL belongs to whom."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from jobs import metrics

admin.autodiscover()

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/", include("lanes.api.urls")),
    path("api/", include("jobs.api.urls")),
    path("metrics", metrics.view, name="metrics"),
    path("", include("jobs.pages.urls")),
]

handler400 = "jobsite.errors.bad_request"
handler403 = "jobsite.errors.permission_denied"
handler404 = "jobsite.errors.page_not_found"
handler500 = "jobsite.errors.server_error"
