"""The bodies, requests and answers of the bins service, the same for all of its APIs, as models that parse them.

They follow text-embeddings-inference, OpenAI (embeddings) and what Jina and Cohere have in common (reranking), and document
the routes. Unknown fields are passed over. `deadline` is our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Tag, WithJsonSchema
from starlette.requests import Request

from pliant.serving.bins.messages import Output
from pliant.serving.bins.reading import Token as TextToken
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import AnyEndpoint
from pliant.serving.http.bodies import (
    BY_SHAPE,
    BY_TYPE,
    FIRST_ERROR,
    CleanText,
    Lenient,
    VisibleText,
    check_count,
    deadline,
    header_number,
    or_none,
    refused,
    request_body,
    without_controls,
)
from pliant.serving.http.schemas import (
    Artifact,
    CommonStatus,
    OpenaiErrorAnswer,
    OpenaiModels,
    Score,
    ServingDevice,
    TeiError,
    errors,
    route_options,
)
from pliant.serving.http.tei import Cut, PredictBody

DEADLINE = "x-pliant-deadline"


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A text as token ids of the encoder's own tokenizer. Special tokens are there only if the client put them there."""

    name: str  # in errors
    ids: tuple[int, ...]  # at least one, from 0 on


Input = tuple[str, str | None] | TokenIds
"""A text (its second is None), a pair of texts, or token ids."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Texts for one stream. Each is scheduled by itself; all get outputs, or the request fails."""

    task: str
    texts: Sequence[Input]
    deadline: float | None = None  # seconds from arrival; None: the stream's SLO
    truncate: bool = True  # or a text that is too long is an error
    left: bool = False  # truncate at the beginning
    client: Client = ANYBODY
    prompt_name: str | None = None  # of the encoder's prompt that is put before each single text
    unpooled: bool = False  # an embedding [N, H] for each token instead of one


