"""A question as the first message of a conversation, put as a generator's own chat template puts it. Knows Jinja."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from pliant.errors import InputError
from pliant.packing.artifact import Generator

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def rendered(generator: Generator, tokenizer: Tokenizer, asks: Sequence[str]) -> list[str]:
    """Without a template as they are. Raises `InputError` for a template that cannot be read or refuses a user's message."""
    if not generator.chat_template:
        return list(asks)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {"raise_exception": _raise, "strftime_now": datetime.now(UTC).strftime}
    told = _special(generator, tokenizer)
    try:
        template = environment.from_string(generator.chat_template)
        return [
            template.render(messages=[{"role": "user", "content": ask}], add_generation_prompt=True, **told)
            for ask in asks
        ]
    except Exception as error:  # a template is a programme
        raise InputError("the generator's chat template", error, "one that takes a user's message") from error


def _special(generator: Generator, tokenizer: Tokenizer) -> dict[str, str]:
    """A template's names for special tokens; configurations give their ids."""
    config, found = json.loads(generator.config), {}
    for name in SPECIAL:
        told = config.get(f"{name}_id")
        id = told[0] if isinstance(told, list) and told else told
        found[name] = (tokenizer.id_to_token(id) or "") if isinstance(id, int) else ""
    return found


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
