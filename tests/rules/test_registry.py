"""Definitions, their declaration and validation, and the registry (B1, B5 to B7, B11, E2, E7, E8); no database."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict

import jobs
from jobs import RetryPolicy, job
from jobs.errors import Invalid, JobError
from jobs.registry import SITE, Definition, Registry, Span, collect, define, external, load, nearest
from jobs.schemas import Opaque, codec

if TYPE_CHECKING:
    from somewhere import OnlyForTypeCheckers


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int
    lines: list[str] = []


class Open(BaseModel):
    number: int


def refused(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        call(*args, **kwargs)
    return caught.value


def places(error: Invalid) -> list[str]:
    return [fault["field"] for fault in error.faults]


def idle(run: object) -> None:
    """Rest a while.

    And more.
    """


def made(**options: Any) -> Definition:
    return define("x", idle, options)


@job("invoice-pdf", timeout_s=120)
def invoice_pdf(run: OnlyForTypeCheckers, invoice_id: int, copies: int = 1) -> str:
    return f"{invoice_id} x {copies}"


@job("store-order", version=3, input=Order, artifact=Order, isolated=False)
async def store_order(run: Any, order: Order) -> Order:
    """Keep an order."""
    return order


def test_five_lines_make_a_whole_definition() -> None:
    """B5: every field but type and handler has a default, and the signature gives both codecs."""
    found = invoice_pdf.definition
    assert (found.name, found.label, found.description) == ("invoice-pdf@1", "Invoice pdf", "Invoice pdf")
    assert found.origins == {"user", "planner", "scheduler"}
    assert (found.credential, found.worker_group, found.queue, found.priority) == ("none", "default", "collect", 0)
    assert (found.max_input_bytes, found.max_artifact_bytes, found.max_ai_credits) == (65_536, 262_144, 1)
    assert (found.retry, found.retention, found.max_lapses, found.max_claims) == (SITE, SITE, 10, None)
    assert found.input.normal({"invoice_id": 7}) == '{"copies":1,"invoice_id":7}'
    assert found.artifact.encode_python("a.pdf") == '"a.pdf"'
    assert invoice_pdf(None, 7, copies=2) == "7 x 2"


def test_a_definition_takes_its_words_from_the_function() -> None:
    """B5, B6: label from the type, description from the docstring's first line, else from the label."""
    assert made().description == "Rest a while."
    assert made(label="Rest", description="Sleeps.").description == "Sleeps."
    assert define("a.b_c-d", idle, {}).label == "A b c d"


def test_the_executor_follows_from_the_function_and_the_trust_in_it() -> None:
    """DESIGN 6: isolated unless declared trusted; external without a handler."""
    assert invoice_pdf.definition.executor == "isolated"
    assert store_order.definition.executor == "async"
    assert made(isolated=False).executor == "thread"
    assert external("x", input=Opaque(), artifact=None).executor == "external"


def test_an_explicit_model_is_handed_over_whole_and_fields_by_name() -> None:
    """B8: `handler(run, order)` and `handler(run, **fields)` by one call of the executor."""
    for function, text in ((store_order, '{"lines":[],"number":1}'), (invoice_pdf, '{"copies":1,"invoice_id":7}')):
        args, fields = function.definition.input.bind(text)
        answer = function("run", *args, **fields)
        assert answer == "7 x 1" or asyncio.run(answer) == Order(number=1)


def test_the_byte_limits_of_a_definition_are_those_of_its_codecs() -> None:
    """B5, B9: and a codec's own lower limit stays."""
    small = external("x", input=Opaque(50), artifact=Opaque(), max_artifact_bytes=20)
    assert (small.max_input_bytes, small.input.max_bytes, small.artifact.max_bytes) == (50, 50, 20)
    assert refused(small.artifact.normal, {"a": "x" * 20}).reason_code == "too_large"
    assert refused(small.artifact.normal, 5).reason_code == "invalid_artifact"
    big = external("x", input=Opaque(), artifact=None, max_input_bytes=4_000_000)
    assert big.input.normal({"a": "x" * 3_000_000})


