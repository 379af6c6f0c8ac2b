"""Settings as pydantic models: an attribute and its docstring are the variable PLIANT_NAME, the option, its help and the
row of docs/settings.md. A value outside its limit is an `InputError` that names the variable.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from pliant.errors import InputError

PREFIX = "PLIANT_"
LIMITS: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "finite",
    "dataclass_type": "a table",
    "dict_type": "a table",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "one of {expected}",
    "missing": "given",
    "path_type": "a path",
    "string_type": "a text",
    "too_long": "of at most {max_length}",
    "too_short": "of at least {min_length}",
    "tuple_type": "a list",
}
"""pydantic's kinds of errors -> what is expected, as a person reads it."""

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Marks a text that is one of these names, which may be mapped to what each means."""

    names: Collection[str]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True, slots=True)
class Option:
    """Marks a setting whose option has a name of its own, or none (""). `repeated`: its values are joined by commas."""

    name: str
    repeated: bool = False


class EnvironmentSettings(BaseModel):
    """Settings that variables of the environment may give. They are given by name and never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                raise InputError("option", name, self.nearest(name, str)) from None
            raise InputError(variable(name), shown(first["input"]), expected(first)) from None

    def replace(self, **changes: Any) -> Self:
        """Return these settings with some changed, checked as if they were new. Raises `InputError`."""
        return type(self)(**{**dict(iter(self)), **changes})

    @classmethod
    def nearest(cls, name: str, shape: Callable[[str], str]) -> str:
        """Return what is expected in place of an unknown name; `shape` gives a field's name the form that was asked for."""
        return (
            f"a known one, such as {difflib.get_close_matches(name, map(shape, cls.model_fields), n=1, cutoff=0.0)[0]}"
        )

    @classmethod
    def given(cls, environment: Mapping[str, str]) -> dict[str, Any]:
        """Return the text of each field that the environment sets."""
        names = {variable(name): name for name in cls.model_fields}
        return {names[name]: text for name, text in environment.items() if name in names}

    @classmethod
    def meaning(cls, name: str) -> str:
        """Return the docstring of a field, of the nearest class that has one. Raises `InputError` without any."""
        owners = [owner for owner in cls.__mro__ if issubclass(owner, EnvironmentSettings)]
        fields = [owner.model_fields[name] for owner in owners if name in owner.model_fields]
        for field in fields:
            if field.description:
                return field.description
        raise InputError("setting", name, f"explained by a docstring, in {cls.__name__}")

    @classmethod
    def choices(cls, name: str) -> Collection[str]:
        """Return the known values of a field; none where any will do."""
        return next((each.names for each in cls.model_fields[name].metadata if isinstance(each, OneOf)), ())

    @classmethod
    def option(cls, name: str) -> Option:
        """Return how a field is named on the command line."""
        marks = (each for each in cls.model_fields[name].metadata if isinstance(each, Option))
        return next(marks, Option(f"--{name.replace('_', '-')}"))


def variable(field: str) -> str:
    return PREFIX + field.upper()


def expected(error: ErrorDetails) -> str:
    """Return what is expected in place of the value that an error of pydantic's is about."""
    details = error.get("ctx", {})
    numbers = {key: f"{value:g}" if isinstance(value, float) else value for key, value in details.items()}
    if names := numbers.get("expected"):
        numbers["expected"] = names.replace("'", "").replace(" or ", ", ")
    return LIMITS.get(error["type"], error["msg"]).format(**numbers)


def shown(value: object) -> object:
    return repr(value) if isinstance(value, str) else value


class FlowSettings(EnvironmentSettings):
    """What flows and commands read. A service knows these variables, as its environment may be the same, and reads none."""

    project: str = ""
    """`pliant schedule`: folder that nightly runs begin in; by default the working directory."""
    keep_versions: Annotated[Count, Option("--versions")] = 5
    """Newest versions of each registered model that stay, besides those with an alias."""
    keep_days: Annotated[float, Field(ge=1), Option("--days")] = 90.0
    """Days for which unused results of stages, and reports of removed versions, stay."""
    store_gib: Annotated[float, Field(ge=0)] = 20.0
    """GiB that results of stages may take; beyond it those go that have not been used for longest."""
    rollout: Annotated[str, OneOf(("direct", "canary", "ask"))] = "direct"
    """With canary, a service tries a challenger on real requests before it is promoted; with ask, a person promotes it."""
    flow_hours: Positive = 6.0
    """Hours after which a run of a flow is ended."""
    task_hours: Positive = 3.0
    """Hours after which a task of a run is ended."""
    alarm_minutes: Positive = 60.0
    """Minutes between the starts of two runs that alarms cause."""
    training_hours_per_week: Positive | None = None
    """Hours that runs of a system's flows may take in seven days: after that, alarms and schedules ask a person to train."""
    mlflow_url: str = ""
    """Where links to MLflow lead: by default to the registry."""
    alert_webhook: str = ""
    """Address that `pliant-notify` posts notifications to."""
    signing_key: Path | None = None
    """Private key that signs what flows and `pliant sign` publish; without it nothing is signed."""

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the settings that the environment gives. Raises `InputError`."""
        return cls(**cls.given(environment))
