"""One run of an MLflow experiment while it is written, and MLflow's failures as `RegistryError`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.registry.address import shown
from pliant.registry.mlflow_reasons import is_missing, is_refused, reason

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Run:
    """One MLflow run being written. Any thread may log to it."""

    client: Any
    uri: str
    id: str
    experiment_id: str

    def params(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        with registry_errors(self.uri, "parameters could not be logged"):
            self.client.log_batch(self.id, params=[Param(name, str(value)) for name, value in values.items()])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        with registry_errors(self.uri, "metrics could not be logged"):
            self.client.log_batch(self.id, metrics=measured(values, step))

    def figure(self, name: str, figure: Figure) -> None:
        """Log a matplotlib figure as `name`.png."""
        with registry_errors(self.uri, f"figure {name} could not be logged"):
            self.client.log_figure(self.id, figure, f"{name}.png")

    def document(self, name: str, values: Mapping[str, Any]) -> None:
        """Log plain values as `name`.json."""
        with registry_errors(self.uri, f"{name} could not be logged"):
            self.client.log_dict(self.id, dict(values), f"{name}.json")

    def text(self, file: str, text: str) -> None:
        with registry_errors(self.uri, f"{file} could not be logged"):
            self.client.log_text(self.id, text, file)

    def dataset(self, name: str, fingerprint: str, source: str, context: str = "training") -> None:
        """Log the name of a data set of the run. MLflow keeps 36 characters of a digest; the whole is in the profile."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        where, profile = json.dumps({"uri": source}), json.dumps({"fingerprint": fingerprint})
        dataset = Dataset(name, fingerprint[:36], "local", where, profile=profile)
        with registry_errors(self.uri, f"data set {name} could not be logged"):
            self.client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def end(self, status: str) -> None:
        with registry_errors(self.uri, "the run could not be ended"):
            self.client.set_terminated(self.id, status)


def measured(values: Mapping[str, float], step: int, model: str | None = None) -> list[Any]:
    """Return metrics of this moment, to be logged together: one by one each is a transaction of its own."""
    from mlflow.entities import Metric

    now = round(1000 * time.time())
    return [Metric(name, value, now, step, model_id=model) for name, value in values.items()]


@contextmanager
def registry_errors(uri: str, failed: str) -> Iterator[None]:
    """Raise whatever MLflow, its database or the network raise as a `RegistryError` that begins with `failed`.

    It is an `UnreachableError` unless the registry answered that something is not there, and a `RefusedError` where it does
    not let this user in. What caused it is not chained: its message may hold the address with its password, and a
    traceback would show it.
    """
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, OSError) as error:
        kind = RegistryError if is_missing(error) else RefusedError if is_refused(error) else UnreachableError
        raise kind(f"{failed} at {shown(uri)}: {reason(error, uri)}") from None
