"""A plan of packing in any MLflow client: a data frame of requests -> when each would have its first token and its end.

Columns: `arrival` (seconds, from anywhere on), `prompt_tokens` and `output_tokens`. They are run together through the
scheduler that serves, in virtual time, on the profiled device's step times; so the answer is simulated, not measured. What
is forecast of a request is what the predictor said of the observed request that is most like it.
`predict(frame, params={"policy": "paged"})` chooses the policy.

MLflow runs this file, in the client's process and beside copies of `pliant` and `registry`; nothing of ours imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from pliant.errors import InputError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.simulated import simulate
from registry import codec


class PackingPlan(mlflow.pyfunc.PythonModel):  # type: ignore[misc]  # MLflow is not typed
    def load_context(self, context: Any) -> None:
        self.packing = codec.load(Packing, Path(context.artifacts["bundle"]))
        self.context = int((context.model_config or {})["context"])

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        policy = str((params or {}).get("policy", "default"))
        rules = rules_of(self.packing, self.context, policy)
        columns = (model_input[name] for name in ("arrival", "prompt_tokens", "output_tokens"))
        rows = list(zip(*columns, strict=True))
        prompts = [_prompt(self.packing, self.context, number, *row) for number, row in enumerate(rows)]
        lengths = {prompt.id: prompt.exact for prompt in prompts}
        fates = simulate(prompts, lengths, rules, self.packing.memory, self.packing.steps).fates
        return pd.DataFrame(
            {
                "first_token": [fate.first - fate.arrival for fate in fates],
                "seconds": [fate.ended - fate.arrival for fate in fates],
                "preemptions": [fate.preemptions for fate in fates],
            }
        )


def _prompt(
    packing: Packing, context: int, number: int, arrival: float, prompt_tokens: int, output_tokens: int
) -> Prompt:
    """Return row `number` as a prompt. Raises `InputError` for a request that the model or its memory cannot hold."""
    longest = min(context, packing.memory.pages * packing.memory.page_tokens)
    shortest = min(prompt_tokens, output_tokens)
    if not (shortest >= 1 and prompt_tokens + output_tokens <= longest and np.isfinite(arrival)):
        wanted = f"a finite arrival and at least 1 token each, together at most {longest}"
        raise InputError(f"row {number}", (float(arrival), int(prompt_tokens), int(output_tokens)), wanted)
    distance = np.abs(packing.prompt_tokens - prompt_tokens) + np.abs(packing.output_tokens - output_tokens)
    row = int(distance.argmin())
    forecast, bucket = tuple(packing.forecasts[row].tolist()), int(packing.buckets[row])
    limit, exact = longest - int(prompt_tokens), int(output_tokens)
    return Prompt(number, float(arrival), int(prompt_tokens), limit, forecast, bucket, exact=exact)


mlflow.models.set_model(PackingPlan())
