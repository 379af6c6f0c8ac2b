"""What the packing flows publish: metrics, figures and reports, and the registered models.

Three registered models a name: generator, predictor and plan; the plan's version names those of the others. Knows no
Prefect and no MLflow.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binomtest

from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.packing.champions import GENERATOR, ORIGIN, PREDICTOR, Record, origin_of
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.learn import LoadedChampion, RetrainResults
from pliant.flows.packing.plan import Choice, Pace, PolicyFigures, describe
from pliant.flows.packing.stages import ModelResults
from pliant.flows.release import Publication, commit, metric
from pliant.flows.stage import Notes, StageResult, noted
from pliant.flows.trained import described
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.engine.model import LINEAR
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER
from pliant.registry.mlflow_store import Run
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.registry.package import Package
from pliant.registry.releases import figure, table
from pliant.training.packing.predictor import saving

matplotlib.use("Agg")

LOWER = QUANTILES.index(0.1)
GREY = "#6b7686"
PROMPTS = ("Summarise: Return the sorted array.", "What kind of thing is it? Raised when a file is lost.")
PLAN = "pliant.plan"
"""Tag of a plan's version: in a sentence, its figures in the simulator beside on-demand paging."""


def register(published: Publication, config: PackingFlowConfig, model: ModelResults) -> list[str]:
    """Log and register a model's generator, predictor and plan, and return the names of their models in this order."""
    run, predictor = published.run, model.predictor.load()
    run.dataset(model.name, predictor.data, model.name)
    stages: dict[str, StageResult[Any]] = {
        "generator": model.generator,
        "lengths": model.lengths,
        "predictor": model.predictor,
        "steps": model.steps,
    }
    notes = {name: dict(result.notes) for name, result in stages.items()}
    run.document("stages", notes)
    seconds = {f"seconds.{name}": float(noted.get("seconds", 0.0)) for name, noted in notes.items()}
    run.metrics(seconds | predictor_metrics(predictor))
    log_plan(run, model.plan.load(), noted(Choice, model.plan.notes, "choice"))
    if "pace" in model.plan.notes:  # not in a result that an earlier release has cached
        pace = noted(Pace, model.plan.notes, "pace")
        run.metrics(pace.metrics())
        run.document("pace", {"told": pace.describe()})
    generator, result = model.generator.load(), model.generator
    package = lambda: generator_package(model.name, generator, result.folder, result.notes)  # noqa: E731
    version = published.register(PACKING_GENERATOR + model.name, result.digest, package)
    record = Record(config.memory, config.steps, config.plan, config.reference, config.threads)
    names = _register_plan(published, record, (generator, version), model.predictor, model.plan)
    return [PACKING_GENERATOR + model.name, *names]


def register_retrained(published: Publication, loaded: LoadedChampion, results: RetrainResults) -> list[str]:
    """Log and register a predictor that was trained further, and its plan, as `register` does.

    Logged is how far predictions were off in service, and the predictor before and after.
    """
    run, predictor, champion = published.run, results.predictor.load(), loaded.champion
    run.dataset(f"{results.name}-observed", predictor.data, results.name)
    run.document("predictor", dict(results.predictor.notes))
    run.metrics({f"observed.{name}": value for name, value in results.drift.items()} | predictor_metrics(predictor))
    log_plan(run, results.plan.load(), noted(Choice, results.plan.notes, "choice"))
    generator = loaded.generator, champion.version(GENERATOR)
    remembered, origin = champion.record(Record), origin_of(champion)
    return _register_plan(published, remembered, generator, results.predictor, results.plan, origin)


def _register_plan(
    published: Publication,
    record: Record,
    generator: tuple[Generator, int],
    predictor: StageResult[Predictor],
    plan: StageResult[Packing],
    origin: str = "",
) -> list[str]:
    """Register a predictor and then the plan made with it.

    `generator`: with the version of its model; `origin`: digest of the plan that this one descends from, if any.
    """
    packing, trained = plan.load(), predictor.load()
    names = [PACKING_PREDICTOR + packing.name, PACKING_PREFIX + packing.name]
    earned = card(packing, trained, predictor.notes)
    package = lambda: predictor_package(packing.name, trained, predictor.folder, predictor.notes, earned)  # noqa: E731
    versions = generator[1], published.register(names[0], predictor.digest, package)
    choice, context = noted(Choice, plan.notes, "choice"), generator[0].context
    arguments = packing, context, versions, plan.folder, choice, record, trained.data, origin
    published.register(names[1], plan.digest, lambda: plan_package(*arguments))
    return names


