"""Artifacts of packing in an MLflow client: greedy completions, forecasts of lengths, and simulated plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pliant.errors import InputError
from pliant.packing import artifact
from pliant.packing.artifact import Generator, Packing
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import PredictorModel, in_precision, tokenizer_of
from pliant.packing.scheduling.reference import rules_of
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import simulate
from pliant.precision import usable_precision
from pliant.registry import codec
from pliant.registry.pyfunc import Predictor, Values

PAGE_TOKENS = 16
SEQUENCES = 8  # at a time


class Completions:
    """A data frame with `text` -> greedy completions, their tokens, and how they ended ("stop", "length").

    `text` is the prompt as the model is asked, with its chat template applied. `params={"max_tokens": 16}` bounds them.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.device = str(config.get("device", "cpu"))
        generator = codec.load(Generator, folder)
        self.generator = in_precision(generator, usable_precision(generator.precision, self.device))
        self.tokenizer = tokenizer_of(self.generator.tokenizer)

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:
        limit = int(params.get("max_tokens", 64))
        if limit < 1:
            raise InputError("max_tokens", limit, "at least 1")
        prompts = [tuple(self.tokenizer.encode(text).ids) for text in frame["text"]]
        pages = SEQUENCES * -(-self.generator.context // PAGE_TOKENS)
        completions = complete(self.generator, prompts, Memory(pages, PAGE_TOKENS), limit, device=self.device)
        texts = [each.tokens[:-1] if each.finished == "stop" else each.tokens for each in completions]
        return pd.DataFrame(
            {
                "completion": [self.tokenizer.decode(list(tokens)) for tokens in texts],
                "tokens": [len(each.tokens) for each in completions],
                "finished": [each.finished for each in completions],
            }
        )


class Forecasts:
    """A data frame with `text`, without a chat template's special tokens -> quantiles of the output's tokens.

    Columns `q0.05` to `q0.99`: tokens that so large a share of such outputs does not exceed; `bucket`: the upper bound of
    the likeliest of the published classes.
    """

    def __init__(self, folder: Path, config: Values) -> None:  # noqa: ARG002
        self.predictor = codec.load(artifact.Predictor, folder)
        self.model = PredictorModel.of(self.predictor)

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:  # noqa: ARG002
        predictions = self.model.predict(list(frame["text"]))
        columns: dict[str, list[float] | list[int]] = {
            f"q{level:g}": [float(prediction.tokens[at]) for prediction in predictions]
            for at, level in enumerate(self.predictor.levels)
        }
        return pd.DataFrame(columns | {"bucket": [prediction.bucket for prediction in predictions]})


class SimulatedPlan:
    """A data frame of `arrival` (seconds), `prompt_tokens`, `output_tokens` -> seconds to the first token and to the end.

    They run together through the scheduler that serves, in virtual time, on the profiled device's step times: simulated,
    not measured. A request's forecast is that of the observed request most like it. `params={"policy": "paged"}` chooses
    the policy.
    """

    def __init__(self, folder: Path, config: Values) -> None:
        self.packing, self.context = codec.load(Packing, folder), int(config["context"])

    def predict(self, frame: pd.DataFrame, params: Values) -> pd.DataFrame:
        rules = rules_of(self.packing, self.context, str(params.get("policy", "default")))
        rows = zip(*(frame[name] for name in ("arrival", "prompt_tokens", "output_tokens")), strict=True)
        prompts = [self._prompt(number, *row) for number, row in enumerate(rows)]
        lengths = {prompt.id: prompt.exact for prompt in prompts}
        fates = simulate(prompts, lengths, rules, self.packing.memory, self.packing.steps).fates
        return pd.DataFrame(
            {
                "first_token": [fate.first - fate.arrival for fate in fates],
                "seconds": [fate.ended - fate.arrival for fate in fates],
                "preemptions": [fate.preemptions for fate in fates],
            }
        )

    def _prompt(self, number: int, arrival: float, prompt_tokens: int, output_tokens: int) -> Prompt:
        """Return row `number`. Raises `InputError` for a request that the model or its memory cannot hold."""
        packing = self.packing
        longest = min(self.context, packing.memory.pages * packing.memory.page_tokens)
        shortest = min(prompt_tokens, output_tokens)
        if not (shortest >= 1 and prompt_tokens + output_tokens <= longest and np.isfinite(arrival)):
            wanted = f"a finite arrival and at least 1 token each, together at most {longest}"
            raise InputError(f"row {number}", (float(arrival), int(prompt_tokens), int(output_tokens)), wanted)
        distance = np.abs(packing.prompt_tokens - prompt_tokens) + np.abs(packing.output_tokens - output_tokens)
        row = int(distance.argmin())
        forecast, bucket = tuple(packing.forecasts[row].tolist()), int(packing.buckets[row])
        limit, exact = longest - int(prompt_tokens), int(output_tokens)
        return Prompt(number, float(arrival), int(prompt_tokens), limit, forecast, bucket, exact=exact)


KINDS: Mapping[str, type[Predictor]] = {
    Generator.KIND: Completions,
    artifact.Predictor.KIND: Forecasts,
    Packing.KIND: SimulatedPlan,
}
