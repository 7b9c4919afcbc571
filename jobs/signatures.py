"""Codecs from a function's signature: its parameters are the input, its return annotation the artifact (DESIGN 6)."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from jobs.errors import Invalid
from jobs.schemas import Codec, Fault, Fields, adapter, codec, misfit, unfit


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function, without evaluating what its annotations name."""
    if sys.version_info >= (3, 14):
        # The first parameter's type is often imported for type checkers only; it must not be evaluated.
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """One annotation, evaluated in the function's module. Raises NameError and what else evaluating raises."""

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    return typing.get_type_hints(holder, globalns=scope, include_extras=True)["it"]


def _field(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter as a field, its default included. Raises Invalid invalid_codec."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise misfit(parameter.name, "input is passed by name: no *args, **kwargs and positional-only parameters")
    if parameter.annotation is parameter.empty:
        raise misfit(parameter.name, "the parameter has no annotation")
    annotation = _evaluated(function, parameter.name, parameter.annotation)
    single = adapter(annotation, parameter.name)
    if parameter.default is parameter.empty:
        return annotation
    if isinstance(parameter.default, FieldInfo):
        raise misfit(parameter.name, "put Field(...) into Annotated[...] and leave the default a plain value")
    try:
        single.validate_python(parameter.default, strict=True)
    except ValidationError:
        raise misfit(parameter.name, "the default is not a value of the annotated type") from None
    return Annotated[annotation, Field(default=parameter.default)]


def _evaluated(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    try:
        return _resolved(function, annotation)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise misfit(name, f"the annotation cannot be resolved ({error}); name something of the module") from None


def input_codec(function: Callable[..., Any], *, skip: int = 1) -> Fields:
    """The codec of a function's parameters behind the first `skip`. Raises Invalid invalid_codec with every fault."""
    parameters = list(signature(function).parameters.values())
    faults: list[Fault] = []
    fields: dict[str, Any] = {}
    if len(parameters) < skip:
        faults.append({"field": "handler", "message": "the function takes no first parameter for the run"})
    for parameter in parameters[skip:]:
        try:
            fields[parameter.name] = _field(function, parameter)
        except Invalid as error:
            faults += error.faults
    if faults:
        raise unfit(faults)
    return Fields(getattr(function, "__name__", "input"), fields)


def artifact_codec(function: Callable[..., Any]) -> Codec[Any]:
    """The codec of what a function returns. Raises Invalid invalid_codec; without a result, `-> None` must be said."""
    annotation = signature(function).return_annotation
    if annotation is inspect.Signature.empty:
        raise misfit("return", "the function has no return annotation; write -> None if it has no result")
    return codec(_evaluated(function, "return", annotation))
