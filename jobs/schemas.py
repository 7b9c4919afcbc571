"""Typed codecs: what goes into a handler and comes out, validated by pydantic, stored as canonical JSON (B8, B9).

Validation reads canonical text in pydantic's strict JSON mode, and a codec that would take unknown fields or
unstated types is refused when it is built. Byte limits and codes come from the definition that owns the codec.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar, cast

import typing_extensions
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from jobs.codecs import MAX_BYTES, canonical, pointer, printable, refusal
from jobs.errors import Invalid

T = TypeVar("T")
Noun = Literal["input", "artifact"]
Style = Literal["model", "fields"]
Fault = dict[str, str]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

PERSISTED: Final = "invalid_persisted_input"
MAX_FAULTS: Final = 50
_TOO_MANY_FAULTS: Final = 5_000


def unfit(faults: list[Fault]) -> Invalid:
    """The refusal of a codec that cannot be built, naming every reason."""
    said = "; ".join(f"{fault['field']}: {fault['message']}".removeprefix(": ") for fault in faults)
    return Invalid(said, field=faults[0]["field"], code="invalid_codec", faults=faults)


def misfit(field: str, message: str) -> Invalid:
    """The refusal of a codec for one reason."""
    return unfit([{"field": field, "message": message}])


def plain(value: object) -> Any:
    """Plain JSON of Python values (dates, UUIDs, enums, models): what an in-process caller means by them.

    Raises Invalid not_json where there is no such form.
    """
    try:
        return to_jsonable_python(value, by_alias=True, round_trip=True)
    except ValueError:
        raise refusal("not_json", "This holds a value that has no JSON form.") from None


class Codec(Generic[T]):
    """One annotation as a codec. `style` says how a handler takes it: as one object or as its fields."""

    style: ClassVar[Style] = "model"

    def __init__(self, annotation: Any, *, max_bytes: int | None = None) -> None:
        """Raises Invalid invalid_codec if the annotation is no codec, or one that would take what it does not state."""
        self._limit(max_bytes)
        self._adapter: TypeAdapter[T] = adapter(annotation, "")
        schema = cast("dict[str, Any]", self._adapter.core_schema)
        self.is_object = _is_object(schema)
        self._is_exact = not any(node["type"] in _LOOSE or "serialization" in node for node, _, _ in _nodes(schema))
        self._read_json = self._adapter.validator.validate_json
        self._read_python = self._adapter.validator.validate_python
        self._dump = self._adapter.serializer.to_python

    def _limit(self, max_bytes: int | None) -> None:
        self.code = "invalid_input"
        self.own_limit = max_bytes
        self.max_bytes = max_bytes or MAX_BYTES

    def fitted(self, noun: Noun, max_bytes: int) -> Self:
        """The same codec for one side of a definition; of the definition's and its own byte limit the lower holds."""
        fitted = copy.copy(self)
        fitted.code = f"invalid_{noun}"
        fitted.max_bytes = min(self.own_limit or max_bytes, max_bytes)
        return fitted

    def normal(self, value: object) -> str:
        """The normal form of plain JSON: defaults filled, canonical, the same for equal values, stable (B8, B9).

        Raises Invalid invalid_input or invalid_artifact with all faults at once, or what `canonical` raises.
        """
        text = canonical(value, max_bytes=self.max_bytes)
        dumped = self._dumped(self.decode(text, code=self.code))
        # Equal values have one text, unless a type takes True for 1.
        return text if self._is_exact and dumped == value else self._settled(dumped, text)

    def decode(self, text: str, *, code: str = PERSISTED) -> T:
        """The typed value of a stored text (B21). Raises Invalid with the code, and all faults at once."""
        try:
            return cast("T", self._read_json(text, strict=True))
        except ValidationError as error:
            raise _invalid(error, _loaded(text), code) from None

    def bind(self, text: str, *, code: str = PERSISTED) -> Arguments:
        """What the handler is called with: `args, fields = bind(text); handler(run, *args, **fields)`. As decode."""
        return (self.decode(text, code=code),), {}

    def encode_python(self, value: object) -> str:
        """The normal form of what a handler returned. Raises Invalid invalid_artifact, or what `canonical` raises."""
        try:
            checked = self._read_python(value)
        except ValidationError as error:
            raise _invalid(error, value, self.code) from None
        return self._settled(self._dumped(checked))

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of this codec, for catalogues; empty where a custom type has none."""
        try:
            return self._adapter.json_schema()
        except PydanticUserError:
            return {}

    def _dumped(self, checked: T) -> Any:
        try:
            # No warnings: what is dumped is either what was validated or is read once more by `_settled`.
            return self._dump(checked, mode="json", by_alias=True, round_trip=True, warnings=False)
        except ValueError:
            raise refusal(self.code, "This holds a value that cannot be written as JSON.") from None

    def _settled(self, dumped: Any, source: str = "") -> str:
        """The text of a dumped value, proven to read back as the same: the normal form of a normal form is itself."""
        text = canonical(dumped, max_bytes=self.max_bytes)
        if text != source and self._dumped(self.decode(text, code=self.code)) != dumped:
            raise refusal(self.code, "This type has no stable JSON form: what it writes reads as something else.")
        return text


class Fields(Codec[dict[str, Any]]):
    """The parameters of a handler as a codec: the input object's keys are its keyword arguments."""

    style: ClassVar[Style] = "fields"

    def __init__(self, name: str, fields: dict[str, Any], *, max_bytes: int | None = None) -> None:
        """`fields` maps names to annotations; a default is in the annotation. Raises Invalid invalid_codec."""
        # The form for 3.11 as well; and not a model, whose own attributes would hide parameters named copy or json.
        record: Any = cast("Any", typing_extensions.TypedDict)(name, fields)
        record.__pydantic_config__ = ConfigDict(extra="forbid")
        super().__init__(record, max_bytes=max_bytes)
        self.names = tuple(fields)

    def normal(self, value: object) -> str:
        """As `Codec.normal`; without parameters the empty object needs no validation."""
        if not self.names and type(value) is dict and not value:
            return "{}"
        return super().normal(value)

    def bind(self, text: str, *, code: str = PERSISTED) -> Arguments:
        """As `Codec.bind`, by name."""
        if text == "{}" and not self.names:
            return (), {}
        return (), self.decode(text, code=code)


