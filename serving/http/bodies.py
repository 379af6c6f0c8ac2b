"""Bodies of requests: read and parsed as JSON, and checked by pydantic models, which document them too.

Bytes are counted as they arrive, so a chunked body cannot exceed the limit either. Small bodies are parsed at once,
large ones in a process: parsing holds the interpreter's lock, so that nothing else would run in the service, whichever
thread did it.

A value outside its limit is an `InputError` that names it by its path (`messages[0].role`), or an `ApiError` where the
field has a code of its own. pydantic's own sentences and union tags do not reach a client.

A text has at least one visible character and at most TEXT_BYTES in UTF-8. Each control character other than tab and line
ends becomes a space; a lone half of a surrogate pair, which UTF-8 cannot hold, is an error. How many tokens a model reads
is checked later, by each system.
"""

from __future__ import annotations

import json
import re
import reprlib
import socket
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import IO, Annotated, Any, ClassVar, ParamSpec, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request

from pliant.errors import InputError, PliantError, WorkerError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.settings import Settings
from pliant.serving.workers.helper_process import HelperProcess, help_out

SHOWN = 80  # characters of an invalid value that a message repeats
DIGITS = 18  # of content-length that are read: already far above any limit

INLINE_BYTES = 512 * 1024  # of a body of long texts that is parsed at once: about a millisecond
INLINE_VALUES = 2_000  # of a body that is parsed at once: about a millisecond
MAX_COST = 200_000  # of the values of a body: 1 each, a list or an object CONTAINER
CONTAINER = 20
PARSE_SECONDS = 5.0  # that parsing may take
HEAVY = "pliant.heavy"
"""Key of an ASGI scope: whether the body was large, so that checking its fields takes long too."""
P = ParamSpec("P")
T = TypeVar("T")


def content_type(request: Request) -> str:
    """Return the media type in lower case, without parameters; empty if missing."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_type(request: Request, accepted: tuple[str, ...], sentence: str) -> str:
    """Return the content type. Raises `ApiError` (415) unless it is `accepted`; `sentence` lists these for people.

    It is raised for a body that is compressed, too: only the Open Inference Protocol knows such ones (oip/request.py).
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"content-encoding is {encoding[:SHOWN]}, but must be identity: send the body as it is"
        headers = {"accept-encoding": "identity"}
        raise ApiError(415, "unsupported_encoding", message, "content-encoding", headers=headers)
    kind = content_type(request)
    if kind not in accepted:
        message = f"content-type is {kind[:SHOWN] or 'missing'}, but must be {sentence}"
        raise ApiError(415, "unsupported_media_type", message, "content-type")
    return kind


async def read_body(request: Request, max_bytes: int) -> list[bytes]:
    """Return the whole body, in the pieces in which it came. Raises `ApiError` (413) for more than `max_bytes`.

    They are not put together: that takes the event loop some 5 ms for ten megabytes, which are as many new pages.
    """
    announced = request.headers.get("content-length", "0")[:DIGITS]
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large(f"{announced} bytes", max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise too_large("longer", max_bytes)
    return chunks


def parse_value(body: bytes) -> Any:
    """Return the JSON value of a UTF-8 body. NaN and Infinity pass, and fail the check of their field.

    Raises `ApiError` (400) if it is not JSON, `InputError` for an object that has a field twice.
    """
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "malformed", f"body is not JSON: {str(error)[:SHOWN]}", "body") from None


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the fields of a JSON object. Raises `ApiError` (400) for any other value."""
    if not isinstance(value, dict):
        raise ApiError(400, "malformed", f"body is a JSON {type(value).__name__}, but must be an object", "body")
    return value


def shorten(value: object) -> str:
    """Return a value as a message shows it: at most `SHOWN` characters and three dots."""
    shown = reprlib.repr(value) if isinstance(value, dict | list) else repr(value)  # repr fails if nested too deep
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (name, times), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(shorten(name), f"given {times} times", "given once")
    return fields


def too_large(size: str, max_bytes: int) -> ApiError:
    """Return the error for a body of `size` that exceeds `max_bytes`."""
    return ApiError(413, "body_too_large", f"body is {size}, but must be at most {max_bytes} bytes", "body")


class BodyParser:
    """Parses the bodies of one service."""

    def __init__(self) -> None:
        self._process = HelperProcess("pliant.serving.http.bodies:main")

    async def parse(self, body: Sequence[bytes]) -> Any:
        """Return the JSON value of a body in pieces.

        Raises as `parse_value`, and `ApiError` for too many values or too much time.
        """
        if not is_large(body):
            return parse_value(b"".join(body))
        try:
            return await self._process.call(PARSE_SECONDS, body)
        except TimeoutError:
            raise ApiError(
                413, "body_too_large", f"body takes more than {PARSE_SECONDS:g} s to parse", "body"
            ) from None
        except WorkerError:
            raise ApiError(413, "body_too_large", "body takes too much memory to parse", "body") from None


def is_large(body: Sequence[bytes]) -> bool:
    """Whether parsing the body, which is in pieces, takes the event loop more than some milliseconds."""
    size = sum(map(len, body))
    if size <= INLINE_VALUES or size > INLINE_BYTES:
        return size > INLINE_BYTES
    return sum(piece.count(b",") + piece.count(b"[") + piece.count(b"{") for piece in body) > INLINE_VALUES


async def parse(request: Request, body: Sequence[bytes]) -> Any:
    """Return the JSON value of a request's body, which is in pieces. Raises as `BodyParser.parse`."""
    request.scope[HEAVY] = is_large(body)
    parser: BodyParser = request.app.state.parser
    return await parser.parse(body)


