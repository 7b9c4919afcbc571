"""The routes of the API. A site includes them: `path("api/", include("jobs.api.urls"))`."""

from __future__ import annotations

from django.urls import path, re_path, register_converter
from django.urls.converters import PathConverter

from jobs.api import (
    agents,
    assignments,
    batch,
    bulk,
    commands,
    controls,
    definitions,
    deliveries,
    docs,
    events,
    explain,
    held_many,
    history,
    jobs,
    letters,
    limits,
    openapi,
    owner,
    runtime,
    throttles,
    timers,
    views,
    waiting,
)


class AnyText(PathConverter):
    """The rest of a path, whatever is in it: Django's own ends at a new line."""

    regex = r"(?s:.+)"


register_converter(AnyText, "text")

urlpatterns = [
    path("v1/jobs", jobs.Jobs.as_view()),
    path("v1/jobs/dead-letters", letters.Letters.as_view()),
    path("v1/jobs/batch", batch.Batch.as_view()),
    path("v1/jobs/<str:name>", jobs.Job.as_view()),
    path("v1/jobs/<str:name>/events", events.JobEvents.as_view()),
    path("v1/jobs/<str:name>/wait", waiting.Wait.as_view()),
    path("v1/jobs/<str:name>/explain", explain.Explain.as_view()),
    path("v1/jobs/<str:name>/receipts", history.Receipts.as_view()),
    path("v1/jobs/<str:name>/attempts", history.Attempts.as_view()),
    path("v1/jobs/<str:name>/artifact", history.Artifact.as_view()),
    path("v1/jobs/<str:name>/controls", controls.Controls.as_view()),
    path("v1/jobs/<str:name>/steer", commands.Steer.as_view()),
    path("v1/jobs/<str:name>/follow_up", commands.FollowUp.as_view()),
    path("v1/jobs/<str:name>/follow-up", commands.FollowUp.as_view()),
    path("v1/jobs/<str:name>/abort", commands.Abort.as_view()),
    path("v1/jobs/<str:name>/requeue", letters.Requeue.as_view()),
    path("v1/jobs/<str:name>/redact", controls.Redact.as_view()),
    path("v1/jobs/<str:name>/dead-letter", letters.DeadLetter.as_view()),
    path("v1/jobs/<str:name>/deliveries", deliveries.OfJob.as_view()),
    path("v1/deliveries", deliveries.Deliveries.as_view()),
    path("v1/deliveries/<str:name>/replay", deliveries.Replay.as_view()),
    path("v1/callback-secrets", deliveries.Secrets.as_view()),
    path("v1/callback-secrets/<str:name>", deliveries.Secret.as_view()),
    path("v1/agents/<str:agent>/jobs", agents.AgentJobs.as_view()),
    path("v1/bulk", bulk.Bulks.as_view()),
    path("v1/bulk/preview", bulk.Preview.as_view()),
    path("v1/bulk/<str:name>", bulk.Bulk.as_view()),
    path("v1/bulk/<str:name>/items", bulk.Items.as_view()),
    path("v1/bulk/<str:name>/controls", bulk.Controls.as_view()),
    path("v1/definitions", definitions.Definitions.as_view()),
    path("v1/owner", owner.OwnerOfTenant.as_view()),
    path("v1/workspaces/<str:name>/job-limits", limits.JobLimits.as_view()),
    path("v1/throttles", throttles.Throttles.as_view()),
    path("v1/throttles/<str:kind>/<text:name>", throttles.ThrottleOf.as_view()),
    path("v1/timers", timers.Timers.as_view()),
    path("v1/timers/preview", timers.Preview.as_view()),
    path("v1/timers/<str:name>", timers.TimerOfTenant.as_view()),
    path("v1/timers/<str:name>/pause", timers.Pause.as_view()),
    path("v1/timers/<str:name>/resume", timers.Resume.as_view()),
    path("v1/timers/<str:name>/run", timers.Run.as_view()),
    path("v1/timers/<str:name>/upcoming", timers.Next.as_view()),
    path("v1/timers/<str:name>/firings", timers.Firings.as_view()),
    path("v1/events", events.TenantEvents.as_view()),
    path("v1/openapi.json", openapi.OpenAPI.as_view()),
    path("v1/runtime/claim", runtime.Claim.as_view()),
    path("v1/assignments/extend", held_many.ExtendMany.as_view()),
    path("v1/assignments/settle", held_many.SettleMany.as_view()),
    path("v1/assignments/<str:name>/extend", assignments.Extend.as_view()),
    path("v1/assignments/<str:name>/complete", assignments.Complete.as_view()),
    path("v1/assignments/<str:name>/fail", assignments.Fail.as_view()),
    path("v1/assignments/<str:name>/cancelled", assignments.Cancelled.as_view()),
    path("v1/assignments/<str:name>/release", assignments.Release.as_view()),
    path("docs", docs.page),
    # The last one catches what is none of them, also in front of Django's redirects for a missing slash.
    re_path("", views.Unknown.as_view()),
]
