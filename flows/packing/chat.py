"""A question as the first message of a conversation, put as the service puts it (pliant/packing/chat.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.artifact import Generator
from pliant.packing.chat import ChatTemplate, special_tokens


def rendered(generator: Generator, tokenizer: Tokenizer, asks: Sequence[str]) -> list[str]:
    """Without a template as they are. Raises `InputError` for a template that cannot be read or refuses a user's message."""
    try:
        template = ChatTemplate(generator.chat_template, special_tokens(json.loads(generator.config), tokenizer))
        return [template.render([{"role": "user", "content": ask}]) for ask in asks]
    except (ArtifactError, InputError) as error:
        raise InputError("the generator's chat template", error, "one that takes a user's message") from error