class Nothing(Codec[None]):
    """The codec of `-> None`: no artifact but null."""

    def __init__(self) -> None:
        super().__init__(None)

    def encode_python(self, value: object) -> str:
        """`"null"`; anything else than None is Invalid."""
        return "null" if value is None else super().encode_python(value)


class Opaque(Codec[dict[str, Any]]):
    """Any JSON object within the limit: the one permitted open codec, for contents that others own (E9)."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._limit(max_bytes)
        self.is_object = True

    def normal(self, value: object) -> str:
        """The canonical text of the object. Raises Invalid invalid_input or _artifact, or what `canonical` raises."""
        if type(value) is not dict:
            raise refusal(self.code, "This must be an object.")
        return canonical(value, max_bytes=self.max_bytes)

    def decode(self, text: str, *, code: str = PERSISTED) -> dict[str, Any]:
        """The object of a stored text. Raises Invalid with the code."""
        value = _loaded(text)
        if type(value) is not dict:
            raise refusal(code, "This is not a JSON object.")
        return value

    def encode_python(self, value: object) -> str:
        """The canonical text of what a handler returned."""
        return self.normal(plain(value))

    def json_schema(self) -> dict[str, Any]:
        """An object without further rules."""
        return {"type": "object"}


def codec(annotation: Any) -> Codec[Any]:
    """The codec of an annotation; a codec is taken as it is. Raises Invalid invalid_codec."""
    if isinstance(annotation, Codec):
        return annotation
    return Nothing() if annotation is None or annotation is type(None) else Codec(annotation)


# --- what may be a codec -----------------------------------------------------------------------------------------

_RECORDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_REFUSED: Final = {
    **dict.fromkeys(("any", "is-instance", "is-subclass", "callable"), "takes anything; name a JSON type"),
    **dict.fromkeys(("set", "frozenset"), "a set has no order, so no normal form; use list[...]"),
    **dict.fromkeys(("call", "arguments", "arguments-v3"), "has no JSON form by name; use a model or a dataclass"),
    "generator": "is no value; use list[...]",
    "json": "hides JSON in a string; name the type itself",
}
_LOOSE: Final = frozenset({"literal", "enum", "function-before", "function-after", "function-wrap", "function-plain"})
_MASKS: Final = frozenset({"_serialize_secret", "_serialize_secret_field"})
_CHILDREN: Final = (
    "schema", "items_schema", "keys_schema", "values_schema", "choices", "fields", "definitions", "steps",
    "json_schema", "strict_schema", "extras_schema",
)
# Where pydantic keeps one schema for JSON and one for Python, we read JSON, strictly.
_ONLY: Final = {"json-or-python": ("json_schema",), "lax-or-strict": ("strict_schema",)}


def adapter(annotation: Any, name: str) -> TypeAdapter[Any]:
    """Pydantic's adapter of an annotation that states all it takes. Raises Invalid invalid_codec."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = adapter.core_schema if adapter.pydantic_complete else None
    except (PydanticUserError, NameError, TypeError) as error:
        raise misfit(name, f"pydantic cannot build it: {str(error).splitlines()[0]}") from None
    if schema is None:
        raise misfit(name, "names a type that is not defined yet")
    if faults := list(_openings(schema, name)):
        raise unfit(faults)
    return adapter


