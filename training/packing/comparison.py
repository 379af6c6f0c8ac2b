"""Compares what packing's engine writes with what plain transformers writes, before a generator is used.

Transformers generates greedily after a short and a long prompt, the long one beyond every window, chunk and original
length of positions that the configuration names. The engine reads the same prompts and is made to take the same tokens,
each text alone, and both together with the long prompt in chunks. At every new token the logits are compared. So a token
that differs where transformers' own margin is within twice the tolerance is no difference.

Shape suffixes: B sequences that get a token, N tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import DTYPES, in_precision, load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from pliant.training.packing.architecture import SERVED

TOLERANCES: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}
"""The largest difference of a logit, as a share of the largest distance of one of transformers' from their mean."""
PROMPTS, WRITTEN = (4, 40), 16  # tokens of the prompts, and written after each; fewer where the context is shorter
LONGEST = 8192  # tokens: what a configuration changes beyond that is not reached
BEHIND, CHUNKS, PAGE = 8, 3, 16  # tokens behind a change, chunks of the long prompt beside the other, tokens of a page
BORDERS = ("window", "chunk", "original_max_position")  # parts of the keys that name the lengths of such changes


@dataclass(frozen=True, slots=True)
class Reference:
    """A text by transformers: the ids of the prompt, those written, and the logits by which each was chosen [N, V]."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]
    logits_NV: Tensor


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a text: by what share its logits differ, and which tokens are the likeliest of both."""

    number: int
    place: int
    share: float
    ours: int
    theirs: int


def compare(name: str, generator: Generator, device: str = "cpu") -> None:
    """Raise `InputError` unless the engine writes as the model of a folder or the hub, in the generator's precision.

    In 16 bits rounding alone may choose another expert, and with it other logits by far: a model of experts that differs
    there is judged in float32.
    """
    try:
        _compare(name, generator, generator.precision, device)
    except InputError:
        if generator.precision == "float32" or "experts" not in generator.config:
            raise
        _compare(name, in_precision(generator, "float32"), generator.precision, device)


def _compare(name: str, generator: Generator, stored: str, device: str) -> None:
    """Compare in the generator's precision. `stored`: the one to which its weights were rounded."""
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    model = auto.from_pretrained(name, dtype=DTYPES[stored]).eval().to(device)
    model = model if stored == generator.precision else model.float()
    kind = type(model).__name__
    with _named(f"{name}, whose {kind}"):
        texts = _references(model, generator.context)
        del model  # the engine has its own
        engine = ForcedEngine(generator, texts, device)
        for numbers, where in (((0,), "alone"), ((1,), "alone"), ((0, 1), "beside another text")):
            first = engine.difference(numbers)
            if first is not None:
                text = f"a text with a prompt of {len(texts[first.number].prompt)} tokens"
                tokens = (
                    f"logits differ by {first.share:.1%}, and its token is {first.ours}, transformers' {first.theirs}"
                )
                value = f"{name}, whose {kind} writes {text} otherwise {where}, from token {first.place} on ({tokens})"
                raise InputError("generator", value, "a model that the engine runs as transformers does")
        engine.close()


@contextmanager
def _named(subject: str) -> Iterator[None]:
    """Turn whatever running a model raises into one sentence that names it."""
    try:
        yield
    except InputError as error:
        if error.field == "generator":
            raise
        raise InputError(
            "generator", f"{subject} does not run in pages: {error.field} is {error.value}", SERVED
        ) from error
    except Exception as error:  # models raise all kinds for what they are not made for
        value = f"{subject} cannot be run by the engine, since one of its modules needs more than it is given"
        raise InputError("generator", value, SERVED) from error


def _references(model: Any, context: int) -> list[Reference]:
    config, draw = model.config.get_text_config(), torch.Generator().manual_seed(0)
    lengths = PROMPTS[0], max([PROMPTS[1], *(border + BEHIND for border in _borders(config.to_dict()))])
    texts = []
    for length in lengths:
        prompt = max(min(length, context - WRITTEN), 1)
        ids_1N = torch.randint(config.vocab_size, (1, prompt), generator=draw).to(model.device)
        options: dict[str, Any] = {
            "do_sample": False,
            "num_beams": 1,
            "eos_token_id": None,
            "pad_token_id": 0,
            **dict.fromkeys(("output_logits", "return_dict_in_generate"), True),
            "max_new_tokens": min(WRITTEN, context - prompt),
        }
        output = model.generate(ids_1N, attention_mask=torch.ones_like(ids_1N), **options)
        ids = output.sequences[0].tolist()
        texts.append(Reference(tuple(ids[:prompt]), tuple(ids[prompt:]), torch.cat(output.logits).float().cpu()))
    return texts


def _borders(values: Mapping[str, Any]) -> Iterator[int]:
    """Yield the lengths of text at which a configuration changes something, as far as texts get that long here."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _borders(value)
        elif type(value) is int and value <= LONGEST and any(word in key for word in BORDERS):
            yield value


class ForcedEngine(PagedEngine):
    """Takes the tokens of given texts, whatever it would choose, and compares its logits with theirs."""

    def __init__(self, generator: Generator, texts: Sequence[Reference], device: str) -> None:
        self._texts, self._differences, self._tolerance = texts, list[Difference](), TOLERANCES[generator.precision]
        pages = sum(-(-(len(text.prompt) + len(text.written)) // PAGE) for text in texts)
        tokens = sum(len(text.prompt) for text in texts)
        memory = Memory(pages, PAGE, step_tokens=tokens, sequences=len(texts))
        super().__init__(load_generator(generator, device), memory)

    def difference(self, numbers: Sequence[int]) -> Difference | None:
        """Run these texts; return the first difference."""
        left = {number: len(self._texts[number].prompt) for number in numbers}
        size = -(-max(left.values()) // (CHUNKS if len(numbers) > 1 else 1))
        for number in numbers:
            self.add(number, self._texts[number].prompt, len(self._texts[number].written))
        admitted = tuple(numbers)
        while self._sequences and not self._differences:
            chunks = tuple(Chunk(number, min(size, tokens)) for number, tokens in left.items() if tokens)
            self.carry_out(StepPlan(admitted=admitted, prefill_chunks=chunks))
            self.step()
            admitted, left = (), {number: max(tokens - size, 0) for number, tokens in left.items()}
        return next(iter(self._differences), None)

    def _choose(self, scores_BV: Tensor, sequences: list[Any]) -> list[int]:
        chosen = []
        for scores_V, sequence in zip(scores_BV.float().cpu(), sequences, strict=False):
            text, place = self._texts[sequence.id], len(sequence.tokens)
            wanted_V = text.logits_NV[place - len(text.prompt)]
            share = float((scores_V - wanted_V).abs().max() / (wanted_V - wanted_V.mean()).abs().max().clamp(min=1e-9))
            if not share <= self._tolerance:  # NaN is not
                tokens = int(scores_V.argmax()), int(wanted_V.argmax())
                self._differences.append(Difference(sequence.id, place, share, *tokens))
            chosen.append(text.written[place - len(text.prompt)])
        return chosen
