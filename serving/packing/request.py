"""The requests of the packing service, the same for all of its routes, and the endpoint that these call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pliant.packing.chat import Message
from pliant.packing.engine.submission import Sampling
from pliant.packing.tools import Tool
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http import routing
from pliant.serving.packing.reply import Reply


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The tools that an answer may call. `forced`: it must be calls of them, and nothing else."""

    tools: tuple[Tool, ...]
    callable: tuple[Tool, ...]  # those that it may call
    forced: bool
    parallel: bool  # it may call several


NO_TOOLS = ToolRequest((), (), forced=False, parallel=True)


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A prompt: a text, token ids or a conversation. `name` is its field in errors.

    `special`: the tokenizer adds its special tokens; None: it does, unless the chat template writes them itself.
    `template`: further variables of the chat template.
    """

    name: str
    text: str = ""
    ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    special: bool | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A checked request: prompts for one model, each of which is continued `best_of` times; `choices` are answered."""

    model: str | None  # None: the only one
    prompts: tuple[PromptInput, ...]
    choices: int
    best_of: int
    max_tokens: int | None  # of each output; None: as many as the context leaves; 0: only the prompt is answered
    max_tokens_name: str  # its field in errors
    sampling: Sampling  # the seed is that of the first choice
    tools: ToolRequest  # that its answer may call
    form: str  # the field that gives the outputs' grammar, in errors
    logprobs: bool  # the answer has log-probabilities
    stops: tuple[str, ...]
    stream: bool
    usage: bool  # a stream ends with the numbers of tokens
    continuous_usage: bool  # so does each of its chunks
    echo: bool  # the answer repeats the prompt
    deadline: float | None  # seconds from arrival; None: none
    ttft: float | None  # target of the seconds to the first token; None: the service's
    tpot: float | None  # target of the seconds a token from then on; None: the service's
    utility: float  # of an output in time
    priority: int  # lower goes first
    offline: bool  # one of a batch of requests that is needed as a whole
    ignored: tuple[str, ...] = ()  # names of unknown fields
    client: Client = ANYBODY

    @property
    def chat(self) -> bool:
        """Whether it is a conversation."""
        return bool(self.prompts[0].messages)

    @property
    def silent(self) -> bool:
        """Whether nothing is to be generated, and only the prompt is answered."""
        return self.max_tokens == 0

    @property
    def known_length(self) -> bool:
        """Whether nothing ends its outputs before their limit."""
        return self.silent or (self.sampling.ignore_eos and not (self.stops or self.sampling.stop_tokens))


class Limits(routing.Limits, Protocol):
    """The settings that limit requests."""

    @property
    def strict_fields(self) -> bool: ...


class Endpoint(routing.Endpoint, Protocol):
    """What the routes of packing call."""

    @property
    def settings(self) -> Limits: ...
    @property
    def ready(self) -> bool: ...
    def models(self) -> Mapping[str, int]: ...
    def context(self, model: str | None) -> int: ...
    def defaults(self, model: object) -> Mapping[str, float]: ...
    async def tokenize(self, model: str | None, prompt: PromptInput) -> Sequence[tuple[int, str]]: ...
    async def detokenize(self, model: str | None, ids: Sequence[int]) -> str: ...
    async def open(self, request: GenerationRequest, arrived: float) -> Reply: ...
    async def status(self) -> dict[str, Any]: ...