@dataclass(frozen=True, slots=True)
class TokensRequest:
    """Texts whose tokens are wanted, for one stream."""

    task: str
    texts: Sequence[str]
    special: bool = True  # with the special tokens that the tokenizer adds
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One output per text, in order, and how they came about."""

    encoder: Encoder
    version: int  # of the stream
    outputs: Sequence[Output]
    lengths: Sequence[int]  # tokens of each text
    bins: Sequence[str]  # length x batch of the runtime that ran it, or "dynamic"
    queue_seconds: float  # the longest
    run_seconds: float  # the longest

    @property
    def headers(self) -> dict[str, str]:
        """Return the response headers that tell how the answer came about."""
        return {
            "x-pliant-length": ",".join(map(str, self.lengths)),
            "x-pliant-bin": ",".join(self.bins),
            "x-pliant-queue-seconds": f"{self.queue_seconds:.6f}",
            "x-pliant-run-seconds": f"{self.run_seconds:.6f}",
        }


class Encoder(Protocol):
    """An encoder, as far as requests and answers depend on it."""

    @property
    def head(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def pooling(self) -> str: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def max_length(self) -> int: ...
    @property
    def prompts(self) -> Mapping[str, str]: ...


def is_reranker(encoder: Encoder) -> bool:
    """Whether the encoder gives one score for a pair of texts: it classifies, and has a single class."""
    return encoder.head == "classification" and len(encoder.classes) < 2


class Endpoint(AnyEndpoint, Protocol):
    """What the routes of bins call."""

    def tasks(self) -> Sequence[str]: ...
    def select(self, name: object, field: str, head: str | None) -> str: ...
    def describe(self, task: str) -> Encoder: ...
    def version(self, task: str) -> int: ...
    def status(self) -> dict[str, Any]: ...
    async def run(self, request: TextRequest, arrived: float) -> Answer: ...
    async def tokenize(self, request: TokensRequest) -> list[list[TextToken]]: ...
    async def decode(self, task: str, texts: Sequence[Sequence[int]], skip_special: bool) -> list[str]: ...


def read_deadline(request: Request, value: float | None, maximum: float) -> float | None:
    """Return the deadline in seconds from the body, or else from the header. Raises `InputError`."""
    if value is not None:
        return deadline(value, maximum)
    seconds = header_number(request.headers, DEADLINE)
    return None if seconds is None else deadline(seconds, maximum, DEADLINE)


ID_LIMIT = 2**32  # token ids are below it
TOKENIZED_BYTES = 256 * 1024  # of all texts of a request in UTF-8; the answer is some 20 times as long


def _token_ids(value: list[Any]) -> list[int]:
    if not value or set(map(type, value)) != {int} or min(value) < 0 or max(value) >= ID_LIMIT:
        raise refused(f"a list of at least one token id from 0 to {ID_LIMIT - 1}")
    return value


_ID = {"type": "integer", "minimum": 0, "maximum": ID_LIMIT - 1}
_IDS = {"type": "array", "items": _ID, "minItems": 1, "description": "token ids of the encoder's own tokenizer"}
Ids = Annotated[list[Any], AfterValidator(_token_ids), WithJsonSchema(_IDS)]
Embeddable = Annotated[Annotated[CleanText, Tag("<str>")] | Annotated[Ids, Tag("<list>")], BY_TYPE]
Texts = Annotated[list[CleanText], FIRST_ERROR]
Inputs = Annotated[
    Annotated[CleanText, Tag("<str>")]
    | Annotated[Ids, Tag("<ids>")]
    | Annotated[list[Embeddable], FIRST_ERROR, Tag("<list>")],
    BY_SHAPE,
]
"""A text, token ids, or a list of these."""
Limit = Annotated[
    float, Field(gt=0, description="seconds from arrival; else the header x-pliant-deadline, else the stream's SLO")
]
Dimensions = Annotated[
    int,
    Field(
        ge=1,
        description="width of the embeddings: their first numbers, normalised after that; at most the encoder's own width",
    ),
]
PromptName = Annotated[
    str,
    Field(
        description="name of a prompt of the model's config_sentence_transformers.json, which is put before each text"
    ),
]


class EmbedAllBody(Cut):
    inputs: Inputs = Field(description="a text, token ids, or a list of these", examples=["What is Deep Learning?"])
    prompt_name: PromptName | None = None
    deadline: Limit | None = None


class EmbedBody(EmbedAllBody):
    normalize: bool = True
    dimensions: Dimensions | None = None


class ClassifyBody(PredictBody):
    deadline: Limit | None = None


class RerankBody(Cut):
    query: CleanText
    texts: Annotated[list[VisibleText], FIRST_ERROR]
    raw_scores: bool = Field(False, description="logits instead of their sigmoid")
    return_text: bool = False
    deadline: Limit | None = None


class DocumentBody(Lenient):
    text: VisibleText


AnyDocument = Annotated[Annotated[VisibleText, Tag("<str>")] | Annotated[DocumentBody, Tag("<dict>")], BY_TYPE]


class RerankDocumentsBody(Lenient):
    query: CleanText
    documents: Annotated[list[AnyDocument], FIRST_ERROR]
    model: str | None = Field(None, description="the stream; optional if only one reranks")
    top_n: int | None = Field(None, ge=1, description="results in the answer; default: all")
    return_documents: bool = True
    deadline: Limit | None = None


class Sentences(Lenient):
    source_sentence: CleanText
    sentences: Texts


class SimilarityParameters(Cut):
    prompt_name: PromptName | None = None


class SimilarityBody(Lenient):
    inputs: Sentences
    parameters: Annotated[SimilarityParameters | None, BeforeValidator(or_none)] = None
    deadline: Limit | None = None


class TokenizeBody(Lenient):
    inputs: Annotated[Annotated[CleanText, Tag("<str>")] | Annotated[Texts, Tag("<list>")], BY_TYPE] = Field(
        description=f"a text or a list; together at most {TOKENIZED_BYTES} bytes"
    )
    add_special_tokens: bool = True
    prompt_name: PromptName | None = None


class DecodeBody(Lenient):
    ids: Annotated[Annotated[Ids, Tag("<ids>")] | Annotated[list[Ids], FIRST_ERROR, Tag("<list>")], BY_SHAPE]
    skip_special_tokens: bool = True


class OpenaiEmbeddingsBody(Lenient):
    input: Inputs = Field(description="a text, token ids, or a list of these", examples=["What is Deep Learning?"])
    model: str | None = Field(None, description="the stream; optional if only one gives embeddings")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions | None = None
    deadline: Limit | None = None


def inputs_of(name: str, value: str | list[Any], maximum: int) -> tuple[Input, ...]:
    """Return the texts and token ids of a field. Raises as `check_count`."""
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        return (_input(name, value),)
    check_count(name, value, maximum)
    return tuple(_input(f"{name}[{index}]", item) for index, item in enumerate(value))


def _input(name: str, value: str | list[int]) -> Input:
    return (value, None) if isinstance(value, str) else TokenIds(name, tuple(value))


def texts_of(body: TokenizeBody, maximum: int) -> list[str]:
    """Return the texts to tokenize. Raises as `check_count`, and `ApiError` (413) if they are too long together."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    check_count("inputs", texts, maximum)
    size = sum(len(text.encode()) for text in texts)
    if size > TOKENIZED_BYTES:
        message = f"inputs are {size} bytes together, but must be at most {TOKENIZED_BYTES} bytes"
        raise ApiError(413, "text_too_long", message, "inputs")
    return texts


