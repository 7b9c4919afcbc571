"""The rows of lanes. They name jobs by id; no row of jobs names a lane (D6)."""

from lanes.models.lane import Dependency, Lane, LaneJob
from lanes.models.quorum import Quorum
from lanes.models.receipt import LaneReceipt

__all__ = ["Dependency", "Lane", "LaneJob", "LaneReceipt", "Quorum"]
