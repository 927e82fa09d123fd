"""From a Python function to a parameter model: types, defaults and the docstring.

Invariant: a function either yields a complete schema when it is loaded, or is refused then and
there with the parameter named; nothing about a signature is found out at the first call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from perdure.domain.errors import InvalidArgument
from perdure.tools.spec import Arguments, shown

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know about the call; ask for it by a first parameter of this type.

    `idempotency_key` is the same on every attempt of one call and of no other: pass it on to
    services that accept one. `workspace` is the session's folder, which may not exist yet.
    """

    session_key: str
    turn: int
    step: int
    workspace: Path
    idempotency_key: str


@dataclass(frozen=True)
class Signature:
    """What a function's signature says: the model of its arguments, and the rest."""

    parameters: type[BaseModel]
    description: str
    context_parameter: str | None


class _FunctionArguments(Arguments):
    # A parameter may be called `schema` or `model`; its alias is what everyone sees.
    model_config = ConfigDict(protected_namespaces=(), serialize_by_alias=True)


def read_signature(function: Callable[..., Any]) -> Signature:
    """The signature of `function` as a tool.

    Raises:
        InvalidArgument: naming the parameter that cannot be described, and why.
    """
    where = f"The tool function {_name(function)}"
    if not inspect.isroutine(function):
        raise InvalidArgument(f"{where} is not a function but {shown(function)}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"{where} is a generator.", "Return one value instead of yielding.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations are arbitrary expressions
        raise InvalidArgument(
            f"{where} has a signature that cannot be read: {type(error).__name__}: {error}."
        ) from error

    context = None
    if parameters and hints.get(parameters[0].name) is ToolContext:
        context = parameters[0].name
    described = docstring_parser.parse(inspect.getdoc(function) or "")
    words = {part.arg_name: part.description for part in described.params if part.description}
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        _check_kind(where, parameter)
        if parameter.name != context:
            hint = _checked_hint(where, parameter, hints)
            field, alias = _field_name(parameter.name, index)
            notes: dict[str, Any] = {"alias": alias} if alias else {}
            if parameter.name in words:
                notes["description"] = words[parameter.name]
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = (Annotated[hint, Field(**notes)] if notes else hint, default)
    try:
        model = create_model(f"{_name(function)}_arguments", __base__=_FunctionArguments, **fields)
        model.model_json_schema()
    except Exception as error:  # pydantic's construction errors share no base
        raise InvalidArgument(f"{where} cannot be described: {_first_line(error)}.") from error
    return Signature(model, _description(function, described), context)


def _check_kind(where: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in _VARIADIC:
        raise InvalidArgument(
            f"{where} takes {parameter}.",
            "Name every parameter: a model must be told what it may pass.",
        )
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise InvalidArgument(
            f"{where} has the positional-only parameter {parameter.name}.",
            "Arguments are passed by name.",
        )


def _checked_hint(where: str, parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.name not in hints:
        raise InvalidArgument(
            f"{where} has the parameter {parameter.name} without a type.",
            f"Annotate it, as in {parameter.name}: str.",
        )
    hint = hints[parameter.name]
    if hint is ToolContext:
        raise InvalidArgument(
            f"{where} takes its ToolContext as {parameter.name}.",
            "The context must be the first parameter.",
        )
    try:
        TypeAdapter(hint).json_schema()
    except Exception as error:  # pydantic's construction errors share no base
        raise InvalidArgument(
            f"{where} has the parameter {parameter.name} of the type {shown(hint)}, "
            f"which has no JSON form: {_first_line(error)}.",
            "Use str, int, float, bool, lists, dicts, enums, dataclasses or pydantic models.",
        ) from error
    return hint


def _field_name(name: str, index: int) -> tuple[str, str | None]:
    """The model's field for a parameter and its alias, where pydantic reserves the name."""
    if name.startswith(("_", "argument_")) or hasattr(BaseModel, name):
        return f"argument_{index}", name
    return name, None


def _description(function: Callable[..., Any], described: docstring_parser.Docstring) -> str:
    parts = [described.short_description, described.long_description]
    return "\n\n".join(part for part in parts if part) or _name(function).replace("_", " ")


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")