def pairs(query: str, name: str, documents: list[Any], maximum: int) -> list[tuple[str, str | None]]:
    """Return the query with each document. Raises as `check_count`."""
    check_count(name, documents, maximum)
    return [(query, without_controls(text_of(document))) for document in documents]


def text_of(document: str | DocumentBody) -> str:
    return document if isinstance(document, str) else document.text


class OpenaiEmbedding(BaseModel):
    object: str = "embedding"
    index: int
    embedding: list[float] | str = Field(description="numbers, or base64 of little-endian 32-bit floats")


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class OpenaiEmbeddings(BaseModel):
    object: str = "list"
    data: list[OpenaiEmbedding]
    model: str
    usage: Usage


class Rank(BaseModel):
    index: int = Field(description="of the text in the request")
    text: str | None = Field(default=None, description="if return_text is true")
    score: float


class Document(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: int = Field(description="of the document in the request")
    relevance_score: float = Field(description="from 0 to 1")
    document: Document | None = Field(default=None, description="unless return_documents is false")


class Reranking(BaseModel):
    id: str
    object: str = "list"
    model: str
    results: list[RerankResult] = Field(description="the best first")
    usage: Usage


class Token(BaseModel):
    id: int
    text: str
    special: bool
    start: int | None = Field(description="its first byte in the UTF-8 of prompt and text; null for a special token")
    stop: int | None = Field(description="the byte behind its last")


class Stream(BaseModel):
    name: str
    version: int
    digest: str
    encoder: Artifact
    head: str
    classes: list[str]
    max_length: int = Field(description="tokens of a text that are read")
    slo: float = Field(description="deadline in seconds from arrival, for requests without one")
    device: str
    precision: str = Field(description="of its runtimes: float32, bfloat16 or float16")
    engine: str
    bins: list[str] = Field(description="length x batch of each runtime; dynamic: any length up to the longest")
    seconds: list[float] = Field(description="measured seconds of one launch, for each runtime except the dynamic one")


class Status(CommonStatus):
    workers: int
    devices: list[ServingDevice] = Field(description="one for each worker")
    least_workers: int = Field(description="the fewest workers in use at low load")
    pool: str
    policy: str
    dispatch: str
    placement: str
    streams: list[Stream]


_ROUTES: Mapping[str, tuple[str, Any, Any]] = {
    "/embed": (
        "Embeddings of one or many texts, as text-embeddings-inference gives them",
        list[list[float]],
        EmbedBody,
    ),
    "/embed_all": ("An embedding of each token of one or many texts", list[list[list[float]]], EmbedAllBody),
    "/embed_sparse": ("Refused with 424: no encoder that is served has the pooling of SPLADE", None, EmbedAllBody),
    "/predict": (
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        ClassifyBody,
    ),
    "/rerank": ("Order texts by how well they fit a query, as text-embeddings-inference does", list[Rank], RerankBody),
    "/similarity": (
        "Cosines between the embedding of a sentence and those of others",
        list[float],
        SimilarityBody,
    ),
    "/tokenize": ("The tokens of one or many texts", list[list[Token]], TokenizeBody),
    "/decode": ("The text of one or many lists of token ids", list[str], DecodeBody),
    "/info": ("The model, as text-embeddings-inference describes it", dict[str, Any], None),
    "/health": ("Whether the service can answer", None, None),
    "/v1/embeddings": ("Embeddings of one or many texts, as OpenAI gives them", OpenaiEmbeddings, OpenaiEmbeddingsBody),
    "/v1/rerank": (
        "Order documents by how well they fit a query, as Jina and Cohere do",
        Reranking,
        RerankDocumentsBody,
    ),
    "/v2/rerank": ("The same as /v1/rerank", Reranking, RerankDocumentsBody),
    "/v1/models": ("The streams, as OpenAI lists models", OpenaiModels, None),
}
"""Summary, answer and body of each route."""
_STATUSES: Mapping[str, tuple[int, ...]] = {"/info": (404, 422), "/health": (404, 503), "/v1/models": ()}
_DEADLINE = {
    "name": "x-pliant-deadline",
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"},
}


def options_of(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    own = path.removeprefix("/{task}")
    summary, answer, body = _ROUTES[own]
    openai = own.startswith(("/v1", "/v2"))
    responses = errors(
        *_STATUSES.get(own, (400, 404, 413, 415, 422, 424, 429, 503)), model=OpenaiErrorAnswer if openai else TeiError
    )
    tag = "openai" if openai else "text-embeddings-inference"
    options = route_options(path, summary, tag, answer, responses, body and request_body(body))
    if body is not None and "deadline" in body.model_fields:
        options["openapi_extra"]["parameters"].append(_DEADLINE)
    return options
