"""The routes of lanes. A site includes them before those of jobs, which have the last word on what is no resource.

`path("api/", include("lanes.api.urls"))`
"""

from __future__ import annotations

from django.urls import path

from lanes.api import jobs, lanes, moves, quorums

urlpatterns = [
    path("v1/quorums", quorums.Quorums.as_view()),
    path("v1/quorums/<str:name>", quorums.Quorum.as_view()),
    path("v1/quorums/<str:name>/close", quorums.Close.as_view()),
    path("v1/lanes", lanes.Lanes.as_view()),
    path("v1/lanes/<str:name>", lanes.Lane.as_view()),
    path("v1/lanes/<str:name>/state", moves.State.as_view()),
    path("v1/lanes/<str:name>/review", moves.Review.as_view()),
    path("v1/lanes/<str:name>/merge", moves.Merge.as_view()),
    path("v1/lanes/<str:name>/assignee", moves.Assignee.as_view()),
    path("v1/lanes/<str:name>/dependencies", moves.Dependencies.as_view()),
    path("v1/lanes/<str:name>/jobs", jobs.LaneJobs.as_view()),
    path("v1/lanes/<str:name>/jobs/attach", jobs.Attach.as_view()),
    path("v1/lanes/<str:name>/receipts", lanes.Receipts.as_view()),
]
