"""The routes of the API. A site includes them: `path("api/", include("jobs.api.urls"))`."""

from __future__ import annotations

from django.urls import path, re_path

from jobs.api import (
    agents,
    assignments,
    commands,
    controls,
    definitions,
    events,
    explain,
    history,
    jobs,
    owner,
    runtime,
    views,
    waiting,
)

urlpatterns = [
    path("v1/jobs", jobs.Jobs.as_view()),
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
    path("v1/jobs/<str:name>/requeue", controls.Requeue.as_view()),
    path("v1/jobs/<str:name>/redact", controls.Redact.as_view()),
    path("v1/jobs/<str:name>/dead-letter", controls.DeadLetter.as_view()),
    path("v1/agents/<str:agent>/jobs", agents.AgentJobs.as_view()),
    path("v1/definitions", definitions.Definitions.as_view()),
    path("v1/owner", owner.OwnerOfTenant.as_view()),
    path("v1/events", events.TenantEvents.as_view()),
    path("v1/runtime/claim", runtime.Claim.as_view()),
    path("v1/assignments/<str:name>/extend", assignments.Extend.as_view()),
    path("v1/assignments/<str:name>/complete", assignments.Complete.as_view()),
    path("v1/assignments/<str:name>/fail", assignments.Fail.as_view()),
    path("v1/assignments/<str:name>/cancelled", assignments.Cancelled.as_view()),
    path("v1/assignments/<str:name>/release", assignments.Release.as_view()),
    # The last one catches what is none of them, also in front of Django's redirects for a missing slash.
    re_path("", views.Unknown.as_view()),
]