def log_plan(run: Run, packing: Packing, choice: Choice) -> None:
    """Log what a plan is made of, and how its policies compare in the simulator."""
    run.metrics(plan_metrics(packing, choice))
    run.document("plan", {"told": describe(choice), "level": choice.level, "patience": choice.patience})
    run.figure("predicted", draw_predicted(packing))
    run.figure("lengths", draw_lengths(packing))


def generator_package(name: str, generator: Generator, folder: Path, notes: Notes) -> Package:
    """Return a generator's package; `name`: of the model as clients call it.

    Inputs and outputs are examples: their types become the signature.
    """
    package = Package(
        PACKING_GENERATOR + name,
        folder,
        {"text": np.array(PROMPTS)},
        {
            "completion": np.array(["An array.", "a class"]),
            "tokens": np.array([4, 3]),
            "finished": np.array(["stop", "stop"]),
        },
        options={"max_tokens": 64},
        config={"device": "cpu"},
        params={"context": generator.context, "precision": generator.precision},
        metrics={"generator_seconds": float(notes.get("seconds", 0.0))},
    )
    return described(package, generator, notes)


def predictor_package(name: str, predictor: Predictor, folder: Path, notes: Notes, earned: str = "") -> Package:
    """Return a predictor's package; `earned`: its card."""
    quantiles = {f"q{level:g}": np.array([8.0, 9.0]) for level in predictor.levels}
    package = Package(
        PACKING_PREDICTOR + name,
        folder,
        {"text": np.array(PROMPTS)},
        quantiles | {"bucket": np.array([40, 40])},
        params={
            "generator": predictor.generator or "none",
            "max_length": predictor.max_length,
            "bucket_tokens": predictor.bucket_tokens,
        },
        metrics=predictor_metrics(predictor),
        card=earned,
    )
    return described(package, predictor, notes, "dim")


def plan_package(
    packing: Packing,
    context: int,
    versions: tuple[int, int],
    folder: Path,
    choice: Choice,
    record: Record,
    data: str,
    origin: str = "",
) -> Package:
    """Return a plan's package.

    `versions`: of the generator's and the predictor's models; `data`: fingerprint of the prompts and lengths.

    `origin`: digest of the plan that this one descends from; empty for one that the flow made from the beginning.
    """
    memory = packing.memory
    policies = [
        (each.policy, figure(each.mean), figure(each.p99), "yes" if each.policy == "default" else "no")
        for each in choice.policies
    ]
    inputs = {"arrival": np.array([0.0, 0.1]), "prompt_tokens": np.array([20, 30]), "output_tokens": np.array([10, 40])}
    outputs = {"first_token": np.zeros(2), "seconds": np.zeros(2), "preemptions": np.zeros(2, np.int64)}
    return Package(
        PACKING_PREFIX + packing.name,
        folder,
        inputs,
        outputs,
        options={"policy": "default"},
        config={"context": context},
        params={
            "pages": memory.pages,
            "page_tokens": memory.page_tokens,
            "host_pages": memory.host_pages,
            "step_tokens": memory.step_tokens,
            "kv_bytes": packing.kv_bytes,
            "precision": packing.precision,
            "engine": packing.engine,
            "level": packing.level,
            "patience": packing.patience,
            "seconds": packing.seconds,
        },
        metrics=plan_metrics(packing, choice),
        card="\n".join(
            table(("policy", "mean seconds, simulated", "p99 seconds", "served by default"), policies)
        ).strip(),
        tags={
            "pliant.git_commit": commit(),
            "pliant.device": packing.device_class,
            "pliant.data": data,
            PLAN: describe(choice),
            GENERATOR: versions[0],
            PREDICTOR: versions[1],
            RECORD: record_to_json(record),
            **({ORIGIN: origin} if origin else {}),
        },
    )