@pytest.mark.parametrize(("field", "value"), [
    ("version", 0), ("version", True), ("version", 1.0), ("version", 2**53), ("label", ""), ("label", "  "),
    ("label", "a\nb"), ("label", "x" * 161), ("description", " \n"), ("description", 5), ("origins", set()),
    ("origins", {"user", "root"}), ("origins", "user"), ("origins", None), ("origins", [[]]), ("credential", "planner"),
    ("credential", None), ("credential", ["owner"]), ("share_credential", True), ("share_credential", 1),
    ("atomic", "yes"),
    ("worker_group", "Codex"), ("worker_group", ""), ("worker_group", "unrouted"),
    ("queue", "a b"), ("queue", None), ("priority", 101), ("priority", "1"), ("max_input_bytes", 0),
    ("max_input_bytes", -5), ("max_artifact_bytes", 1.5), ("max_artifact_bytes", 2**53), ("max_ai_credits", 0),
    ("max_lapses", 0), ("max_claims", 0), ("retry", 5), ("retry", {"max_attempts": 2}), ("dead_letter", 1),
    ("lapse_counts", 1), ("isolated", "yes"), ("strict_lease", None), ("enabled", 0), ("runs", 1), ("logs", 1),
    ("lease_s", 0), ("lease_s", -1), ("lease_s", True), ("timeout_s", float("inf")), ("timeout_s", float("nan")),
    ("timeout_s", "60"), ("max_duration_s", 2_000_001), ("lease_s", Span(len, 0)), ("lease_s", len),
    ("timeout_s", Span("x", 5)), ("duration_scope", "job"), ("retention", 0), ("retention", "30d"),  # type: ignore[arg-type]
    ("publish", "hook"), ("subject", "title"), ("on_ended", "told"),
    ("stages", {"Read": "x"}), ("stages", {"read": " "}),
    ("stages", {"read": "x" * 161}), ("stages", ["read"]), ("stages", {f"s{n}": "x" for n in range(33)}),
    ("stages", {1: "x"}), ("artifact", 5), ("artifact", Open), ("input", Open), ("input", int), ("input", list[int]),
])
def test_a_definition_with_a_field_out_of_bounds_is_refused_by_its_name(field: str, value: Any) -> None:
    """B6, E2: safe positive integers, names, choices, 1 to 32 stages; never silently corrected."""
    error = refused(define, "x", lambda run, order: None, {"input": Order, "artifact": None, field: value})
    assert error.reason_code == "invalid_definition"
    assert error.field is not None
    assert error.field.split("/")[0] == field


@pytest.mark.parametrize(("type_", "fine"), [
    ("a", True), ("invoice-pdf", True), ("factory.task.run", True), ("a_b-c.d2", True), ("x" * 64, True),
    ("x" * 65, False), ("", False), ("Invoice", False), ("2fast", False), ("a--b", False), ("a-", False),
    (".a", False), ("a b", False), ("a\n", False), ("é", False), (None, False), (5, False),
])
def test_types_are_lowercase_words_of_at_most_64_characters(type_: Any, fine: bool) -> None:
    """B6, E2."""
    if fine:
        assert define(type_, idle, {}).type == type_
    else:
        assert refused(define, type_, idle, {}).field == "type"


def test_every_fault_is_told_at_once_and_unknown_keywords_name_the_nearest() -> None:
    """B6: one refusal for the keywords, the signature and the fields."""
    def wrong(run, bare, open_: Open):  # type: ignore[no-untyped-def]
        ...

    wrong.__annotations__["open_"] = Open
    error = refused(job("Wrong", timeout=5, versoin=2, zzz=1, queue="", max_lapses=0), wrong)
    assert places(error) == ["timeout", "versoin", "zzz", "input.bare", "input.open_", "artifact.return", "type",
                             "queue", "max_lapses"]
    assert "did you mean 'version'?" in error.message
    assert "did you mean 'timeout_s'?" in error.message
    assert "Open takes unknown fields" in error.message


def test_the_decorator_without_parentheses_is_refused() -> None:
    """B11: a forgotten type must not leave a job unregistered in silence."""
    assert "@job(" in refused(job, idle).message


def test_handlers_that_cannot_be_run_are_refused() -> None:
    """B6, DESIGN 6: generators and a wrong shape."""
    def many(run: object) -> Iterator[int]:
        yield 1

    async def stream(run: object) -> AsyncIterator[int]:
        yield 1

    for function in (many, stream):
        assert refused(define, "x", function, {"artifact": None}).field == "handler"
    assert refused(define, "x", 5, {"input": Order, "artifact": None}).field == "handler"
    assert refused(define, "x", idle, {"input": Order}).field == "input"
    assert refused(define, "x", lambda run, *, order: 1, {"input": Order, "artifact": None}).field == "input"
    assert places(refused(external, "x")) == ["input", "artifact"]


