"""What every flow of a system does around its work: it is guarded against hanging, and answers the alarm that started it.

A run of a deployment ends with its process once its time is over (`guard`), and a registry that lets nobody in ends any run
before its work. One with a `reason` is debounced (`debounce`), has the drift report on its page (`report`), and its reason
as a tag on the MLflow runs of what it published.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, cast

from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.patience import current_run
from pliant.flows.release import Release, check_registry, open_registry
from pliant.flows.watch import debounce, limits, report
from pliant.flows.watch.guard import PrefectRun, guarded

logger = logging.getLogger("pliant")

P = ParamSpec("P")

REASON = "pliant.reason"
"""Tag of an MLflow run: the alarm that started the flow."""


def triggered(system: str, function: Callable[P, dict[str, Any]]) -> Callable[P, dict[str, Any]]:
    """Return the function with what surrounds it in a run of Prefect; without a run it is the function alone."""
    signature = inspect.signature(function)

    @wraps(function)
    def surrounded(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        run = current_run()
        reason = signature.bind(*args, **kwargs).arguments.get("reason")
        if run is None:
            return function(*args, **kwargs)
        with _guarded(run):
            if reason and run.deployment_id is not None:
                decision = debounce.check(run, limits.read().alarm)
                if decision.sentence:
                    return cast(dict[str, Any], _skipped(decision.sentence))
            check_registry(settings.read(), system, patient=run.deployment_id is not None)
            if reason:
                report.show(system, reason, settings.read().home_of(system))
            released = function(*args, **kwargs)
            if reason:
                tag_runs(system, reason, released)
            return released

    return surrounded


def tag_runs(system: str, reason: str, released: Mapping[str, Any]) -> None:
    """Set the reason as a tag of the MLflow runs that published, if any did."""
    if identities := str(released.get("run", "")).split():
        client = open_registry(settings.read(), system).connect()
        for identity in identities:
            try:
                client.set_tag(identity, REASON, reason)
            except Exception as error:  # MLflow's own, which only registry/mlflow_* may import
                raise RegistryError(f"the reason could not be noted on the MLflow run {identity}: {error}") from error


def follow_up(deployment: str, reason: str) -> None:
    """Start a run of another deployment for the same reason, and await nothing; without such a deployment do nothing.

    It has its own place in the line of that deployment's runs, so it never runs beside another one of them.
    """
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound

    try:
        run_deployment(deployment, parameters={"reason": reason}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        logger.warning("nothing follows %r: there is no deployment %s", reason, deployment)


@contextmanager
def _guarded(run: Any) -> Iterator[None]:
    """Guard a deployment's run. A run from a command line is watched by whoever typed it, and has Prefect's timeout."""
    if run.deployment_id is None:
        yield
        return
    with guarded(limits.read().guard, prefect_run(str(run.id))):
        yield


def prefect_run(identity: str) -> PrefectRun | None:
    """Return how the guard reaches a flow run in Prefect; None where no server is named."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL

    address = PREFECT_API_URL.value()
    if not address:
        return None
    return PrefectRun(str(address), identity, _plain(PREFECT_API_KEY.value()), _plain(PREFECT_API_AUTH_STRING.value()))


def _plain(secret: Any) -> str | None:
    """Return a setting that Prefect may keep from being printed."""
    value = secret.get_secret_value() if hasattr(secret, "get_secret_value") else secret
    return str(value) if value else None


def _skipped(sentence: str) -> Any:
    """Return the state of a run that had nothing to do."""
    from prefect.states import Completed

    release = Release(False, sentence, {}, (), "").to_dict()
    return Completed(name=debounce.SKIPPED, message=sentence, data=release)
