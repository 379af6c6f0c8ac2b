"""Bodies of requests as pydantic models, which parse and document them: what every interface's models share.

A value outside its limit is an `InputError` that names it by its path (`messages[0].role`), or an `ApiError` where the
field has a code of its own. pydantic's own sentences and union tags do not reach a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError
from starlette.datastructures import Headers
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import SHOWN, checked, shorten
from pliant.serving.http.routing import Limits, read_fields

IGNORED = "x-pliant-ignored"
"""The header that names the fields of a request that nobody knows, in interfaces that accept these."""
MAX_NAMES = 20
_LIMITS: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "finite_number": "finite",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "missing": "given",
    "model_type": "an object",
    "string_pattern_mismatch": "a text of the pattern {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "string_unicode": "a text that UTF-8 can hold",
    "too_long": "of at most {max_length}",
    "too_short": "of at least {min_length}",
}
"""pydantic's kinds of errors -> the limit that a client reads."""
_SHAPES: Mapping[str, str] = {
    "<str>": "a text",
    "<ids>": "a list of token ids",
    "<list>": "a list",
    "<dict>": "an object",
}


class Body(BaseModel):
    """An object in a request's body. Types are strict, and fields that it does not know are passed over.

    `whole`: fields that an error names as a whole, whichever part of them is wrong.
    """

    model_config = ConfigDict(strict=True)
    whole: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def read(cls, value: object, *place: str) -> Self:
        """Return the body with these fields. `place`: where it is in a larger one. Raises `InputError` and `ApiError`."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise _error(cls, error, place) from None

    @classmethod
    async def of(cls, request: Request, limits: Limits) -> Self:
        """Return a request's body. Raises as `read` and `read_fields`."""
        return await checked(request, cls.read, await read_fields(request, limits))


class Lenient(Body):
    """An object in which a field that is null counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        return given(value) if isinstance(value, dict) else value


class Closed(Body, extra="forbid"):
    """An object without further fields. The first of them is found before pydantic looks for all."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if name not in cls.__pydantic_fields__:
                known = f"one of the fields {', '.join(cls.__pydantic_fields__)}"
                raise PydanticCustomError("unknown", "{limit}", {"name": shorten(name), "limit": known})
        return value


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


FIRST_ERROR = Field(fail_fast=True)
"""Of a list of any length: pydantic would else note an error for each of its entries."""
BY_TYPE = Discriminator(lambda value: f"<{type(value).__name__}>")
"""Chooses among shapes by the type of the value: each is tagged as <str>, <list> or <dict>."""


def _shape(value: object) -> str:
    is_ids = isinstance(value, list) and bool(value) and type(value[0]) is int
    return "<ids>" if is_ids else f"<{type(value).__name__}>"


BY_SHAPE = Discriminator(_shape)
"""As `BY_TYPE`, but a list that begins with a number is tagged as <ids>."""


def or_none(value: Any) -> Any:
    """Return the value, but none for an empty one: some clients write {} as []."""
    return value or None


def refused(limit: str, value: str = "", status: int = 422, code: str = "invalid") -> PydanticCustomError:
    """Return what a validator raises. `value`: as the message shows it, where that is not the value itself."""
    return PydanticCustomError("refused", "{limit}", {"limit": limit, "value": value, "status": status, "code": code})


