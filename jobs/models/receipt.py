"""Receipts and artifacts: what happened and what came out, written once; triggers refuse a change (E14.17, E14.20)."""

from __future__ import annotations

import pgtrigger

# Lets Meta.triggers be said where pgtrigger is no installed app.
import pgtrigger.apps
from django.db import models

from jobs.models.job import Job

# Only store.erase sets this, by SET LOCAL; afterwards it reads '' and not null (E13).
ERASING = "COALESCE(current_setting('jobs.erasing', true), '') = 'on'"


def refuse_unless_erasing(name: str, allowed: str) -> pgtrigger.Trigger:
    """A trigger that refuses UPDATE and DELETE; while erasing but for `allowed`, SQL over TG_OP, OLD and NEW."""
    return pgtrigger.Trigger(
        name=name,
        when=pgtrigger.Before,
        operation=pgtrigger.Update | pgtrigger.Delete,
        func=f"""
            IF {ERASING} AND ({allowed}) THEN
                RETURN COALESCE(NEW, OLD);
            END IF;
            RAISE EXCEPTION '% of % refused: written once', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
        """,
    )


class Receipt(models.Model):
    """One appended, numbered, hash-chained fact about a job (E12)."""

    pk = models.CompositePrimaryKey("job_id", "number")
    job = models.ForeignKey(Job, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False,
                            related_name="receipts", db_comment="No foreign key: verify checks it")
    number = models.IntegerField(db_comment="1..n without gaps: the only cursor")
    kind = models.CharField(max_length=32)
    at = models.DateTimeField()
    body = models.TextField(db_comment="Canonical JSON of facts and hashes, never payloads; names its attempt")
    hash = models.BinaryField(db_comment="sha256 over the previous hash and this content")

    class Meta:
        db_table = "jobs_receipt"
        constraints = [models.CheckConstraint(name="receipt_number_positive", condition=models.Q(number__gte=1))]
        triggers = [refuse_unless_erasing("receipt_append_only", "TG_OP = 'DELETE'")]


class Artifact(models.Model):
    """The validated result of a completed job; one per job, immutable."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="artifact")
    value = models.TextField(db_comment="Canonical JSON; emptied by redaction")
    hash = models.BinaryField(db_comment="sha256 of the value as it was written")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "jobs_artifact"
        triggers = [refuse_unless_erasing(
            "artifact_immutable",
            "TG_OP = 'DELETE' OR (NEW.job_id = OLD.job_id AND NEW.hash = OLD.hash"
            " AND NEW.created_at = OLD.created_at)")]

    def __str__(self) -> str:
        return f"artifact of {self.job_id}"
