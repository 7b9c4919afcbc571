"""`document-summary@1`: one line on a Markdown document's type, purpose and subject (B44). Extractive, no model.

The input names the document and the hash of the text that is asked about, never the text: it is read at execution, and
the publication hook looks again before it commits. What completed jobs said is read by `jobsite.documents.catalogue`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from jobs import job
from jobs.errors import JobError
from jobs.services import intake
from jobs.services.intake import Door, Enqueued, Options, Request
from jobsite.documents import sources
from jobsite.documents.describing import describe
from jobsite.research.switches import said, switches

TYPE: Final = "document-summary"
# The version of the wording: raise it when the same text is told in another way.
GENERATOR: Final = 1
MAX_CODEPOINTS: Final = 4_000
DOOR: Final = Door("documents", "scheduler", "site:documents")
_TARGET_LENGTH: Final = 512
_STRICT: Final = ConfigDict(extra="forbid", frozen=True)


def _document(path: str) -> str:
    if not sources.is_relative(path):
        raise ValueError("must be the path of a Markdown file inside its folder")
    return path


def _folder(path: str) -> str:
    if not path.startswith("/") or not path.isprintable() or ".." in path.split("/"):
        raise ValueError("must be an absolute path")
    return path


class Asked(BaseModel):
    """What is asked. Without `output` it is a legacy request, which still gets its `summary` (B44)."""

    model_config = _STRICT
    document: Annotated[str, Field(min_length=4, max_length=400), AfterValidator(_document)]
    root: Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_folder)] | None = None
    revision: Annotated[int, Field(ge=0, le=2**53 - 1)]
    source_hash: Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
    generator: Annotated[int, Field(ge=1, le=10_000)]
    output: Literal["description"] | None = None

    @property
    def folder(self) -> str:
        """The folder that the document is in: the site's own where none is named."""
        return self.root or _site_folder()


_ONE_LINE: Final = r"\A[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+\z"
Line = Annotated[str, Field(min_length=1, max_length=MAX_CODEPOINTS, pattern=_ONE_LINE)]


class Description(BaseModel):
    """One physical line for the catalogue."""

    model_config = _STRICT
    output: Literal["description"] = "description"
    description: Line


class Summary(BaseModel):
    """What a legacy request gets; the catalogue ignores it (B44)."""

    model_config = _STRICT
    summary: Line


def _site_folder() -> str:
    from django.conf import settings

    return str(settings.PROJECT_DIR)


def _look(run: Any, asked: Asked) -> sources.Source:
    """The document now. Raises JobError job_changed when it is another text than the one asked about.

    Retryable: an editor may be in the middle of saving, and a request for the newer text supersedes this job. Where
    nobody asks again, the attempts run out, and the dead letter tells that a change went unnoticed.
    """
    source = sources.read(asked.folder, asked.document, run.check)
    if source.hash != asked.source_hash:
        raise JobError("job_changed", f"{asked.document} has changed since it was asked about.")
    return source


def publish(run: Any, artifact: str, commit: Callable[[], None]) -> None:
    """Complete only while the document is still there and still the same (B33)."""
    _look(run, run.input)
    commit()


@job(
    TYPE, input=Asked, artifact=Description | Summary, isolated=False, label="Document description",
    description="Tells a Markdown document's type, purpose and subject in one line.",
    origins={"scheduler", "planner"}, credential=said().get("SUMMARY_CREDENTIAL", "none"),
    enabled=switches().private, runs=switches().private,
    stages={"read": "Reading the document", "describe": "Describing it"}, max_ai_credits=64, max_input_bytes=8 * 1024,
    max_artifact_bytes=16 * 1024, timeout_s=300, retention=None, publish=publish,
    subject=lambda asked: asked["document"])
def document_summary(run: Any, asked: Asked) -> Description | Summary:
    """Read the document, and tell it in one line; `Empty document` for a blank one."""
    run.progress("read")
    source = _look(run, asked)
    run.check()
    run.progress("describe")
    line = describe(source.text, f"{asked.folder}/{asked.document}")
    return Description(description=line) if asked.output else Summary(summary=line)


# --- asking --------------------------------------------------------------------------------------------------------


def request(root: str, document: str, source_hash: str, revision: int = 0, **options: Any) -> Request:
    """The request for one document's description: asked twice for the same text it is one job (B15, B44)."""
    asked = {"document": document, "root": root, "revision": revision, "source_hash": source_hash,
             "generator": GENERATOR, "output": "description"}
    identity = hashlib.sha256(f"{root}\0{document}".encode()).hexdigest()[:24]
    key = f"description-v1:{identity}:{revision}.{GENERATOR}:{source_hash}"
    return Request(TYPE, asked, Options(idempotency_key=key, target=target(root, document), **options))


def target(root: str, document: str) -> str:
    """What a description is about: the document's path, so that a newer request supersedes an older one (B16)."""
    path = f"{root.rstrip('/')}/{document}"
    if len(path) <= _TARGET_LENGTH:
        return path
    mark = "#" + hashlib.sha256(path.encode()).hexdigest()[:24]
    return path[: _TARGET_LENGTH - len(mark)] + mark


def requests(root: Path, revision: int = 0, **options: Any) -> Iterator[Request]:
    """A request for each Markdown file below a folder; one that cannot be read is left out."""
    top = str(root.resolve())
    for document in sources.documents(root):
        try:
            found = sources.read(top, document)
        except JobError:
            # Gone, or never ours to read: there is nothing to describe.
            continue
        if len(document) <= 400:
            yield request(top, document, found.hash, revision, **options)


def enqueue_folder(folder: str | Path, *, door: Door = DOOR, limit: int = 1_000, revision: int = 0,
                   **options: Any) -> list[Enqueued]:
    """Ask for a description of each Markdown file below a folder, all or none; unchanged ones are repeats.

    `limit` bounds how many; options are those of enqueue (tenant, priority, delay_s, ...).
    """
    asked: Sequence[Request] = list(itertools.islice(requests(Path(folder), revision, **options), limit))
    return intake.enqueue_many(asked, door=door)