def check_utf8(text: str) -> str:
    """Return the text. Raises for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = f"a text with the lone surrogate {shorten(text[error.start])} at character {error.start}"
        raise refused("a text that UTF-8 can hold", shown) from None
    return text


Utility = Annotated[float, Field(ge=0, allow_inf_nan=False, description="what a correct answer in time is worth")]
Utf8 = Annotated[str, AfterValidator(check_utf8)]
"""A text without lone surrogates."""


def refusal(name: str, value: object, context: Mapping[str, Any]) -> InputError | ApiError:
    """Return the error of a value that a validator refused, with the context of what it raised."""
    shown, limit = context["value"] or shorten(value), context["limit"]
    if context["code"] == "invalid":
        return InputError(name, shown, limit)
    return ApiError(context["status"], context["code"], f"{name} is {shown}, but must be {limit}", name)


def _error(model: type[Body], error: ValidationError, place: tuple[str, ...]) -> InputError | ApiError:
    """Return the first of pydantic's errors as a client reads it."""
    first = error.errors(include_url=False)[0]
    kind, location, value = first["type"], (*place, *first["loc"]), first["input"]
    details: dict[str, Any] = first.get("ctx", {})
    is_whole = bool(location) and location[0] in model.whole
    name = _path(location[:1] if is_whole else location)
    if kind == "unknown":
        if is_whole:
            return InputError(name, f"with {details['name']}", details["limit"])
        return InputError(details["name"], "unknown", details["limit"])
    if kind == "refused":
        return refusal(name, value, details)
    is_beyond = isinstance(value, float) and kind.startswith(("greater", "less", "finite"))
    shown = f"{value:g}" if is_beyond else shorten(value)
    if kind == "missing":
        shown = "missing"
    elif kind in ("too_long", "too_short"):
        length = details["actual_length"]
        shown = f"{'a list' if isinstance(value, list) else 'an object'} of {length}" if length else "empty"
    if kind == "union_tag_invalid":
        limit = " or ".join(text for tag, text in _SHAPES.items() if tag in details["expected_tags"])
        return InputError(name, shown, limit)
    numbers = {key: f"{item:g}" if isinstance(item, float) else item for key, item in details.items()}
    return InputError(name, shown, _LIMITS[kind].format(**numbers))


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int) or part.isdecimal():
            path += f"[{part}]"
        elif not part.startswith("<"):  # the tag of a shape
            path += f".{part}" if path else part
    return path or "body"


class _JsonSchema(GenerateJsonSchema):
    """Schemas as a page shows them: without generated titles, and without null, which counts as left out."""

    def nullable_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> Any:
        return (
            self.generate_inner(schema["schema"])
            if schema.get("default", 0) is None
            else super().default_schema(schema)
        )

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def deadline(seconds: float, maximum: float, name: str = "deadline") -> float:
    """Return a deadline in seconds from now. Raises `InputError` unless it is above 0 and at most `maximum`."""
    if not 0 < seconds <= maximum:
        raise InputError(name, f"{seconds:g}", f"more than 0 and at most {maximum:g} seconds from now")
    return seconds


def header_number(headers: Headers, name: str) -> float | None:
    """Return the number in a header, None without one. Raises `InputError` for anything else."""
    given = headers.get(name)
    try:
        return None if given is None else float(given)
    except ValueError:
        raise InputError(name, shorten(given), "a number") from None


def ignored_header(names: Iterable[str]) -> dict[str, str]:
    """Return the header with the first `MAX_NAMES` fields that nobody knows, at most `SHOWN` characters of each."""
    shown = ", ".join(
        "".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name[:SHOWN])
        for name in islice(names, MAX_NAMES)
    )
    return {IGNORED: shown} if shown else {}


def schema_of(model: Any) -> dict[str, Any]:
    """Return the JSON schema of a model, or of several of which a body is one, with the models in it in their places."""
    schema = TypeAdapter(model).json_schema(schema_generator=_JsonSchema)
    models = schema.pop("$defs", {})

    def inlined(value: Any) -> Any:
        if isinstance(value, list):
            return [inlined(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return inlined(models[value["$ref"].rpartition("/")[2]] | {k: v for k, v in value.items() if k != "$ref"})
        return {name: inlined(item) for name, item in value.items()}

    whole: dict[str, Any] = inlined(schema)
    return whole


def request_body(model: Any, **more: Any) -> dict[str, Any]:
    """Return the `requestBody` of a route that takes a model in JSON. `more`: of its media type, such as examples."""
    return {"required": True, "content": {"application/json": {"schema": schema_of(model), **more}}}
