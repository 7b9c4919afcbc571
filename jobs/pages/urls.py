"""The routes of the console. A site includes them at its root: `path("", include("jobs.pages.urls"))`."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from jobs.pages import acting, job, letters, listing, overview, payload, workers
from jobs.sightings import PAYLOADS

app_name = "console"
urlpatterns = [
    path("", overview.Overview.as_view(), name="overview"),
    path("jobs/", listing.Jobs.as_view(), name="jobs"),
    path("jobs/act/", acting.Acting.as_view(), name="act"),
    path("jobs/<uuid:pk>/", job.Job.as_view(), name="job"),
    path("jobs/<uuid:pk>/log/<int:number>", payload.Log.as_view(), name="log"),
    *(path(f"jobs/<uuid:pk>/{name}", payload.Download.as_view(), {"name": name}, name=name)
      for name in PAYLOADS),
    path("dead-letters/", letters.Letters.as_view(), name="letters"),
    path("workers/", workers.Workers.as_view(), name="workers"),
    path("login/", LoginView.as_view(template_name="jobs/login.html", next_page="console:overview"), name="login"),
    path("logout/", LogoutView.as_view(next_page="console:login"), name="logout"),
]
