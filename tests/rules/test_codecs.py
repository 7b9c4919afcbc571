"""Canonical JSON, strict parsing, fingerprints and typed codecs (B8, B9, B21, E6, E9); no database."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import random
import struct
import sys
import time
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    JsonValue,
    PrivateAttr,
    SecretStr,
    computed_field,
    field_serializer,
    model_validator,
)
from typing_extensions import TypedDict

from jobs import codecs, schemas
from jobs.codecs import MAX_INTEGER, canonical, fingerprint, number, parse
from jobs.errors import Invalid
from jobs.schemas import Codec, Opaque, codec
from jobs.signatures import artifact_codec, input_codec

CLOSED = ConfigDict(extra="forbid")


def refused(call: Any, *args: Any, **kwargs: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        call(*args, **kwargs)
    return caught.value


def nested(depth: int) -> Any:
    value: Any = 0
    for n in range(depth):
        value = [value] if n % 2 else {"a": value}
    return value


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not MAX_INTEGER < abs(x) < 1e21)
LEAVES = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | FLOATS | TEXTS
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=5) | st.dictionaries(TEXTS, v, max_size=5), max_leaves=25)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


# --- canonical ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "text"), [
    ("0000000000000000", "0"), ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"), ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"), ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"), ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"), ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"), ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"), ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"), ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"), ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"), ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"), ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"), ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
])
def test_numbers_are_written_as_rfc_8785_writes_them(bits: str, text: str) -> None:
    """B9, and the table in appendix B of RFC 8785."""
    assert number(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


def test_the_examples_of_rfc_8785_come_out_byte_for_byte() -> None:
    """B9: sections 3.2.2 (forms) and 3.2.3 (order by UTF-16 units) of RFC 8785."""
    source = r'''{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}'''
    assert canonical(parse(source)) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    keys = {"\u20ac": 5, "\r": 1, "\ufb33": 7, "1": 2, "\U0001f600": 6, "\u0080": 3, "\u00f6": 4}
    assert list(json.loads(canonical(keys)).values()) == [1, 2, 3, 4, 5, 6, 7]


@given(VALUES)
def test_what_canonical_writes_parse_reads_back_and_writes_the_same(value: Any) -> None:
    """B8, B9: the normal form is a fixed point, whatever the value."""
    text = canonical(value)
    assert parse(text) == value
    assert canonical(parse(text.encode())) == text


@given(st.dictionaries(TEXTS, VALUES, max_size=6), st.randoms())
def test_the_order_of_keys_makes_no_difference(value: dict[str, Any], chance: random.Random) -> None:
    """B9, E6: keys are sorted, so a request is the same however it was put together."""
    shuffled = list(value.items())
    chance.shuffle(shuffled)
    assert canonical(dict(shuffled)) == canonical(value)
    assert fingerprint(dict(shuffled)) == fingerprint(value)


def test_equal_numbers_are_one_and_different_texts_are_two() -> None:
    """E6, case-D05: 1, 1.0 and 1e0 are equal, -0 is 0; letters composed or not, null and absent are two."""
    assert canonical([1.0, 1e0, -0.0]) == canonical([1, 1, 0]) == "[1,1,0]"
    assert canonical("\u00e9") != canonical("e\u0301")
    assert canonical({"a": None}) != canonical({})


CYCLE: list[Any] = []
CYCLE.append([CYCLE, CYCLE])


@pytest.mark.parametrize(("value", "code", "field"), [
    ({"a": [1, float("nan")]}, "invalid_number", "/a/1"),
    ([float("-inf")], "invalid_number", "/0"),
    ({"n": 2**53}, "integer_too_large", "/n"),
    ([-(2**53)], "integer_too_large", "/0"),
    ([2.0**53], "integer_too_large", "/0"),
    ([1e20], "integer_too_large", "/0"),
    ({"a": "x\0"}, "invalid_text", "/a"),
    ({"x\0": 1}, "invalid_text", "/x?"),
    (["\ud800"], "invalid_text", "/0"),
    ({"\udfff": 1}, "invalid_text", "/?"),
    (nested(65), "too_deep", None),
    (CYCLE, "too_deep", None),
    ({"a/b": {"~": dt.date(2024, 1, 1)}}, "not_json", "/a~1b/~0"),
    ([(1, 2)], "not_json", "/0"),
    ({1}, "not_json", ""),
    ([Colour.RED], "not_json", "/0"),
    ([Level.LOW], "not_json", "/0"),
    ({"a": {1: 2}}, "not_json", "/a"),
    ({"a": 1, 2: 3}, "not_json", ""),
    ({Colour.RED: 1}, "not_json", ""),
    (b"x", "not_json", ""),
    (Decimal(1), "not_json", ""),
    (object(), "not_json", ""),
])
def test_what_is_no_plain_json_is_refused_with_a_code_and_a_place(value: Any, code: str, field: str | None) -> None:
    """B8, case-D06, case-D09: plain JSON only, of exact types, finite, bounded and acyclic."""
    error = refused(canonical, value)
    assert error.reason_code == code
    assert error.field is not None
    assert field is None or error.field == field
    assert error.faults == [{"field": error.field, "message": error.message}]


def test_bounds_are_exact_and_count_bytes() -> None:
    """B9: UTF-8 bytes are counted and 64 levels fit; a literal backslash before u0000 is no NUL."""
    assert canonical("é", max_bytes=4) == '"é"'
    assert refused(canonical, "é", max_bytes=3).reason_code == "too_large"
    assert refused(canonical, ["x" * 99], max_bytes=50).facts == {"max_bytes": 50}
    assert parse(canonical(nested(64))) == nested(64)
    assert canonical("\\u0000") == r'"\\u0000"'


def test_shared_references_cannot_multiply_a_value_beyond_its_limit() -> None:
    """B8, B9: 2^60 leaves by sharing are refused at once, and so is one long text shared a million times."""
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    assert refused(canonical, value).reason_code == "too_large"
    assert refused(canonical, ["x" * 100_000] * 1_000_000).reason_code == "too_large"
    value = {}
    for _ in range(60):
        value = {"a": value, "b": value}
    assert refused(canonical, value).reason_code == "too_large"


# --- parse -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "code"), [
    (b"", "malformed_json"), (b"  ", "malformed_json"), (b"{", "malformed_json"), (b"[1,]", "malformed_json"),
    (b"{'a':1}", "malformed_json"), (b"01", "malformed_json"), (b"1.", "malformed_json"), (b"+1", "malformed_json"),
    (b"1 2", "malformed_json"), (b"{} x", "malformed_json"), (b'"a\nb"', "malformed_json"), (b"]", "malformed_json"),
    (b'"\\x"', "malformed_json"), (b'"\\u00e"', "malformed_json"), (b"nul", "malformed_json"), (b'"', "malformed_json"),
    (b'{"a":1\0}', "malformed_json"), (b"[" * 65 + b"}" * 65, "too_deep"), ("[" * 30 + "}" * 30, "malformed_json"),
    (b"\xef\xbb\xbf{}", "invalid_encoding"), ("\ufeff{}", "invalid_encoding"), (b'"\xff"', "invalid_encoding"),
    (b'"\xed\xa0\x80"', "invalid_encoding"), ("{}".encode("utf-16"), "invalid_encoding"),
    (b"NaN", "invalid_number"), (b"[-Infinity]", "invalid_number"), (b"1e400", "invalid_number"),
    (b"-1E0400", "invalid_number"), (b"0." + b"1" * 100, "invalid_number"), (b"9" * 400 + b".0", "invalid_number"),
    (b"9007199254740992", "integer_too_large"), (b"9223372036854775808", "integer_too_large"),
    (b"1" * 5_000, "integer_too_large"), (b"1e20", "integer_too_large"),
    (b'"\\u0000"', "invalid_text"), (b'{"\\u0000":1}', "invalid_text"), (b'"\\uD800"', "invalid_text"),
    (b'["\\udc00"]', "invalid_text"), ('"\ud800"', "invalid_text"),
    (b'{"a":1,"a":1}', "duplicate_key"), (b'{"a":1,"\\u0061":2}', "duplicate_key"),
    (b"[" * 65 + b"]" * 65, "too_deep"), (b"[" * 20_000, "too_deep"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"), (b'[["' + b'\\"' * 9 + b'"' + b",[" * 63, "too_deep"),
    (json.dumps({str(n): 0 for n in range(10_001)}).encode(), "too_many_keys"),
    (b"[" + b"[]," * 50_000 + b"0]", "too_many_containers"),
    (b" " * 1_048_577, "too_large"), ("é" * 600_000, "too_large"),
])
def test_a_body_that_is_no_strict_json_is_refused_with_a_code(raw: bytes | str, code: str) -> None:
    """B8, case-D06, case-D09: one answer for every malformed or oversized body, and never another exception."""
    error = refused(parse, raw)
    assert error.reason_code == code
    assert parse_again_says_the_same(raw, error)


def parse_again_says_the_same(raw: bytes | str, error: Invalid) -> bool:
    again = refused(parse, raw)
    return (again.message, again.field, again.faults) == (error.message, error.field, error.faults)


@pytest.mark.parametrize(("raw", "field"), [
    (b'{"a":[{},{"b":1,"c":2,"b":3}]}', "/a/1/b"), (b'{"a":{"x":"\\ud800"}}', "/a/x"), (b"[0,[1e400]]", "/1/0"),
])
def test_a_refused_body_names_the_place(raw: bytes, field: str) -> None:
    """B8: the field is a JSON pointer."""
    assert refused(parse, raw).field == field


def test_brackets_colons_and_escapes_inside_strings_are_no_structure() -> None:
    """B8: depth and keys are counted outside strings, whatever is escaped in them."""
    for text in ("[" * 500, '"[' * 100, "\\" * 101, '\\"[' * 100, ":" * 20_000, "}{" * 90, 'n\\"' * 99):
        assert parse(json.dumps([text, {"k": text}])) == [text, {"k": text}]
    assert parse(json.dumps(["\\", "[" * 90])) == ["\\", "[" * 90]
    assert parse(b'"\\ud83d\\ude00 \\\\u0000"') == "\U0001f600 \\u0000"
    assert parse(b"[" * 64 + b"]" * 64) == json.loads("[" * 64 + "]" * 64)


@given(st.binary(max_size=60) | st.text('[]{}",:\\0123456789eE.-u dDntf', max_size=60))
def test_any_bytes_are_a_value_or_a_refusal(raw: bytes | str) -> None:
    """B8: no input makes anything but Invalid, and what is taken is canonical JSON."""
    try:
        value = parse(raw)
    except Invalid:
        return
    assert parse(canonical(value)) == value


def test_long_digits_are_refused_where_the_interpreter_has_no_limit() -> None:
    """B8: a site that switched Python's own bound off is not slowed by a megabyte of digits."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert refused(parse, b"1" * 1_000_000).reason_code == "integer_too_large"
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("unit", [
    b"1,", b"1e1,", b"1e100,", b"4" * 4_000 + b",", b"{},", b"[[[[]]]],", b"[", b'{"a":', b'"', b'"",', b'"[",',
    b'\\"', b'"\\u0000",', b'{"a":1},', b"NaN,", b" ", b"\\", b"true,",
])
def test_a_hostile_megabyte_costs_little(unit: bytes) -> None:
    """B8: any body of 1 MiB is answered within 100 ms; three times that here, for busy machines."""
    raw = (b"[" + unit * (1_048_576 // len(unit)))[:1_048_000].rstrip(b",") + b"]"
    spent = []
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(Invalid):
            parse(raw)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.3


def test_fingerprints_are_the_sha256_of_the_canonical_text() -> None:
    """E6, B15: and a body of full depth still fits into a request around it."""
    request = {"b": [1.0], "a": "é"}
    text = '{"a":"é","b":[1]}'
    assert fingerprint(request) == hashlib.sha256(text.encode()).digest() == codecs.digest(text)
    assert len(fingerprint({"request": {"input": nested(64)}})) == 32


# --- typed codecs --------------------------------------------------------------------------------------------------


class Part(BaseModel):
    model_config = CLOSED
    type: str = "bolt"
    sizes: dict[str, int] = {}
    parts: list[Part] = []


class Open(BaseModel):
    x: int


@dataclass
class OpenRecord:
    x: int


@dataclass
class Record:
    __pydantic_config__ = CLOSED
    x: int


class OpenRow(TypedDict):
    x: int


class Masked(BaseModel):
    model_config = CLOSED
    token: SecretStr


class Euros(BaseModel):
    model_config = CLOSED
    amount: int

    @field_serializer("amount")
    def _shown(self, amount: int) -> str:
        return f"{amount} EUR"


class Square(BaseModel):
    model_config = CLOSED
    side: int = Field(alias="length")
    _seen: dict[str, int] = PrivateAttr(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Cat(BaseModel):
    model_config = CLOSED
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    model_config = CLOSED
    kind: Literal["dog"]
    name: str


class Guarded(BaseModel):
    model_config = CLOSED
    word: str

    @model_validator(mode="after")
    def _check(self) -> Guarded:
        if self.word == "no":
            raise ValueError("not that\x1b word" + "!" * 900)
        return self


def invoice(
    run: object, invoice_id: int, due: dt.date | None = None, *, copies: Annotated[int, Field(ge=1)] = 1,
    ref: uuid.UUID | None = None, json: list[str] = [], copy: Part | None = None,  # noqa: B006
) -> str:
    return "x"


def idle(run: object) -> None: ...


def test_the_signature_is_the_codec_and_defaults_are_filled_in() -> None:
    """B8: a normal form states everything, and stating a default changes nothing; field names may be any."""
    made = input_codec(invoice)
    full = '{"copies":1,"copy":null,"due":null,"invoice_id":7,"json":[],"ref":null}'
    assert made.style == "fields"
    assert made.names == ("invoice_id", "due", "copies", "ref", "json", "copy")
    assert made.normal({"invoice_id": 7.0}) == made.normal(json.loads(full)) == full
    args, fields = made.bind(made.normal({"invoice_id": 7, "due": "2024-02-29", "copy": {"type": "nut"}}))
    assert args == ()
    assert fields == {"invoice_id": 7, "due": dt.date(2024, 2, 29), "copies": 1, "ref": None, "json": [],
                      "copy": Part(type="nut")}
    fields["json"].append("x")
    assert made.bind(full)[1]["json"] == []


@given(st.recursive(st.builds(dict), lambda v: st.fixed_dictionaries(
    {}, optional={"type": TEXTS, "sizes": st.dictionaries(TEXTS, st.integers(-9, 9), max_size=3),
                  "parts": st.lists(v, max_size=3)}), max_leaves=6))
def test_a_normal_form_is_its_own_normal_form_and_decodes(value: dict[str, Any]) -> None:
    """B8, B9: deterministic, idempotent, and readable when the job runs."""
    made = Codec[Part](Part)
    text = made.normal(value)
    assert made.normal(json.loads(text)) == text == canonical(json.loads(text))
    assert made.encode_python(made.decode(text)) == text
    assert made.bind(text) == ((made.decode(text),), {})


@pytest.mark.parametrize(("annotation", "value", "text"), [
    (Literal[1], True, "1"), (Literal[True], 1, "true"), (Literal[1], 1.0, "1"), (float, 2, "2"), (int, 2.0, "2"),
    (int | bool, True, "true"), (bool | int, 1, "1"), (Decimal, 1.5, '"1.5"'), (Colour, "red", '"red"'),
    (uuid.UUID, "12345678123456781234567812345678", '"12345678-1234-5678-1234-567812345678"'),
])
def test_what_a_type_takes_for_the_same_has_one_normal_form(annotation: Any, value: Any, text: str) -> None:
    """B8, B15: the second hash compares normal forms, so True taken for 1 is written 1."""
    assert codec(annotation).normal(value) == text


def test_all_faults_are_told_at_once_with_pointers_and_without_values() -> None:
    """B8, B31: unknown, missing and mistyped fields together; strictly, and nothing of the content is repeated."""
    secret = "hunter2" * 20
    error = refused(input_codec(invoice).normal, {
        "copies": 0, "due": secret, "ref": secret, "json": ["a", 5], "zz": secret,
        "copy": {"parts": [{"oops": secret}]}})
    assert error.reason_code == "invalid_input"
    assert [fault["field"] for fault in error.faults] == [
        "/invoice_id", "/due", "/copies", "/ref", "/json/1", "/copy/parts/0/oops", "/zz"]
    assert secret not in str(error.faults)
    assert error.__cause__ is None
    for wrong in ("7", True, 1.5, None):
        assert refused(input_codec(invoice).normal, {"invoice_id": wrong}).field == "/invoice_id"
    assert refused(input_codec(invoice).normal, [1]).field == ""


def test_members_of_a_union_are_no_steps_of_a_pointer() -> None:
    """B8: pointers lead into the value that was sent, and an unknown tag is not repeated."""
    tagged = Codec[Any](list[Annotated[Cat | Dog, Field(discriminator="kind")]])
    error = refused(tagged.normal, [{"kind": "cat"}, {"kind": "hunter2"}, {"kind": "dog", "name": 1}])
    assert [fault["field"] for fault in error.faults] == ["/0/lives", "/1", "/2/name"]
    assert "hunter2" not in str(error.faults)
    plain = refused(Codec[Any](dict[str, Record | int]).normal, {"a": {"x": "1"}})
    assert {fault["field"] for fault in plain.faults} == {"/a/x", "/a"}


def test_faults_are_bounded_in_number_and_length_and_printable() -> None:
    """B8, B31: 50 faults of 300 characters, however much is wrong."""
    assert len(refused(Codec[Any](list[int]).normal, ["x"] * 600).faults) == 50
    assert len(refused(Codec[Any](list[int]).normal, ["x"] * 60_000).faults) == 1
    message = refused(Codec[Any](Guarded).normal, {"word": "no"}).message
    assert len(message) == 300
    assert message.isprintable()
    assert len(refused(Codec[Any](Part).normal, {"k" * 9_000: 1}).field or "") <= 300


def test_stored_text_that_no_longer_fits_is_refused_with_its_own_code() -> None:
    """B21: invalid_persisted_input, or the code that the caller names."""
    made = input_codec(invoice)
    for text in ('{"invoice_id":"7"}', '{"invoice_id":7,"gone":1}', "{}", "{", "null", ""):
        assert refused(made.bind, text).reason_code == "invalid_persisted_input"
    assert refused(made.decode, '{"invoice_id":"7"}').field == "/invoice_id"
    assert refused(Opaque().bind, "[1]", code="other").reason_code == "other"
    assert refused(input_codec(idle).bind, '{"x":1}').field == "/x"


def test_a_job_without_fields_takes_the_empty_object_only() -> None:
    """B8: and its input needs no validation to be run."""
    made = input_codec(idle)
    assert made.normal({}) == "{}"
    assert made.bind("{}") == ((), {})
    assert refused(made.normal, {"x": 1}).field == "/x"
    assert refused(made.normal, None).reason_code == "invalid_input"


def test_artifacts_are_encoded_from_python_and_from_json_by_one_rule() -> None:
    """B9: a handler's value and a runner's JSON get the same text."""
    dates = codec(list[dt.date]).fitted("artifact", 100)
    assert dates.encode_python([dt.date(2024, 1, 1)]) == dates.normal(["2024-01-01"]) == '["2024-01-01"]'
    assert refused(dates.encode_python, ["soon"]).reason_code == "invalid_artifact"
    assert refused(dates.encode_python, [dt.date(2024, 1, 1)] * 10).reason_code == "too_large"
    square = Codec[Square](Square)
    assert square.encode_python(Square(length=3)) == square.normal({"length": 3}) == '{"length":3}'
    assert artifact_codec(idle).encode_python(None) == artifact_codec(idle).normal(None) == "null"
    assert refused(artifact_codec(idle).encode_python, 0).faults
    assert refused(codec(float).encode_python, float("nan")).reason_code == "invalid_number"
    assert refused(codec(str).encode_python, "\ud800").reason_code == "invalid_text"
    assert refused(codec(bytes).encode_python, b"\xff").reason_code == "invalid_input"
    assert refused(codec(Part).encode_python, Part.model_construct(type="x", parts=[5])).faults
    ring = Part()
    ring.parts.append(ring)
    assert refused(codec(Part).encode_python, ring).faults


def test_a_type_without_a_stable_form_is_refused_when_it_is_used() -> None:
    """B8: what would not read back as itself is never stored."""
    assert refused(Codec[Euros](Euros).normal, {"amount": 5}).reason_code == "invalid_input"
    assert refused(Codec[Euros](Euros).encode_python, Euros(amount=5)).faults


@pytest.mark.parametrize(("annotation", "word"), [
    (Open, "Open takes unknown fields; give it model_config"), (list[Open], "Open takes unknown fields"),
    (dict[str, Open | None], "Open takes unknown fields"), (OpenRecord, "__pydantic_config__"),
    (OpenRow, "OpenRow takes unknown fields"), (Annotated[Part | OpenRow, 0], "OpenRow"),
    (Any, "anything"), (object, "anything"), (dict, "anything"), (list, "anything"), (tuple, "anything"),
    (dict[str, Any], "anything"), (JsonValue, "anything"), (type, "anything"), (Json, "hides"), (Json[int], "hides"),
    (set[str], "no order"), (frozenset[int], "no order"), (Masked, "masked"), (list[SecretStr], "masked"),
    (random.Random, "pydantic cannot build it"), ("Missing", "not defined"), (list["Missing"], "not defined"),  # noqa: F821
])
def test_a_codec_that_would_take_more_than_it_states_cannot_be_built(annotation: Any, word: str) -> None:
    """B8: unknown fields refused at every level, and the message says how to."""
    error = refused(codec, annotation)
    assert error.reason_code == "invalid_codec"
    assert word in error.message


@pytest.mark.parametrize("annotation", [
    Part, Record, dict[str, int], dict[str, list[Part]], Part | Record | None, tuple[int, str], Colour, Literal["a", 1],
    dt.datetime, uuid.UUID, Decimal, Annotated[str, Field(max_length=3)], None, Square,
])
def test_stated_types_are_codecs(annotation: Any) -> None:
    """B8: models, records, typed maps and scalars; a mapping of a stated type is explicit."""
    assert isinstance(codec(annotation), Codec)
    assert isinstance(codec(annotation).json_schema(), dict)


def wrong(run, bare, later: Missing, *rest: int, given: int = "1", spec: int = Field(ge=1), open_: Open, **more: int):  # type: ignore  # noqa: F821
    ...


def only_positional(run: object, a: int, /) -> None: ...


def test_every_parameter_that_is_no_field_is_named() -> None:
    """B5, B8: annotations are the contract, so a missing or unknown one is an error before any job exists."""
    assert [fault["field"] for fault in refused(input_codec, wrong).faults] == [
        "bare", "later", "rest", "given", "spec", "open_", "more"]
    assert "spec: put Field(...) into Annotated" in refused(input_codec, wrong).message
    assert refused(input_codec, only_positional).field == "a"
    assert refused(input_codec, lambda: None).field == "handler"
    assert refused(artifact_codec, wrong).field == "return"


def test_an_opaque_codec_takes_any_object_within_its_limit_and_nothing_else() -> None:
    """E9: the one open codec, and still canonical JSON."""
    made = Opaque(30)
    assert made.normal({"b": [1.0], "a": {}}) == '{"a":{},"b":[1]}'
    assert made.decode('{"a":1}') == {"a": 1}
    assert made.bind("{}") == (({},), {})
    assert made.encode_python({"at": dt.date(2024, 1, 1)}) == '{"at":"2024-01-01"}'
    for value in ([], "x", None, 1):
        assert refused(made.normal, value).reason_code == "invalid_input"
    assert refused(made.normal, {"a": "x" * 30}).reason_code == "too_large"
    assert made.fitted("artifact", 10).max_bytes == 10
    assert made.fitted("artifact", 99).max_bytes == 30
    assert refused(schemas.plain, {"a": object()}).reason_code == "not_json"
