"""The routes of the console. A site includes them at its root: `path("", include("jobs.pages.urls"))`."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path, register_converter

from jobs.pages import (
    acting,
    bulk,
    bulk_jobs,
    callbacks,
    enqueue,
    job,
    letter,
    letters,
    listing,
    overview,
    payload,
    timers,
    workers,
)
from jobs.sightings import PAYLOADS


class Numbered:
    """A row's number; one that no row can have is no route."""

    regex = "[1-9][0-9]{0,17}"
    to_python = staticmethod(int)
    to_url = staticmethod(str)


register_converter(Numbered, "pos")
app_name = "console"
urlpatterns = [
    path("", overview.Overview.as_view(), name="overview"),
    path("jobs/", listing.Jobs.as_view(), name="jobs"),
    path("jobs/new/", enqueue.Enqueue.as_view(), name="enqueue"),
    path("jobs/act/", acting.Acting.as_view(), name="act"),
    path("jobs/act/all/", bulk_jobs.JobsPreview.as_view(), name="act_all"),
    path("jobs/<uuid:pk>/", job.Job.as_view(), name="job"),
    path("jobs/<uuid:pk>/log/<int:number>", payload.Log.as_view(), name="log"),
    path("jobs/<uuid:pk>/callbacks/<uuid:delivery>/replay/", callbacks.Replay.as_view(), name="callback_replay"),
    *(path(f"jobs/<uuid:pk>/{name}", payload.Download.as_view(), {"name": name}, name=name)
      for name in PAYLOADS),
    path("dead-letters/", letters.Letters.as_view(), name="letters"),
    path("dead-letters/list/", letters.Listing.as_view(), name="letters_list"),
    path("dead-letters/answer/", bulk.Preview.as_view(), name="letters_answer"),
    path("dead-letters/answers/", bulk.Bulks.as_view(), name="bulks"),
    path("dead-letters/answers/<pos:pk>/", bulk.Bulk.as_view(), name="bulk"),
    path("dead-letters/answers/<pos:pk>/stop/", bulk.Steer.as_view(verb="stop"), name="bulk_stop"),
    path("dead-letters/answers/<pos:pk>/go/", bulk.Steer.as_view(verb="go"), name="bulk_go"),
    path("dead-letters/<pos:pk>/", letter.Letter.as_view(), name="letter"),
    path("dead-letters/<pos:pk>/requeue/", letter.Answer.as_view(verb="requeue"), name="letter_requeue"),
    path("dead-letters/<pos:pk>/discard/", letter.Answer.as_view(verb="discard"), name="letter_discard"),
    path("timers/", timers.Timers.as_view(), name="timers"),
    path("timers/<uuid:pk>/", timers.Timer.as_view(), name="timer"),
    *(path(f"timers/<uuid:pk>/{verb}/", timers.Answer.as_view(verb=verb), name=f"timer_{verb}")
      for verb in ("pause", "resume", "run")),
    path("workers/", workers.Workers.as_view(), name="workers"),
    path("login/", LoginView.as_view(template_name="jobs/login.html", next_page="console:overview"), name="login"),
    path("logout/", LogoutView.as_view(next_page="console:login"), name="logout"),
]
