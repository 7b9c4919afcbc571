"""Lanes: named streams of work under one quorum, what they wait for, and which jobs belong to them (D7).

Only `lanes.store` writes where a lane stands. What the database can keep, it keeps: known states, `merged` only with
all that it takes, a lane that is over or elsewhere never changed, one more version for each change (E14.15, E14.16).
"""

from __future__ import annotations

import pgtrigger
import pgtrigger.apps
from django.db import models
from django.db.models import F, Q

from jobs.clock import Now
from jobs.ids import uuid7
from jobs.models import Workspace
from lanes.axes import Execution, Merge, Review, Standing
from lanes.models.quorum import Quorum

OVER = (Q(execution__in=[Execution.FAILED.value, Execution.CANCELLED.value]) | Q(merge=Merge.MERGED.value)
        | Q(execution=Execution.DONE.value, merge=Merge.ABANDONED.value))
_KEEPS = """
    IF TG_OP = 'INSERT' THEN
        IF NEW.workspace_id IS DISTINCT FROM (SELECT workspace_id FROM lanes_quorum WHERE id = NEW.quorum_id) THEN
            RAISE EXCEPTION 'a lane is in the workspace of its quorum' USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.ended_at IS NOT NULL THEN
        RAISE EXCEPTION 'a lane that has ended does not change' USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.id, OLD.quorum_id, OLD.workspace_id, OLD.name, OLD.branch, OLD.task, OLD."by", OLD.created_at)
            IS DISTINCT FROM
            (NEW.id, NEW.quorum_id, NEW.workspace_id, NEW.name, NEW.branch, NEW.task, NEW."by", NEW.created_at) THEN
        RAISE EXCEPTION 'what a lane is does not change' USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.version <> OLD.version + 1 THEN
        RAISE EXCEPTION 'each change of a lane is one version' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
"""
_SAME_QUORUM = """
    IF (SELECT quorum_id FROM lanes_lane WHERE id = NEW.lane_id)
            IS DISTINCT FROM (SELECT quorum_id FROM lanes_lane WHERE id = NEW.on_id) THEN
        RAISE EXCEPTION 'lanes depend on lanes of their own quorum' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
"""


