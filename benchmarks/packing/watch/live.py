"""What watching costs a running service of packing: real HTTP requests to a small real language model on this machine.

The generator is the language model of 260,000 parameters in ../shared/data, which ends its texts by itself. The flow
observes its lengths, trains a small predictor, measures and plans as it does for any model; nothing of the model is trained,
which is why it takes about a minute. What is served, paged, forecast and counted is as with any other model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from benchmarks import places
from benchmarks.harness import Context, Measured, need
from benchmarks.places import ALPACA, SHARED
from benchmarks.watch import cost as watch_cost
from benchmarks.watch.cost import Watched, own_home
from flows.packing.champions import champion_artifacts
from flows.run import run_flow
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.request import Prompt
from serving.packing.engine.forecaster import Forecast
from serving.packing.engine.in_flight import InFlightOutput
from serving.packing.engine.watched import PackingWatch
from serving.packing.reply import Choice
from serving.packing.text import Writer
from serving.watch.seen import Seen
from training.packing import prompts

SYSTEM, NAME = "packing", "stories"
STORIES = SHARED / "models" / "stories260K"
TEMPERATURE = 0.7  # at which the lengths were observed
QUESTIONS, LONGEST = 256, 200  # of what is sent, and the most characters of each
OVERRIDES: Mapping[str, Any] = {
    "name": NAME,
    "generator": f"path:{STORIES}",
    "prompts": f"parquet:{ALPACA}",
    "lengths": {"requests": 120},
    "memory": {"pages": 1024},
    "predictor": {"width": 64, "layers": 1, "epochs": 2},
    "steps": {"sequences": (1, 8, 32), "fills": (0.1, 0.8), "prompts": (0.0, 0.5), "repeats": 3},
    "plan": {"levels": (1.0,), "patience": (1.5,)},
}
"""What a slow processor does in about a minute. How good the forecasts are does not matter for what watching costs."""


def cost(context: Context) -> Measured:
    """Measure what watching costs at full load. Raises `Skipped` where the model or the prompts are missing."""
    need(places.missing(STORIES, ALPACA))
    with own_home(SYSTEM) as project, context.stage("cost of watching packing") as progress:
        if NAME not in champion_artifacts(project):
            run_flow("packing", None, OVERRIDES)
        watched = Watched(SYSTEM, "/v1/chat/completions", _bodies(), "tokens", _counting, _tokens, seconds=2.5)
        return watch_cost.measure(watched, context.full, progress)


def _bodies() -> list[bytes]:
    """Return requests with seeds of their own, so that both services make the same texts in the same order."""
    _, loaded = prompts.load(f"parquet:{ALPACA}")
    texts = [text for text in loaded if len(text) <= LONGEST][:QUESTIONS]
    return [
        json.dumps(
            {
                "model": NAME,
                "messages": [{"role": "user", "content": text}],
                "temperature": TEMPERATURE,
                "seed": seed,
                "deadline": 60.0,
            }
        ).encode()
        for seed, text in enumerate(texts)
    ]


def _tokens(status: Any) -> float:
    """Return the tokens that the engine has made since its start: outputs are long, and few end in a turn."""
    return float(next(model["engine"]["tokens"] for model in status["models"] if model["name"] == NAME))


def _counting(seen: Seen, burn_in: int) -> Callable[[int], None]:
    """Return what counts outputs that end by themselves, with forecasts of the predictor: all of the three streams."""
    watch, rng = PackingWatch(seen, burn_in), np.random.default_rng(0)
    lengths = np.maximum(1, rng.lognormal(4.5, 0.6, 1000).astype(int))
    choices = [_choice(number, int(length)) for number, length in enumerate(lengths)]
    return lambda number: watch.count(NAME, choices[number % len(choices)])


def _choice(number: int, length: int) -> Choice:
    quantiles = (20.0, 40.0, 60.0, 90.0, 130.0, 190.0, 240.0, 350.0)
    prompt = Prompt(number, 0.0, 20 + number % 60, 400, quantiles)
    unread = cast(Writer, None)  # the watch does not look at an output's text
    output = InFlightOutput(Submission(prompt, (1,) * prompt.tokens), unread, frozenset(), lambda _output: None)
    output.tokens, output.finish = [1] * length, "stop"
    return Choice(number, output, Forecast(quantiles, 190, "predicted"), "", "")
