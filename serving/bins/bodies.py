"""The bodies of requests and answers of the bins service, the same for all of its APIs, as models that parse them.

They follow text-embeddings-inference, OpenAI (embeddings) and what Jina and Cohere have in common (reranking), and document
the routes. Unknown fields are passed over. `deadline` is our own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Tag, WithJsonSchema

from pliant.serving.http.app import Artifact, CommonStatus, ServingDevice
from pliant.serving.http.bodies import BY_SHAPE, BY_TYPE, FIRST_ERROR, CleanText, Lenient, VisibleText, or_none, refused
from pliant.serving.http.tei import Cut, PredictBody

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