async def read_fields(request: Request, settings: Settings) -> Mapping[str, Any]:
    """Return the fields of a JSON body. Raises `ApiError` for a body that is no JSON object, or too large."""
    check_type(request, ("application/json",), "application/json")
    return as_object(await parse(request, await read_body(request, settings.max_body_bytes)))


async def checked(request: Request, check: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return `check(*arguments)`, called in a thread if the request's body is large. Raises what it raises."""
    if request.scope.get(HEAVY):
        return await run_in_threadpool(check, *arguments, **options)
    return check(*arguments, **options)


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Parse bodies until the parent closes the socket."""
    help_out(channel, incoming, _answer)


def _answer(body: bytes) -> Any:
    """Return the value of a body, or the error of one that is no JSON or has too many parts."""
    try:
        value = parse_value(body)
    except (ApiError, PliantError) as error:
        return error
    cost, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, list | dict):
            cost += CONTAINER + len(item)
            left += item.values() if isinstance(item, dict) else item
        if cost > MAX_COST:
            return ApiError(413, "body_too_large", "body has too many values", "body")
    return value


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
    async def of(cls, request: Request, settings: Settings) -> Self:
        """Return a request's body. Raises as `read` and `read_fields`."""
        return await checked(request, cls.read, await read_fields(request, settings))


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


TEXT_BYTES = 64 * 1024  # of one text in UTF-8
FIRST = 100  # characters of which nearly always one is visible
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Texts = tuple[tuple[str, str | None], ...]
"""One or more texts, or pairs of texts: the second of each is None where it is a single text."""


def check_count(name: str, texts: Sequence[object], maximum: int) -> None:
    """Raise `ApiError` (413) for more than `maximum` texts, `InputError` for none."""
    if len(texts) > maximum:
        message = f"{name} is a list of {len(texts)}, but must be at most {maximum}"
        raise ApiError(413, "too_many_texts", message, name)
    if not texts:
        raise InputError(name, "empty", "a list of at least one text")


def clean(name: str, text: str) -> str:
    """Return the text with a space for each control character. Raises `InputError` and `ApiError`."""
    try:
        return _clean(text)
    except PydanticCustomError as error:
        raise refusal(name, text, error.context or {}) from None


def cleaned(text: str) -> tuple[str, int]:
    """Return the text with a space for each control character, and how many these are."""
    return CONTROL.subn(" ", text)


def without_controls(text: str) -> str:
    """Return the text with a space for each control character."""
    return CONTROL.sub(" ", text)


def _checked(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = len(check_utf8(text))  # which says where the surrogate is
    if size > TEXT_BYTES:
        raise refused(f"at most {TEXT_BYTES} bytes", f"{size} bytes", 413, "text_too_long")
    if not (any(map(_is_visible, text[:FIRST])) or any(map(_is_visible, set(text)))):
        raise refused("a text with at least one visible character")
    return text


def _clean(text: str) -> str:
    return CONTROL.sub(" ", _checked(text))


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"


_DOCUMENTED = {
    "type": "string",
    "minLength": 1,
    "pattern": r"\S",
    "description": f"at least one visible character, at most {TEXT_BYTES} bytes of UTF-8",
}
VisibleText = Annotated[str, AfterValidator(_checked), WithJsonSchema(_DOCUMENTED)]
"""A text as the client wrote it."""
CleanText = Annotated[str, AfterValidator(_clean), WithJsonSchema(_DOCUMENTED)]
"""A text with a space for each control character."""
