"""Every refusal of lanes, by class and stable code; what the classes they stand on mean is `jobs.errors`' business."""

from __future__ import annotations

from jobs.errors import Conflict, Invalid, NotFound, Refused, RevisionMismatch


class LaneNotFound(NotFound):
    """There is no such lane, or it is not yours."""

    code = "lane_not_found"


class QuorumNotFound(NotFound):
    """There is no such quorum, or it is not yours."""

    code = "quorum_not_found"


class RoleRequired(Refused):
    """Your role in this workspace does not allow this; `role` is the one that would."""

    code = "role_required"

    def __init__(self, role: str, *, or_assignee: bool = False) -> None:
        who = f"a {role}, or the lane's own assignee," if or_assignee else f"a {role}"
        super().__init__(f"Only {who} may do this here.", role=role)


class LaneVersionChanged(RevisionMismatch):
    """The lane has changed since it was read."""

    code = "lane_version_changed"


class LaneMoveRefused(Conflict):
    """The lane's state does not allow this."""

    code = "lane_move_refused"


class LaneEnded(Conflict):
    """The lane has ended: it does not change any more."""

    code = "lane_ended"


class NotMergeable(Conflict):
    """Merged takes a lane that is done and approved."""

    code = "not_mergeable"


class CommitRequired(Invalid):
    """Merged takes the commit that it became."""

    code = "commit_required"


class LaneExists(Conflict):
    """This quorum has a lane of this name."""

    code = "lane_exists"


class BranchTaken(Conflict):
    """A lane of this quorum that has not ended has this branch."""

    code = "branch_taken"


class QuorumExists(Conflict):
    """This workspace has a quorum of this name."""

    code = "quorum_exists"


class QuorumClosed(Conflict):
    """This quorum is closed: it takes no new lanes."""

    code = "quorum_closed"


class InvalidAssignee(Invalid):
    """Nobody of this name may be given a lane here: an assignee has the role of assignee or conductor."""

    code = "invalid_assignee"


class InvalidDependency(Invalid):
    """There is no such lane in this quorum."""

    code = "invalid_dependency"


class DependencyCycle(Invalid):
    """Lanes would wait for each other."""

    code = "dependency_cycle"


class JobInOtherLane(Conflict):
    """This job belongs to another lane."""

    code = "job_in_other_lane"
