"""Reads a flow's settings from TOML or a mapping into a frozen dataclass: exact types, no unknown key. Knows no system.

What a field's type says of its limits is checked where settings are read: a fault names the key, its value and what is
expected, an unknown key the nearest one that is known. What training starts from where settings leave it open follows from
the data: those that come with Pliant are there to try it, quickly and without a network, and start from random weights.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from pliant.device import device_class, resolve_device, threads
from pliant.errors import InputError
from pliant.precision import check_precision
from pliant.settings import Count, expected, shown

T = TypeVar("T")
Source = Path | Mapping[str, Any] | None
"""What settings are read from: a TOML file, its content, or nothing."""
PRESETS = Path(__file__).parent / "presets"

Seed = Annotated[int, Field(ge=0)]
TYPES = re.compile(r"int|float|str|bool|constrained-\w+|literal\[.*\]")  # where a value may be of several
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a task, a level, a stream: part of a registered model's name


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """What the settings of every flow have. `threads`: torch's when profiling and serving on CPU."""

    device: str = "auto"  # the GPU where there is one, else the CPU
    other_device: bool = False  # whether a release may replace a champion of another class of device
    threads: Count = 1
    seed: Seed = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", resolve_device(self.device))


@dataclass(frozen=True, slots=True)
class GateConfig:
    """`tolerance`: share of the champion's simulated utility that a challenger may fall short by (noise of the draws)."""

    seeds: Count = 3
    tolerance: float = 0.005
    below_linear: bool | None = None  # whether a model that is worse than a linear one may pass; None: of embedded data


def read(kind: type[T], source: Source = None, overrides: Mapping[str, Any] | None = None) -> T:
    """Return an instance of `kind` from a TOML file or its content, with `overrides` laid over its top level.

    Raises `InputError`.
    """
    values = dict(read_file(source) if isinstance(source, Path) else source or {}) | dict(overrides or {})
    try:
        # As JSON, since only there a strict reader takes a list for a tuple and a table for a dataclass.
        return TypeAdapter(kind).validate_json(json.dumps(values, default=str), strict=True, extra="forbid")
    except ValidationError as error:
        file = source if isinstance(source, Path) else None
        raise _refusal(kind, error.errors(include_url=False), file) from error


def parse_addresses(addresses: Any) -> list[dict[str, Any]]:
    """Return the tables that a list of data in its short form, [NAME=]ADDRESS, stands for. Raises `InputError`."""
    if not isinstance(addresses, list | tuple):
        raise InputError("data", addresses, "a list of [NAME=]ADDRESS")
    entries = map(named_address, addresses)
    return [{"data": address} if name is None else {"data": address, "name": name} for name, address in entries]


def named_address(entry: object) -> tuple[str | None, str]:
    """Return the name, if there is one, and the address of `[NAME=]ADDRESS`. An equals sign may belong to the address."""
    name, equals, address = str(entry).partition("=")
    return (name, address) if equals and ":" not in name else (None, str(entry))


def check_distinct(field: str, names: Sequence[str], wanted: str) -> None:
    """Raise `InputError` where there are no names, or two alike: what they name would overwrite each other."""
    if len(set(names)) != len(names) or not names:
        raise InputError(field, ", ".join(names) or "empty", wanted)


def check_name(field: str, name: str, *taken: str) -> None:
    """Raise `InputError` for a name that cannot be part of a file's and a registered model's name.

    `taken`: what it may not begin with, as names of other models do.
    """
    if not NAME.fullmatch(name) or name.startswith(taken):
        more = f", and not to begin with {' or '.join(taken)}" if taken else ""
        raise InputError(field, repr(name), f"letters, digits, '_', '-' and '.' (not in front){more}")


def file_of(config: str | Path) -> Path:
    """Return the TOML file that `--config` names: its path, or the name of a preset where there is no such file."""
    path = Path(config)
    preset = PRESETS / f"{path.name}.toml"
    return preset if path.name == str(config) and preset.is_file() and not path.exists() else path


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `InputError`."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        presets = ", ".join(sorted(each.stem for each in PRESETS.glob("*.toml")))
        raise InputError("config", path, f"a readable TOML file, or a preset: {presets}") from error
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise InputError("config", path, f"a readable TOML file ({error})") from error


def _refusal(kind: Any, errors: Sequence[ErrorDetails], file: Path | None) -> InputError:
    """Return the first error, with its place; one of an unknown key, which goes before all others, with the nearest one."""
    error = next((each for each in errors if each["type"] == "unexpected_keyword_argument"), errors[0])
    *above, last = error["loc"]
    place = _place(error["loc"])
    if error["type"] == "unexpected_keyword_argument":
        for step in above:
            kind = get_args(kind)[0] if isinstance(step, int) else get_type_hints(kind)[step]
        known = get_type_hints(kind)
        near = difflib.get_close_matches(str(last), known, 1)
        hint = f"did you mean {_place((*above, near[0]))}?" if near else f"known: {', '.join(known)}"
        return InputError(f"key {place} in {file or 'the given settings'}", "unknown", f"a known one; {hint}")
    wanted = dict.fromkeys(expected(each) for each in errors if _place(each["loc"]) == place)
    value = "missing" if error["type"] == "missing" else shown(error["input"])
    return InputError(f"{place} in {file}" if file else place, value, " or ".join(wanted))


def _place(steps: Sequence[int | str]) -> str:
    """Return where something is, such as `tasks[0].name`; a step that names one type of several is left out."""
    named = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if not TYPES.fullmatch(str(step)))
    return "".join(named).removeprefix(".")


EMBEDDED = ("docstrings", "digits:")
"""What addresses of the data that comes with Pliant begin with."""


def is_embedded(address: str) -> bool:
    """Whether the address is one of the data that comes with Pliant."""
    return address.startswith(EMBEDDED)


@cache
def pretrained() -> str:
    """Return the address of a pretrained encoder; empty where none can be had, which is said in one line, once."""
    from pliant.training.loading import find_encoder

    address, reason = find_encoder()
    sentence = (
        f"starting from the pretrained model {address}" if address else f"no pretrained model can be had ({reason})"
    )
    advice = ": starting from random weights, which need many more texts; name a model's folder (path:FOLDER)"
    print(f"Start: {sentence}{'' if address else advice}.", file=sys.stderr)  # noqa: T201
    return address


def check_device(config: Any) -> None:
    """Check before anything is trained that the device can do what a flow's config asks of it.

    Raises `InputError` for a device that is not there, and for a precision anywhere in the config that it does not have.
    """
    configured_class(config)
    for field, precision in _precisions(config):
        check_precision(precision, config.device, field)


def configured_class(config: Any) -> str:
    """Return the class of the configured device with the configured threads. Raises `InputError` without that device."""
    with threads(config.threads):
        return device_class(config.device)


def _precisions(part: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field of the name precision, with its path from the top, such as ("foundation.precision", "auto")."""
    if isinstance(part, tuple):
        for index, each in enumerate(part):
            yield from _precisions(each, f"{path}[{index}]")
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            inner, where = getattr(part, field.name), f"{path}.{field.name}".lstrip(".")
            if field.name == "precision":
                yield where, inner
            else:
                yield from _precisions(inner, where)
