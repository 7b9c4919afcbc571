"""The routes of lanes' pages. A site includes them at its root, before the console's."""

from __future__ import annotations

from django.urls import path

from lanes.pages import acting, adding, board, lane, making, navigation, quorums

app_name = "lanes"
urlpatterns = [
    path("lanes/", board.Board.as_view(), name="board"),
    path("lanes/new/", making.NewLane.as_view(), name="new"),
    path("lanes/quorums/", quorums.Quorums.as_view(), name="quorums"),
    path("lanes/quorums/new/", making.NewQuorum.as_view(), name="new_quorum"),
    path("lanes/quorums/<uuid:pk>/", quorums.Quorum.as_view(), name="quorum"),
    path("lanes/quorums/<uuid:pk>/close/", acting.Close.as_view(), name="close"),
    path("lanes/<uuid:pk>/", lane.Lane.as_view(), name="lane"),
    path("lanes/<uuid:pk>/act/", acting.Act.as_view(), name="act"),
    path("lanes/<uuid:pk>/assign/", acting.Assign.as_view(), name="assign"),
    path("lanes/<uuid:pk>/depend/", acting.Depend.as_view(), name="depend"),
    path("lanes/<uuid:pk>/jobs/attach/", adding.Attach.as_view(), name="attach"),
    path("lanes/<uuid:pk>/jobs/new/", adding.Enqueue.as_view(), name="enqueue"),
]
# Where pages are routed they have a place in the head; a worker needs neither.
navigation.place()
