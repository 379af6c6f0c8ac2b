"""Logs a run of the packing flow: metrics, reports, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from flows.packing import figures
from flows.packing.learn import RetrainResults
from flows.packing.measure import Measured
from flows.packing.pace import Pace
from flows.packing.packages import choice_of, plan_metrics, predictor_metrics
from flows.packing.plan import Choice, describe
from flows.packing.stages import ModelResults, load_plan, load_predictor
from pliant.packing.artifact import Packing
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_model(run: Run, model: ModelResults, store: FolderStore) -> None:
    packing, predictor = load_plan(store, model.plan), load_predictor(store, model.predictor)
    choice = choice_of(model.plan["notes"])
    stages = {
        "generator": model.generator,
        "lengths": model.lengths,
        "predictor": model.predictor,
        "steps": model.steps,
    }
    run.dataset(model.name, predictor.data, model.name)
    notes = {name: result.get("notes", {}) for name, result in stages.items()}
    run.document("stages", notes)
    seconds = {f"seconds.{name}": float(noted.get("seconds", 0.0)) for name, noted in notes.items()}
    run.metrics(seconds | predictor_metrics(predictor))
    measured = store.load(Measured, model.steps["key"], model.steps["digest"])
    run.figure("steps", figures.steps(measured.points, measured.steps, measured.device))
    log_plan(run, packing, choice)
    if "pace" in model.plan["notes"]:  # not in a result that an earlier release has cached
        pace = Pace(**model.plan["notes"]["pace"])
        run.metrics(pace.metrics())
        run.document("pace", {"told": pace.describe()})


def log_retrained(run: Run, retrained: RetrainResults, store: FolderStore) -> None:
    """Log how far predictions were off in service, and the predictor before and after."""
    packing, predictor = load_plan(store, retrained.plan), load_predictor(store, retrained.predictor)
    run.dataset(f"{retrained.name}-observed", predictor.data, retrained.name)
    run.document("predictor", retrained.predictor["notes"])
    run.metrics({f"observed.{name}": value for name, value in retrained.drift.items()} | predictor_metrics(predictor))
    log_plan(run, packing, choice_of(retrained.plan["notes"]))


def log_plan(run: Run, packing: Packing, choice: Choice) -> None:
    """Log what a plan is made of, and how its policies compare in the simulator."""
    run.metrics(plan_metrics(packing, choice))
    run.document("plan", {"told": describe(choice), "level": choice.level, "patience": choice.patience})
    run.figure("predicted", figures.predicted(packing))
    run.figure("lengths", figures.lengths(packing))
    run.figure("policies", figures.policies(choice))
