"""Renders a question as the first message of a conversation, as the service does (pliant/packing/chat.py)."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.artifact import Generator
from pliant.packing.chat import template_of


def rendered(generator: Generator, tokenizer: Tokenizer, asks: Sequence[str]) -> list[str]:
    """Return the questions in the generator's template, or as they are where it has none.

    Raises `InputError` for a template that cannot be read or refuses a user's message.
    """
    try:
        template = template_of(generator, tokenizer)
        return [template.render([{"role": "user", "content": ask}]) for ask in asks]
    except (ArtifactError, InputError) as error:
        raise InputError("the generator's chat template", error, "one that takes a user's message") from error
