"""TEI's /tokenize and /decode: the tokens of texts as the encoder's tokenizer makes them, and the text of token ids.

They read no model: nothing waits for a device, and texts may be longer than the encoder reads.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.bins.answer import respond
from serving.bins.inputs import id_lists, prompt_name, texts
from serving.bins.request import Endpoint, TokensRequest
from serving.http import tei
from serving.http.api_errors import ApiError
from serving.http.large_body import checked
from serving.http.routing import read_fields
from serving.http.texts import clean

TOKENIZED_BYTES = 256 * 1024  # of all texts of a request in UTF-8; the answer is some 20 times as long


async def tokenize(request: Request, endpoint: Endpoint) -> Response:
    """Answer /tokenize with a list of tokens per text."""
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    inputs = await checked(request, _texts, fields.get("inputs"), endpoint.settings.max_texts)
    body = TokensRequest(task, inputs, tei.flag(fields, "add_special_tokens", True), prompt_name(fields))
    return await run_in_threadpool(respond, await endpoint.tokenize(body), {})


async def decode(request: Request, endpoint: Endpoint) -> Response:
    """Answer /decode with a text per list of token ids."""
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    lists = await checked(request, id_lists, "ids", fields.get("ids"), endpoint.settings.max_texts)
    skip_special = tei.flag(fields, "skip_special_tokens", True)
    return respond(await endpoint.decode(task, [item.ids for item in lists], skip_special), {})


def _texts(inputs: object, max_texts: int) -> tuple[str, ...]:
    """Return a text or a list of texts. Raises as `texts`, and `ApiError` (413) if they are too long together."""
    cleaned = (clean("inputs", inputs)[0],) if isinstance(inputs, str) else texts("inputs", inputs, max_texts)
    size = sum(len(text.encode()) for text in cleaned)
    if size > TOKENIZED_BYTES:
        message = f"inputs are {size} bytes together, but must be at most {TOKENIZED_BYTES} bytes"
        raise ApiError(413, "text_too_long", message, "inputs")
    return cleaned
