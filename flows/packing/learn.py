"""The stages of retraining of the packing system: observed outputs -> predictor trained further -> plan.

Outputs that a service has written (serving/packing/engine/observed.py says how) are read and checked here.

The held-out share of what was observed is chosen by the prompts' own digests, so that no night learns from a prompt that
another one is judged by. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

import pliant.training.packing.predictor
from pliant.errors import InputError
from pliant.flows.champions import Champion
from pliant.flows.packing.config import LengthsConfig, PackingFlowConfig
from pliant.flows.packing.stages import Observed, finish, requests_of
from pliant.flows.stage import Notes, Stage, StageResult
from pliant.jsonl import Torn, complete_lines
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER
from pliant.progress import Progress
from pliant.training import groups

Whole = Annotated[int, Field(strict=True, ge=1)]
Tokens = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Output:
    """One output; see the service's file for what the fields say."""

    prompt: str  # as the predictor read it
    prompt_tokens: Whole
    tokens: Whole
    finish: Literal["end", "string", "length"]
    limit: Whole
    forecast: Annotated[tuple[Tokens, ...], Field(min_length=len(QUANTILES), max_length=len(QUANTILES))]
    bucket: Annotated[int, Field(strict=True, ge=0)]
    prediction: str
    generator: str


OUTPUT = TypeAdapter(Output)


def read(path: Path, latest: int) -> tuple[Output, ...]:
    """Return the latest outputs, the oldest first, with those of the file that this one continues; () without a file.

    A last line without its end was left by a process that was killed, and is passed over; so is any other line that the
    service did not write whole, and the log says how many were. Raises `InputError` for a file that cannot be read.
    """
    outputs: list[Output] = []
    for file in (path.with_suffix(".1.jsonl"), path):
        if file.is_file():
            outputs += _read(file)
    return tuple(outputs[-latest:])


def _read(path: Path) -> Iterator[Output]:
    torn = Torn(path)
    for number, line in enumerate(complete_lines(path, "observed"), start=1):
        if line.strip():
            with torn.pass_over(number):
                yield _output(line, f"{path}, line {number},")
    torn.report("observed outputs")


def _output(line: str, where: str) -> Output:
    try:
        return OUTPUT.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if not first["loc"]:
            raise InputError(where, line[:60], f"a JSON object ({first['msg']})") from error
        value = "missing" if first["type"] == "missing" else first["input"]
        raise InputError(
            f"{where} {first['loc'][0]}", value, "as serving/packing/engine/observed.py writes it"
        ) from error


def usable_outputs(outputs: Sequence[Output], generator: str, context: int) -> tuple[Output, ...]:
    """Return the outputs that have this generator's own lengths.

    An output that its client's stop string ended, or a limit below the context, would have been longer: by how much nobody
    knows, so it is left out (training on it as it is would teach to forecast too little).
    """
    return tuple(
        output
        for output in outputs
        if output.generator == generator
        and (output.finish == "end" or (output.finish == "length" and output.prompt_tokens + output.limit >= context))
    )


def drift(outputs: Sequence[Output]) -> dict[str, float]:
    """Return how far predictions that came in time were off: shares of the outputs within, tokens beyond.

    `coverage.L`: of the outputs no longer than the forecast at L; `off`: mean absolute error of the median in the log;
    `over`, `under`: mean tokens by which the upper forecast was above or below.
    """
    used = [output for output in outputs if output.prediction == "predicted"]
    counts = {"predicted": float(len(used)), "outputs": float(len(outputs))}
    if not used:
        return counts
    forecast_NL = np.array([output.forecast for output in used])
    tokens_N = np.array([output.tokens for output in used], float)
    beyond_N = forecast_NL[:, UPPER] - tokens_N
    covered = {
        f"coverage.{level:g}": float(np.mean(tokens_N <= forecast_NL[:, at])) for at, level in enumerate(QUANTILES)
    }
    off = float(np.abs(np.log(tokens_N) - np.log(forecast_NL[:, MEDIAN])).mean())
    over, under = float(np.maximum(beyond_N, 0).mean()), float(np.maximum(-beyond_N, 0).mean())
    return counts | covered | {"off": off, "over": over, "under": under}


@dataclass(frozen=True, slots=True)
class LoadedChampion:
    """The champion whose predictor is to be trained further, with its models."""

    champion: Champion[Packing]
    generator: Generator
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class RetrainData:
    """What was observed: the outputs, and of them what counts."""

    name: str
    outputs: Sequence[Output]
    observed: Observed