def test_a_credential_is_shared_with_runners_alone() -> None:
    """E8, E10: a handler of ours has it anyway; without an owner there is none."""
    assert made(credential="owner").credential == "owner"
    error = refused(made, credential="owner", share_credential=True)
    assert (error.reason_code, places(error)) == ("invalid_definition", ["share_credential"])
    shared = {"input": Opaque(), "artifact": Opaque(), "share_credential": True}
    assert external("x", credential="owner", **shared).share_credential
    assert places(refused(external, "x", **shared)) == ["share_credential"]


def test_an_atomic_settlement_needs_a_handler_in_one_thread() -> None:
    """DESIGN 6: a plain def, trusted or isolated; not a coroutine function, not a runner's job."""

    async def on_the_loop(run: Any) -> None: ...

    assert made(atomic=True).atomic
    assert made(atomic=True, isolated=False).atomic
    assert "plain def" in refused(define, "x", on_the_loop, {"atomic": True, "isolated": False}).message
    assert refused(external, "x", input=Opaque(), artifact=None, atomic=True).field == "atomic"


def test_a_registry_knows_whose_ends_are_told() -> None:
    """B34: by type, since an older version of it may end as well."""
    assert Registry([made()]).told == frozenset()
    assert Registry([made(), define("y", idle, {"on_ended": print})]).told == {"y"}


