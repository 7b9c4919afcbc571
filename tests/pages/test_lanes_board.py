"""Lanes in the console: the board, one lane, quorums."""

from __future__ import annotations

import pytest

from lanes.axes import Standing
from tests.lanes import making
from tests.pages.people import person


def test_smoke(client, driver):
    lane = making.lane("first", Standing("in_progress", "submitted"), title="A title")
    other = making.lane("second", depends_on=["first"])
    from django.contrib.auth import get_user_model
    client.force_login(get_user_model().objects.get(username="conductor-default"))
    for path in ("/lanes/", "/lanes/?execution=open", "/lanes/quorums/", f"/lanes/quorums/{lane.quorum_id}/", "/lanes/quorums/new/",
                 "/lanes/new/", f"/lanes/new/?quorum={lane.quorum_id}", f"/lanes/{lane.pk}/", f"/lanes/{other.pk}/",
                 f"/lanes/{lane.pk}/act/?deed=finish&version={lane.version}", f"/lanes/{lane.pk}/assign/?version=1",
                 f"/lanes/{lane.pk}/jobs/attach/", f"/lanes/{lane.pk}/jobs/new/", f"/lanes/quorums/{lane.quorum_id}/close/"):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.content.decode())
    print(client.get("/lanes/").content.decode())
