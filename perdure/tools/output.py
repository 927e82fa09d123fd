"""What a tool returned, as text a model can read.

Invariant: every value comes out as text that is valid UTF-8 and, unless the tool returned plain
text, valid JSON; a value that cannot is one refusal, never a serializer's own exception.
"""

from __future__ import annotations

from pydantic_core import PydanticSerializationError, from_json, to_json

from perdure.domain.errors import InvalidArgument
from perdure.tools.spec import shown


def to_json_text(value: object) -> str:
    """`value` as JSON text; a plain `str` stays the text it is.

    Pydantic models, dataclasses, dates, sets, enums, paths and whatever else pydantic knows are
    written its way. Bytes are text where they are UTF-8; if some are not, all bytes of the
    value are written as base64. In plain text halves of surrogate pairs become "?" and NULs the
    symbol "␀": neither can be stored everywhere.

    Raises:
        InvalidArgument: the value has no JSON form: an unknown type, a cycle, NaN or infinity.
            The tool has run; only its result is unusable.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")
    try:
        text = _to_json(value)
        if b"NaN" in text or b"Infinity" in text:
            from_json(text, allow_inf_nan=False)
    except Exception as error:  # serializers written by tool authors may raise anything
        raise InvalidArgument(
            f"The tool ran, but its result cannot be written as JSON: {_reason(error)}.",
            f"It returned {shown(value)}; a tool must return text or JSON data.",
        ) from error
    return text.decode()


def _to_json(value: object) -> bytes:
    try:
        return to_json(value)
    except PydanticSerializationError:
        return to_json(value, bytes_mode="base64")


def _reason(error: Exception) -> str:
    text = str(error)
    if "Circular reference" in text:
        return "it contains itself"
    if "depth exceeded" in text:
        return "it is nested too deeply"
    if not isinstance(error, PydanticSerializationError) and isinstance(error, ValueError):
        return "it holds NaN or infinity"
    return text[:200].rstrip(".") or type(error).__name__