@dataclass(frozen=True, slots=True)
class RetrainResults:
    """All stages' results. `drift`: how far the champion's predictions were off while they were used."""

    name: str
    lengths: StageResult[Observed]
    predictor: StageResult[Predictor]
    plan: StageResult[Packing]
    drift: dict[str, float]


def observed_of(outputs: Sequence[Output], loaded: LoadedChampion, config: LengthsConfig) -> Observed:
    """Return the outputs that count, those to fit in front."""
    packing, context = loaded.champion.artifact, loaded.generator.context
    usable = usable_outputs(outputs, packing.generator, context)
    fit = [output for output in usable if not is_held_out(output.prompt, config.held_out)]
    ordered = [*fit, *(output for output in usable if is_held_out(output.prompt, config.held_out))]
    tokens = np.array([output.tokens for output in ordered], np.int32)
    mark = sha256(tokens.tobytes())
    for output in ordered:
        mark.update(output.prompt.encode(errors="replace") + b"\0")
    return Observed(
        f"{packing.name}-observed",
        tuple(output.prompt for output in ordered),
        np.array([output.prompt_tokens for output in ordered], np.int32),
        tokens,
        float(np.mean([output.finish == "length" for output in ordered])) if ordered else 0.0,
        len(fit),
        f"sha256:{mark.hexdigest()}",
    )


def is_held_out(prompt: str, share: float) -> bool:
    """Whether a prompt belongs to the `share` of all prompts that is held out, by the digest of what it is compared by."""
    mark = sha256(groups.key(prompt)[0].encode(errors="replace")).digest()
    return int.from_bytes(mark[:4]) < share * 2**32


def keep_observed(observed: Observed, progress: Progress) -> tuple[Observed, Notes]:
    """Keep what was observed as a stage keeps its result."""
    progress(0, 1)
    return observed, {"limited": observed.limited}


def make_predictor(
    config: PackingFlowConfig, champion: LoadedChampion, lengths: StageResult[Observed], progress: Progress
) -> tuple[Predictor, Notes]:
    """Train the champion's predictor further, and judge both by what was observed and held out."""
    observed, former = lengths.load(), champion.predictor
    fit, held_out = observed.part(held_out=False), observed.part(held_out=True)
    predictor_config = replace(config.retrain.predictor, max_length=former.max_length)
    weight_R = pliant.training.packing.predictor.mispredicted(former, fit, config.retrain.weight)
    predictor = pliant.training.packing.predictor.retrain(
        former, fit, weight_R, predictor_config, progress, test=held_out, device=config.device
    )
    before = pliant.training.packing.predictor.judge(former, held_out)
    return predictor, {"judged": dict(predictor.metrics), "before": before, "wrong": float((weight_R != 1.0).mean())}


def make_plan(
    config: PackingFlowConfig,
    champion: LoadedChampion,
    lengths: StageResult[Observed],
    predictor: StageResult[Predictor],
    progress: Progress,
) -> tuple[Packing, Notes]:
    """Plan with the champion's memory and step times, with the requests observed last and what is now forecast of them."""
    requests = requests_of(lengths.load(), predictor.load())
    draft = replace(champion.champion.artifact, predictor=predictor.digest, **requests)
    planned, choice = finish(draft, champion.generator.context, config, progress)
    return planned, {"choice": asdict(choice)}


OBSERVED = Stage(
    "observed",
    Observed,
    keep_observed,
    lambda observed: {"data": observed.data, "fit": observed.fit},
    folder="packing/observed-{observed.name}",
    bar="{observed.name}: lengths",
    code=(observed_of, keep_observed),
)
PREDICTOR = Stage(
    "retrained predictor",
    Predictor,
    make_predictor,
    lambda config, champion: {"config": asdict(config.retrain), "predictor": champion.champion.artifact.predictor},
    folder="packing/retrained-{champion.champion.artifact.name}",
    bar="{config.name}: retrain the predictor",
)
PLAN = Stage(
    "plan anew",
    Packing,
    make_plan,
    lambda config, champion: {
        "plan": asdict(config.plan),
        "reference": asdict(config.reference),
        "champion": champion.champion.published.digest,
    },
    folder="packing/replanned-{champion.champion.artifact.name}",
    bar="{config.name}: plan",
)
