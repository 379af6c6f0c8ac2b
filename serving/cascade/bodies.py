"""The body of /predict, as a model that parses and documents it.

Its texts are checked by serving/http/texts.py; the answer says how many of their characters were cleaned. A text with more
tokens than a model reads is truncated later, and the answer says so.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Tag

from pliant.errors import InputError
from pliant.serving.http.bodies import BY_TYPE, Body, Closed, Utility
from pliant.serving.http.oip.models import Parameters
from pliant.serving.http.texts import VisibleText, check_count

EXAMPLES: Any = {
    "one": {"summary": "One text", "value": {"task": "reviews", "text": "A film to remember.", "deadline": 0.5}},
    "several": {"summary": "Several, with targets", "value": {"texts": ["Good.", "Bad."], "accuracy": 0.9}},
    "pair": {"summary": "A pair", "value": {"task": "paraphrase", "text": ["It rains.", "Rain is falling."]}},
}


class TextObject(Closed):
    text: VisibleText
    text_pair: VisibleText | None = None


Pair = Annotated[list[VisibleText], Field(min_length=2, max_length=2)]
AnyText = Annotated[
    Annotated[VisibleText, Tag("<str>")] | Annotated[Pair, Tag("<list>")] | Annotated[TextObject, Tag("<dict>")],
    BY_TYPE,
]
"""A text, a pair in a list, or an object with text and text_pair."""


class Targets(Body):
    """What a text's answer must reach, which a candidate is chosen by unless it is named."""

    accuracy: float | None = Field(None, ge=0, le=1, description="the least promised accuracy")
    latency: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="at most, in seconds, alone on the device"
    )
    candidate: str | None = Field(None, description="name of a candidate, instead of accuracy and latency")
    utility: Utility = 1.0

    def check_candidate(self) -> None:
        """Raise `InputError` for a candidate beside targets."""
        if self.candidate is not None and (self.accuracy is not None or self.latency is not None):
            raise InputError("candidate", "given together with accuracy or latency", "given without them")


class PredictBody(Closed, Targets):
    task: str | None = Field(None, description="a task that GET /tasks lists; optional if only one is served")
    text: AnyText | None = None
    text_pair: VisibleText | None = None
    texts: list[AnyText] | None = Field(
        None, min_length=1, description="instead of text; at most 256 by default", fail_fast=True
    )
    deadline: float = Field(  # type: ignore[assignment]  # null is no deadline
        None, gt=0, description="seconds from arrival; default: the longest"
    )

    def parts(self, maximum: int) -> list[tuple[str, str | None]]:
        """Return the texts and pairs. Raises `InputError`, and as `check_count`."""
        if self.texts is not None:
            for other in ("text", "text_pair"):
                if other in self.model_fields_set:
                    raise InputError("texts", f"given together with {other}", "given without it")
            check_count("texts", self.texts, maximum)
            return [_parts(text) for text in self.texts]
        if self.text is None:
            raise InputError("text", "missing", "given, or texts as a list")
        if self.text_pair is None:
            return [_parts(self.text)]
        if not isinstance(self.text, str):
            raise InputError("text", "no single text", "a text, as text_pair is given")
        return [(self.text, self.text_pair)]


def _parts(text: str | list[str] | TextObject) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    return (text.text, text.text_pair) if isinstance(text, TextObject) else (text[0], text[1])


class OipParameters(Parameters, Targets):
    truncate: bool = True
    raw_scores: bool = False