def card(packing: Packing, predictor: Predictor, notes: Notes) -> str:
    """Return what the predictor of output lengths earns beside what else was tried, in Markdown.

    It was judged on the requests of the plan, the held-out prompts. Their forecasts give an interval.
    """
    judged, tokens_R, kinds = predictor.metrics, packing.output_tokens, ("linear", "encoder")
    served = kinds[json.loads(predictor.config)["model_type"] != LINEAR]
    if served == "linear" and not np.any(predictor.weights["head.weight"]):
        served = "the same for all, as no other earns anything"
    gain, low, high = saving(predictor, packing.forecasts, tokens_R)
    losses = {kind: judged[f"{kind}_pinball"] for kind in kinds if kind != served and f"{kind}_pinball" in judged}
    losses |= {"before it was trained further": notes["before"]["pinball"]} if "before" in notes else {}
    losses |= {"the most frequent class": judged["majority_pinball"]}
    constant = judged["constant_pinball"]
    tried = [
        (served, figure(judged["pinball"]), f"{gain:+.4f} ({low:+.4f} to {high:+.4f})", "yes"),
        *((name, figure(loss), f"{constant - loss:+.4f}", "no") for name, loss in losses.items()),
        ("the training lengths' own quantiles", figure(constant), "", "where no forecast came in time"),
    ]
    right, count = judged["bucket_accuracy"], len(tokens_R)
    low, high = binomtest(round(right * count), count).proportion_ci(0.95)
    sentence = (
        f"Judged on {count} held-out prompts. The class of length is right for {right:.1%} ({low:.1%} to {high:.1%}), the "
        f"most frequent class for {judged['majority_class']:.1%}. Kendall's tau of the forecasts: {judged['tau']:.2f}."
    )
    heading = ("predictor of output lengths", "pinball loss", "saved (95% interval)", "served")
    return "\n".join([sentence, *table(heading, tried)])


def predictor_metrics(predictor: Predictor) -> dict[str, float]:
    """Return the predictor's metrics, as it was judged on held-out prompts."""
    return {metric(name): float(value) for name, value in predictor.metrics.items()}


def plan_metrics(packing: Packing, choice: Choice) -> dict[str, float]:
    """Return every policy's simulated figures on the reference workload, and the error of the step times' fit."""
    steps = packing.steps
    metrics = {
        "steps.error": steps.error,
        "steps.base": steps.base,
        "steps.swap": steps.swap,
        "requests_observed": float(len(packing.output_tokens)),
        "output_tokens": float(packing.output_tokens.mean()),
    }
    for policy in choice.policies:
        metrics |= {f"simulated.{name}.{policy.policy}": value for name, value in figures(policy).items()}
    return metrics


def rows(choice: Choice) -> list[dict[str, Any]]:
    """Return a row of a table for every policy, with its simulated figures."""
    return [{"policy": policy.policy, **figures(policy)} for policy in choice.policies]


def figures(policy: PolicyFigures) -> dict[str, float]:
    return {
        "mean_seconds": policy.mean,
        "p99_seconds": policy.p99,
        "tokens_per_second": policy.tokens_per_second,
        "recomputed": policy.recomputed,
        "preemptions": policy.preemptions,
        "batch": policy.batch,
    }


def draw_predicted(packing: Packing) -> Figure:
    """Draw the observed tokens of every held-out output over the predicted median, with the range from 10% to 90%."""
    figure = Figure(figsize=(6.5, 5.5), layout="constrained")
    axes = figure.subplots()
    middle, low, high = (packing.forecasts[:, at] for at in (MEDIAN, LOWER, UPPER))
    order = np.argsort(middle, kind="stable")
    axes.fill_between(middle[order], low[order], high[order], color="#d9dee6", label="10% to 90% predicted")
    axes.scatter(middle, packing.output_tokens, s=8, alpha=0.6, linewidths=0, label="a held-out prompt")
    top = float(max(middle.max(), packing.output_tokens.max()))
    axes.plot([1, top], [1, top], linestyle=":", color=GREY, label="as predicted")
    axes.set(xscale="log", yscale="log", xlabel="predicted median (tokens)", ylabel="observed (tokens)")
    axes.set_title(f"Output lengths of {packing.name}")
    axes.legend()
    return figure


def draw_lengths(packing: Packing) -> Figure:
    """Draw how long outputs are, and the share of them within each forecast quantile."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(packing.output_tokens, bins=30, color="C0")
    left.set(xlabel="tokens of an output", ylabel="held-out prompts", title=f"Observed outputs of {packing.name}")
    within = (packing.output_tokens[:, None] <= packing.forecasts).mean(axis=0)
    right.plot([0, 1], [0, 1], linestyle=":", color=GREY)
    right.plot(QUANTILES, within, marker="o", linewidth=2, label="forecasts")
    right.set(xlabel="level of the quantile", ylabel="share of the outputs within it", title="Coverage")
    right.grid(alpha=0.3)
    right.legend()
    return figure
