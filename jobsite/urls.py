"""Which URL belongs to whom."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/", include("jobs.api.urls")),
]

handler400 = "jobs.api.errors.bad_request"
handler403 = "jobs.api.errors.permission_denied"
handler404 = "jobs.api.errors.page_not_found"
handler500 = "jobs.api.errors.server_error"
