"""Bodies of requests as pydantic models, which parse and document them: what every interface's models share.

A value outside its limit is an `InputError` that names it by its path (`messages[0].role`), or an `ApiError` where the
field has a code of its own. pydantic's own sentences and union tags do not reach a client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import Limits, read_fields

_LIMITS: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "extra_forbidden": "left out",
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
    def read(cls, value: object) -> Self:
        """Return the body with these fields. Raises `InputError` and `ApiError`."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise _refusal(cls, error) from None

    @classmethod
    async def of(cls, request: Request, limits: Limits) -> Self:
        """Return a request's body. Raises as `read` and `read_fields`."""
        return await checked(request, cls.read, await read_fields(request, limits))


BY_TYPE = Discriminator(lambda value: f"<{type(value).__name__}>")
"""Chooses among shapes by the type of the value: each is tagged as <str>, <list> or <dict>."""


def refused(limit: str, value: str = "", status: int = 422, code: str = "invalid") -> PydanticCustomError:
    """Return what a validator raises. `value`: as the message shows it, where that is not the value itself."""
    return PydanticCustomError("refused", "{limit}", {"limit": limit, "value": value, "status": status, "code": code})


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = f"a text with the lone surrogate {shorten(text[error.start])} at character {error.start}"
        raise refused("a text that UTF-8 can hold", shown) from None
    return text


Utf8 = Annotated[str, AfterValidator(_utf8)]
"""A text without lone surrogates."""


def _refusal(model: type[Body], error: ValidationError) -> InputError | ApiError:
    first = error.errors(include_url=False)[0]
    kind, location, given = first["type"], first["loc"], first["input"]
    details: dict[str, Any] = first.get("ctx", {})
    if kind == "extra_forbidden" and len(location) == 1:
        return InputError(shorten(location[0]), "unknown", f"one of the fields {', '.join(model.model_fields)}")
    if location and location[-1] == "[key]":
        location, given = location[:-2], location[-2]
    name = _path(location[:1] if location and location[0] in model.whole else location)
    if kind == "refused":
        value, limit = details["value"] or shorten(given), details["limit"]
        if details["code"] != "invalid":
            return ApiError(details["status"], details["code"], f"{name} is {value}, but must be {limit}", name)
        return InputError(name, value, limit)
    value = "missing" if kind == "missing" else shorten(given)
    if kind == "union_tag_invalid":
        limit = " or ".join(text for tag, text in _SHAPES.items() if tag in details["expected_tags"])
    else:
        limit = _LIMITS[kind].format(**{k: f"{v:g}" if isinstance(v, float) else v for k, v in details.items()})
    if kind in ("too_long", "too_short"):
        value = f"{'a list' if isinstance(given, list) else 'an object'} of {details['actual_length']}"
    elif kind == "extra_forbidden":
        value = f"with {shorten(location[-1])}"
    return InputError(name, value, limit)


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