def test_a_definition_cannot_be_changed_only_replaced_and_validated_again() -> None:
    """B1: code-owned and frozen, and not through what was handed in either."""
    stages = {"read": "Reading"}
    found = made(stages=stages, retry=RetryPolicy(max_attempts=2), retention=None, dead_letter=False)
    stages["write"] = "Writing"
    assert dict(found.stages) == {"read": "Reading"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.version = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.stages["write"] = "x"  # type: ignore[index]
    assert dataclasses.replace(found, version=2, isolated=False).name == "x@2"
    assert refused(dataclasses.replace, found, version=0).field == "version"


def test_spans_are_numbers_or_functions_of_the_input_with_a_cap() -> None:
    """E8, A43: computed once, at enqueue; the site's defaults where the definition says nothing."""
    assert made().spans({}) == (30.0, 3_600.0, None)
    assert made().spans({}, lease_s=5, timeout_s=9) == (5, 9, None)
    lease = Span(lambda given: max(900, given.get("timeout", 0) + 300), cap_s=3_600)
    longer = made(lease_s=lease, timeout_s=60, max_duration_s=7_200)
    assert longer.spans({}) == (900, 60, 7_200)
    assert longer.spans({"timeout": 1_000}).lease_s == 1_300
    assert longer.spans({"timeout": 10**9}).lease_s == 3_600
    assert (longer.reads_input, made().reads_input) == (True, False)
    for answer in (0, -1, float("nan"), float("inf"), None, "5", True):
        error = refused(made(timeout_s=Span(lambda _, a=answer: a, 60)).spans, {})
        assert (error.reason_code, error.field) == ("invalid_span", "timeout_s")


def test_a_span_may_depend_on_the_agent_as_well() -> None:
    """A41 to A43: leases by agent and kind; None is nobody."""
    d = made(lease_s=Span(lambda given, agent: 900 if agent == "codex" else 300, cap_s=600, by_agent=True))
    assert [d.spans({}, agent=agent).lease_s for agent in ("codex", "factory", None)] == [600, 300, 300]
    assert d.spans({}).lease_s == 300


@pytest.mark.parametrize(("given", "lease_s", "timeout_s", "longest_s"), [
    ({}, 900, 899, 960), ({"timeout": 100}, 900, 899, 960), ({"timeout": 700}, 1_000, 999, 1_060),
    ({"timeout": 10_000}, 3_600, 3_599, 3_660)])
def test_the_numbers_of_codex_are_sayable(given: dict[str, Any], lease_s: int, timeout_s: int, longest_s: int) -> None:
    """A43, A44, A46, E8: max(900 s, payload timeout + 300 s) up to 3,600 s, and what follows from that lease."""
    lease = Span(lambda said: max(900, said.get("timeout", 0) + 300), cap_s=3_600)
    assert made(lease_s=lease, timeout_s="lease", max_duration_s="lease").spans(given) == (
        lease_s, timeout_s, longest_s)


@pytest.mark.parametrize(("given", "lease_s"), [
    ({"kind": "factory.task.run"}, 300), ({"kind": "factory.objective.control"}, 900),
    ({"kind": "factory.task.monitor"}, 300), ({"kind": "factory.task.monitor", "executionPath": "computer"}, 900)])
def test_leases_by_kind_and_path_are_functions_of_the_input(given: dict[str, Any], lease_s: int) -> None:
    """A40, A41, A42, E8: the default of 300 s, and max(default, 900 s) for control and for monitors at a computer."""
    def of(said: dict[str, Any]) -> float:
        slow = said["kind"] == "factory.objective.control" or said.get("executionPath") == "computer"
        return max(300, 900) if slow else 300

    assert made(lease_s=Span(of, cap_s=3_600)).spans(given).lease_s == lease_s


def test_a_short_lease_keeps_the_floors_of_what_follows_from_it() -> None:
    """A44, A46: 5 s and 120 s; the site's lease where the definition has none of its own."""
    own = made(timeout_s="lease", max_duration_s="lease")
    assert own.spans({}, lease_s=2, timeout_s=9) == (2, 5, 120)
    assert own.spans({}, lease_s=300) == (300, 299, 360)
    assert own.reads_input is False
    assert refused(made, lease_s="lease").field == "lease_s"
    assert refused(made, timeout_s="leased").field == "timeout_s"


def test_a_subject_is_at_most_200_code_points_and_printable() -> None:
    """B40: extracted per type, for lists."""
    def of(said: Any) -> Any:
        return made(subject=lambda _: said).subject_of({})

    assert made().subject_of({}) is None
    assert (of(None), of(""), of("Report")) == (None, None, "Report")
    assert of("\U0001f600" * 300) == "\U0001f600" * 200
    assert of("a\0b\ud800\n") == "a?b??"
    assert refused(of, 5).reason_code == "invalid_subject"


class Doors:
    """Stands in for `jobs.enqueue` and `jobs.aenqueue`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def enqueue(self, *args: Any, **options: Any) -> str:
        self.calls.append((*args, options))
        return "enqueued"

    async def aenqueue(self, *args: Any, **options: Any) -> str:
        return self.enqueue(*args, **options)


def test_a_job_function_enqueues_itself_with_fields_and_bound_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 6: fields are keywords, options are bound, Python values become plain JSON."""
    doors = Doors()
    # Into the namespace itself: reading the old value would import the models.
    monkeypatch.setitem(vars(jobs), "enqueue", doors.enqueue)
    monkeypatch.setitem(vars(jobs), "aenqueue", doors.aenqueue)
    assert invoice_pdf.enqueue(invoice_id=7) == "enqueued"
    soon = invoice_pdf.using(priority=5).using(queue="chat")
    assert asyncio.run(soon.aenqueue({"invoice_id": 8})) == "enqueued"
    store_order.enqueue(Order(number=1))
    invoice_pdf.enqueue()
    assert doors.calls == [
        ("invoice-pdf", {"invoice_id": 7}, {}),
        ("invoice-pdf", {"invoice_id": 8}, {"priority": 5, "queue": "chat"}),
        ("store-order", {"number": 1, "lines": []}, {}),
        ("invoice-pdf", {}, {}),
    ]
    assert refused(invoice_pdf.enqueue, {"invoice_id": 1}, copies=2).field == "input"
    assert (invoice_pdf.__name__, repr(soon)) == ("invoice_pdf", "<job invoice-pdf@1>")


def test_the_highest_version_serves_new_work_and_rows_keep_theirs() -> None:
    """B7: in whatever order they were registered."""
    old, new = made(version=9), made(version=10)
    for order in ([old, new], [new, old]):
        registry = Registry([*order, invoice_pdf.definition])
        assert registry.current("x") is new
        assert registry.exact("x", 9) is old
        assert registry.find("x", 9) is old
        assert registry.find("x", 8) is None
        assert registry.names() == ["invoice-pdf@1", "x@9", "x@10"]
        assert len(registry) == len(list(registry)) == 3


def test_unknown_types_and_versions_have_their_codes_and_name_the_nearest() -> None:
    """B12, E7: never a KeyError, whatever the caller sends as a type."""
    registry = Registry([made(), invoice_pdf.definition])
    error = refused(registry.current, "invoice-pfd")
    assert (error.reason_code, error.field) == ("unknown_job_type", "type")
    assert "did you mean 'invoice-pdf'?" in error.message
    for type_ in ("os.system", "__class__", "", "x" * 9_000, "\0\n", None, 5, [], {}):
        error = refused(registry.current, type_)
        assert error.reason_code == "unknown_job_type"
        assert len(error.message) < 200
        assert error.message.isprintable()
    assert refused(registry.exact, "nope", 1).reason_code == "unknown_job_type"
    for version in (2, 0, True, "1", None, 1.0, []):
        error = refused(registry.exact, "x", version)
        assert (error.reason_code, error.field) == ("unregistered_version", "version")


def test_one_definition_per_type_and_version() -> None:
    """B6: the same object again is no second one."""
    first = made()
    registry = Registry([first, first])
    error = refused(registry.add, made())
    assert error.reason_code == "duplicate_definition"
    assert registry.current("x") is first


def test_a_site_is_told_of_lost_queues_and_groups_served_twice() -> None:
    """E7: worker groups are served in process or by runners, and queues must exist."""
    registry = Registry([made(queue="chatt"), external("y", input=Opaque(), artifact=None),
                         external("z", input=Opaque(), artifact=None, worker_group="codex")])
    assert (registry.groups(), registry.groups(external=True)) == (["default"], ["codex", "default"])
    lost, both = registry.check(["chat", "collect"])
    assert "x@1" in lost
    assert "did you mean 'chat'?" in lost
    assert "'default'" in both
    assert Registry([made()]).check({"collect"}) == []


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    root, leaf, other = (types.ModuleType(name) for name in ("shop", "shop.bills", "shop.unlisted"))
    leaf.pdf, leaf.again, leaf.noise = invoice_pdf, invoice_pdf, 5  # type: ignore[attr-defined]
    other.order = store_order  # type: ignore[attr-defined]
    for module in (root, leaf, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    root.DEFINITIONS = ["bills", made()]  # type: ignore[attr-defined]
    return root


def test_only_what_is_named_is_registered(package: types.ModuleType) -> None:
    """B1, B11: no discovery; a package lists its modules and definitions, a module names its own."""
    assert load(["shop", "shop.bills"]).names() == ["invoice-pdf@1", "x@1"]
    assert load(["shop.unlisted"]).names() == ["store-order@3"]
    assert load([]).names() == []
    with pytest.raises(ModuleNotFoundError):
        load(["shop.nothing"])
    package.DEFINITIONS = [5]  # type: ignore[attr-defined]
    assert refused(collect, package).reason_code == "no_definition"
    package.DEFINITIONS = []  # type: ignore[attr-defined]
    assert refused(load, ["shop"]).field == "shop"


def test_the_nearest_word_ends_a_sentence() -> None:
    """E7."""
    assert nearest("colect", ["collect", "chat"]) == "; did you mean 'collect'?"
    assert nearest(["?"], ["collect"]) == "."


def test_a_job_error_carries_a_safe_reason() -> None:
    """B25, B31, C14: a snake_case token, never free text."""
    error = JobError("rate_limited", retryable=False)
    assert (error.reason_code, error.message, error.retryable) == ("rate_limited", "rate limited", False)
    assert JobError("x", "said").message == "said"
    for code in ("", "Rate", "a b", "x" * 65, "a-b", "1a", "a\n"):
        with pytest.raises(ValueError, match="snake_case"):
            JobError(code)


def test_the_full_form_is_the_same_object() -> None:
    """B5: what the decorator makes can be written out."""
    written = Definition("store-order", lambda run, order: None, codec(Order), codec(None), version=2, label="Orders")
    assert Registry([store_order.definition, written]).current("store-order").version == 3
    assert refused(Definition, "x", idle, Order, None).reason_code == "invalid_definition"


def test_the_rules_import_no_django() -> None:
    """DESIGN 3.3: declaring a job touches no settings and no models."""
    code = "import sys, jobs.registry; sys.exit(any(name.split('.')[0] == 'django' for name in sys.modules))"
    root = Path(jobs.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
