"""What a run of the packing flow logs: metrics, reports, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from flows.packing import figures
from flows.packing.learn import Learnt
from flows.packing.measure import Measured
from flows.packing.packages import choice_of, plan_metrics, predictor_metrics
from flows.packing.plan import Choice, told
from flows.packing.stages import ModelMade, load_plan, load_predictor
from pliant.packing.artifact import Packing
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_model(run: Run, made: ModelMade, store: FolderStore) -> None:
    packing, predictor = load_plan(store, made.plan), load_predictor(store, made.predictor)
    choice = choice_of(made.plan["notes"])
    stages = {"generator": made.generator, "lengths": made.lengths, "predictor": made.predictor, "steps": made.steps}
    run.dataset(made.name, predictor.data, made.name)
    run.document("stages", {name: one.get("notes", {}) for name, one in stages.items()})
    seconds = {f"seconds.{name}": float(one.get("notes", {}).get("seconds", 0.0)) for name, one in stages.items()}
    run.metrics(seconds | predictor_metrics(predictor))
    measured = store.load(Measured, made.steps["key"], made.steps["digest"])
    run.figure("steps", figures.steps(measured.points, measured.steps, measured.device))
    log_plan(run, packing, choice)


def log_learnt(run: Run, made: Learnt, store: FolderStore) -> None:
    """How far predictions were off in service, and the predictor before and after."""
    packing, predictor = load_plan(store, made.plan), load_predictor(store, made.predictor)
    run.dataset(f"{made.name}-observed", predictor.data, made.name)
    run.document("predictor", made.predictor["notes"])
    run.metrics({f"observed.{name}": value for name, value in made.drift.items()} | predictor_metrics(predictor))
    log_plan(run, packing, choice_of(made.plan["notes"]))


def log_plan(run: Run, packing: Packing, choice: Choice) -> None:
    """What a plan is made of, and how its policies compare in the simulator."""
    run.metrics(plan_metrics(packing, choice))
    run.document("plan", {"told": told(choice), "level": choice.level, "patience": choice.patience})
    run.figure("predicted", figures.predicted(packing))
    run.figure("lengths", figures.lengths(packing))
    run.figure("policies", figures.policies(choice))
