"""What a person may be allowed to do with jobs, each thing by itself."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0005_attempt_log")]
    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("view_payload", "Can view inputs, artifacts and checkpoints"),
                    ("enqueue_job", "Can enqueue jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("pause_job", "Can pause and resume jobs"),
                    ("requeue_job", "Can requeue dead letters"),
                    ("discard_job", "Can discard dead letters"),
                    ("manage_limits", "Can manage limits"),
                    ("manage_keys", "Can manage keys of the API"),
                    ("manage_owners", "Can manage owners"),
                ],
            },
        ),
    ]
