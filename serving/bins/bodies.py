"""The bodies that the bins service takes, as models that parse and document them.

They follow text-embeddings-inference, OpenAI (embeddings) and what Jina and Cohere have in common (reranking). Unknown
fields are passed over. `deadline` is our own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, WithJsonSchema

from pliant.serving.bins.request import Input, TokenIds
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import BY_SHAPE, BY_TYPE, FIRST_ERROR, Lenient, or_none, refused
from pliant.serving.http.tei import Cut, PredictBody
from pliant.serving.http.texts import CleanText, VisibleText, check_count, without_controls

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


Document = Annotated[Annotated[VisibleText, Tag("<str>")] | Annotated[DocumentBody, Tag("<dict>")], BY_TYPE]


class RerankDocumentsBody(Lenient):
    query: CleanText
    documents: Annotated[list[Document], FIRST_ERROR]
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
