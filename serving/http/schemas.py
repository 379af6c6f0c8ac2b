"""What several systems' questions and answers look like, for their OpenAPI pages alone; nothing is parsed with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from serving.http.texts import TEXT_BYTES

TEXT = {"type": "string", "description": f"at least one visible character, at most {TEXT_BYTES} bytes of UTF-8"}
PAIR = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2, "description": "a pair of texts"}
BATCH = {"type": "array", "items": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2}}
CUT: Mapping[str, Any] = {
    "truncate": {"type": "boolean", "nullable": True, "default": True},
    "truncation_direction": {"type": "string", "enum": ["Left", "Right"], "default": "Right"},
}
PARAMETERS = {
    "type": "object",
    "description": "of Hugging Face's inference API: top_k, function_to_apply; the answer is then one list deeper",
}


class Artifact(BaseModel):
    version: int
    digest: str


class Refresh(BaseModel):
    """The last look at what the alias points to."""

    outcome: str = Field(description="unchanged, changed, held (does not fit together, yet) or failed")
    message: str
    changed: dict[str, int] = Field(description="registered model -> version, of what was taken up")


class Error(BaseModel):
    code: str
    field: str | None = Field(description="the part of the request that is at fault, if one is")
    message: str = Field(description="a sentence naming the field, the value and the limit")


class ErrorAnswer(BaseModel):
    error: Error


class Score(BaseModel):
    score: float
    label: str


class TeiError(BaseModel):
    error: str
    error_type: str


class OpenaiError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenaiErrorAnswer(BaseModel):
    error: OpenaiError


class OpenaiModel(BaseModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str


class OpenaiModels(BaseModel):
    object: str = "list"
    data: list[OpenaiModel]


def object_body(required: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `requestBody` of a route that takes a JSON object."""
    schema = {"type": "object", "required": [required], "properties": fields}
    return {"required": True, "content": {"application/json": {"schema": schema}}}