class Lane(models.Model):
    """One stream of work: one branch, one assignee, one task thread, and three axes."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    quorum = models.ForeignKey(Quorum, on_delete=models.PROTECT, db_index=False, related_name="lanes")
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, db_index=False, related_name="lanes",
                                  db_comment="Its quorum's; never changed (D8)")
    name = models.CharField(max_length=100)
    title = models.CharField(max_length=200, blank=True, default="")
    branch = models.CharField(max_length=200)
    task = models.CharField(max_length=512, db_comment="The one task thread (D7)")
    assignee = models.CharField(max_length=200, db_comment="As it was called: user:ann, key:ab12cd34")
    assignee_user = models.CharField(max_length=64, null=True, db_comment="Who it is: primary key of a user, as text")
    assignee_key = models.BigIntegerField(null=True, db_comment="Or of a key; no foreign key, keys go when they like")
    execution = models.CharField(max_length=16, default=Execution.OPEN.value)
    review = models.CharField(max_length=20, default=Review.NONE.value)
    merge = models.CharField(max_length=16, default=Merge.NONE.value)
    commit = models.CharField(max_length=64, null=True, db_comment="Of the latest merge outcome that named one")
    reconcile_type = models.CharField(max_length=64, null=True, db_comment="The job that puts it right (A49)")
    reconcile_input = models.TextField(null=True, db_comment="Canonical JSON")
    version = models.IntegerField(default=1, db_comment="Changes of the lane: the ETag")
    by = models.CharField(max_length=200, db_comment="Who made it")
    created_at = models.DateTimeField(db_default=Now())
    moved_at = models.DateTimeField(db_default=Now(), db_comment="Of the latest change")
    ended_at = models.DateTimeField(null=True, db_comment="Since when nothing of it changes")

    class Meta:
        db_table = "lanes_lane"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["quorum", "name"], name="lane_name_once"),
            models.UniqueConstraint(fields=["quorum", "branch"], name="lane_branch_once", condition=Q(ended_at=None)),
            models.CheckConstraint(name="lane_execution_known",
                                   condition=Q(execution__in=[e.value for e in Execution])),
            models.CheckConstraint(name="lane_review_known", condition=Q(review__in=[r.value for r in Review])),
            models.CheckConstraint(name="lane_merge_known", condition=Q(merge__in=[m.value for m in Merge])),
            models.CheckConstraint(
                name="lane_merged_is_whole",
                condition=~Q(merge=Merge.MERGED.value)
                | Q(execution=Execution.DONE.value, review=Review.APPROVED.value, commit__isnull=False)),
            models.CheckConstraint(name="lane_ended_iff_over",
                                   condition=(OVER & Q(ended_at__isnull=False)) | (~OVER & Q(ended_at=None))),
            models.CheckConstraint(name="lane_assignee_is_one",
                                   condition=Q(assignee_user=None) ^ Q(assignee_key=None)),
            models.CheckConstraint(name="lane_commit_is_hex",
                                   condition=Q(commit=None) | Q(commit__regex=r"^[0-9a-f]{7,64}$")),
            models.CheckConstraint(name="lane_reconcile_whole",
                                   condition=Q(reconcile_type=None, reconcile_input=None)
                                   | Q(reconcile_type__isnull=False, reconcile_input__isnull=False)),
            models.CheckConstraint(name="lane_version_positive", condition=Q(version__gte=1)),
        ]
        indexes = [
            models.Index("workspace", "id", name="lane_by_workspace"),
            models.Index("workspace", "execution", "id", name="lane_by_execution"),
            models.Index("workspace", "review", "id", name="lane_by_review"),
            models.Index("workspace", "merge", "id", name="lane_by_merge"),
            models.Index("workspace", "assignee", "id", name="lane_by_assignee"),
            models.Index("quorum", "id", name="lane_by_quorum"),
            models.Index("quorum", "execution", "id", name="lane_by_quorum_execution"),
            # What a watchdog looks through, of all workspaces.
            models.Index("id", name="lane_in_progress",
                         condition=Q(execution=Execution.IN_PROGRESS.value, ended_at=None)),
        ]
        triggers = [pgtrigger.Trigger(name="lane_is_kept", when=pgtrigger.Before,
                                      operation=pgtrigger.Insert | pgtrigger.Update, func=_KEEPS)]

    def __str__(self) -> str:
        return self.name

    @property
    def standing(self) -> Standing:
        """Where it stands on its three axes."""
        return Standing(self.execution, self.review, self.merge)

    @property
    def depends_on(self) -> list[Lane]:
        """The lanes that it depends on, as reads of `lanes.selectors` bring them along."""
        return [dependency.on for dependency in self.dependencies.all()]

    @property
    def waiting_on(self) -> list[Lane]:
        """Those of them that are not done: told, and nothing is held up by it (D8)."""
        return [lane for lane in self.depends_on if lane.execution != Execution.DONE]


class Dependency(models.Model):
    """One lane waits for another of its quorum."""

    id = models.BigAutoField(primary_key=True)
    lane = models.ForeignKey(Lane, on_delete=models.CASCADE, db_index=False, related_name="dependencies")
    on = models.ForeignKey(Lane, on_delete=models.CASCADE, related_name="dependents")

    class Meta:
        db_table = "lanes_dependency"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["lane", "on"], name="dependency_once"),
            models.CheckConstraint(name="dependency_on_another", condition=~Q(lane=F("on"))),
        ]
        triggers = [pgtrigger.Trigger(name="dependency_of_one_quorum", when=pgtrigger.Before,
                                      operation=pgtrigger.Insert | pgtrigger.Update, func=_SAME_QUORUM)]

    def __str__(self) -> str:
        return f"{self.lane_id} on {self.on_id}"


class LaneJob(models.Model):
    """A job of a lane, and of no other. It may be gone: retention deletes jobs and does not ask (E13)."""

    job_id = models.UUIDField(primary_key=True, db_comment="No foreign key: jobs do not know lanes (D6)")
    lane = models.ForeignKey(Lane, on_delete=models.CASCADE, db_index=False, related_name="lane_jobs")
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "lanes_job"
        default_permissions = ()
        indexes = [models.Index("lane", "job_id", name="lane_job_by_lane")]
        triggers = [pgtrigger.Trigger(
            name="lane_job_stays", when=pgtrigger.Before, operation=pgtrigger.Update,
            func="RAISE EXCEPTION 'a job stays in its lane' USING ERRCODE = 'restrict_violation';")]

    def __str__(self) -> str:
        return f"job {self.job_id}"