def _nodes(
    node: Any, path: str = "", owner: dict[str, Any] | None = None
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Every typed node of a core schema that JSON is read by, with its place and the model or record it is in."""
    if isinstance(node, (list, tuple)):
        for item in node:
            yield from _nodes(item, path, owner)
    elif isinstance(node, dict) and not isinstance(node.get("type"), str):
        for name, item in node.items():
            yield from _nodes(item, f"{path}/{name}", owner)
    elif isinstance(node, dict):
        kind = node["type"]
        owner = node if kind in ("model", "dataclass", "typed-dict") else owner
        path = f"{path}/{node['name']}" if kind == "dataclass-field" else path
        yield node, path, owner or node
        for key in _ONLY.get(kind, _CHILDREN):
            yield from _nodes(node.get(key), path, owner)


def _openings(schema: Any, name: str) -> Iterator[Fault]:
    """A fault for every place in a core schema that would take unknown fields or unstated types."""
    for node, path, owner in _nodes(schema, name):
        kind = node["type"]
        if kind in _REFUSED:
            yield {"field": path, "message": _REFUSED[kind]}
        elif getattr(node.get("serialization", {}).get("function"), "__name__", "") in _MASKS:
            yield {"field": path, "message": "a secret is stored masked, so it is lost; pass a reference to it"}
        elif kind in _RECORDS and _extra(node, owner) != "forbid":
            yield {"field": path, "message": _how_to_forbid(owner)}


def _extra(node: dict[str, Any], owner: dict[str, Any]) -> object:
    return node.get("extra_behavior") or owner.get("config", {}).get("extra_fields_behavior")


def _how_to_forbid(owner: dict[str, Any]) -> str:
    name = getattr(owner.get("cls"), "__name__", "the type")
    attribute = "model_config" if owner["type"] == "model" else "__pydantic_config__"
    return f'{name} takes unknown fields; give it {attribute} = ConfigDict(extra="forbid")'


def _is_object(node: dict[str, Any]) -> bool:
    """Whether a core schema takes JSON objects only, as far as its shape shows."""
    kind = node["type"]
    if kind in ("typed-dict", "dataclass", "dict", "definition-ref"):
        return True
    if kind == "model":
        return not node.get("root_model") or _is_object(node["schema"])
    if kind in ("union", "tagged-union"):
        choices = node["choices"].values() if kind == "tagged-union" else node["choices"]
        return all(_is_object(choice[0] if isinstance(choice, tuple) else choice) for choice in choices)
    return kind != "nullable" and "schema" in node and _is_object(node["schema"])


# --- faults ------------------------------------------------------------------------------------------------------


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _invalid(error: ValidationError, value: object, code: str) -> Invalid:
    """Pydantic's findings as ours: pointers into the value, bounded, and nothing of the value itself."""
    if error.error_count() > _TOO_MANY_FAULTS:
        return refusal(code, f"There are more than {_TOO_MANY_FAULTS} faults.")
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]
    faults = [{"field": pointer(_path(f["loc"], value, f["type"])), "message": _message(f)} for f in found]
    return Invalid(faults[0]["message"], field=faults[0]["field"], code=code, faults=faults)


def _message(found: Any) -> str:
    # The one message of pydantic that repeats a whole value.
    return "The tag is none of the expected ones." if found["type"] == "union_tag_invalid" else printable(found["msg"])


def _path(location: tuple[int | str, ...], value: Any, kind: str) -> tuple[int | str, ...]:
    """Pydantic's location without the names of union members, which are no steps of the value."""
    path: list[int | str] = []
    for at, step in enumerate(location):
        inside = step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))
        if inside:
            value = value[step]
        if inside or (kind == "missing" and at == len(location) - 1):
            path.append(step)
    return tuple(path)
