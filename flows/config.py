"""Reads a flow's settings from TOML or a mapping into a frozen dataclass: exact types, no unknown key. Knows no system.

An unknown key fails with the key, the file and the nearest valid key.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import cattrs

from pliant.device import resolve_device
from pliant.errors import InputError

T = TypeVar("T")
Source = Path | Mapping[str, Any] | None
"""What settings are read from: a TOML file, its content, or nothing."""

PLAIN = (int, float, str, bool)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a task, a level, a stream: part of a registered model's name


def read(kind: type[T], source: Source = None, overrides: Mapping[str, Any] | None = None) -> T:
    """Return an instance of `kind` from a TOML file or its content, with `overrides` laid over its top level.

    Raises `InputError`.
    """
    values = dict(read_file(source) if isinstance(source, Path) else source or {}) | dict(overrides or {})
    where = str(source) if isinstance(source, Path) else "the given settings"
    _check_keys(values, kind, where)
    try:
        return _converter().structure(values, kind)
    except Exception as error:
        own = _own(error)
        if own is not None:
            raise own from error
        faults = "; ".join(cattrs.transform_error(error))
        raise InputError("config", faults, f"as {kind.__name__} says ({where})") from error


def resolve(flow_config: Any) -> None:
    """Replace the device "auto" of a flow's frozen settings by the device of this machine that it stands for."""
    object.__setattr__(flow_config, "device", resolve_device(flow_config.device))


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


def check_name(field: str, name: str) -> None:
    """Raise `InputError` for a name that cannot be part of a file's and a registered model's name."""
    if not NAME.fullmatch(name):
        raise InputError(field, repr(name), "letters, digits, '_', '-' and '.' (not in front)")


def check_minimum(name: str, value: int, minimum: int) -> None:
    """Raise `InputError` for a value below the minimum."""
    if value < minimum:
        raise InputError(name, value, f"at least {minimum}")


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `InputError`."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise InputError("config", path, f"a readable TOML file ({error})") from error


def _own(error: BaseException) -> InputError | None:
    """Return the error of one of our own checks, wherever cattrs has wrapped it."""
    inner = getattr(error, "exceptions", ())
    return error if isinstance(error, InputError) else next((own for e in inner if (own := _own(e))), None)


def _converter() -> cattrs.Converter:
    """Return a converter that takes values as they are: cattrs alone would cut 2.7 to 2, and a text into its letters."""
    converter = cattrs.Converter()

    def sequence(value: Any, kind: Any) -> tuple[Any, ...]:
        kinds = get_args(kind)
        if not isinstance(value, list | tuple) or (kinds[-1] is not ... and len(value) != len(kinds)):
            raise TypeError(value)
        each = [kinds[0]] * len(value) if kinds[-1] is ... else kinds
        return tuple(converter.structure(item, item_kind) for item, item_kind in zip(value, each, strict=True))

    for kind in PLAIN:
        converter.register_structure_hook(kind, _exact)
    converter.register_structure_hook_func(_is_plain_union, _any_of)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) is tuple, sequence)
    return converter


def _exact(value: Any, kind: Any) -> Any:
    """Return the value if it is of this very kind. A whole number will do for a number; `true` is no number."""
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(value)
    return kind(value)


def _is_plain_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and set(get_args(kind)) <= set(PLAIN)


def _any_of(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _check_keys(values: Mapping[str, Any], kind: type, where: str, above: str = "") -> None:
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            hint = f"; did you mean {above}{near[0]}?" if near else f"; known: {', '.join(hints)}"
            raise InputError(f"key {above}{key} in {where}", "unknown", f"a known one{hint}")
        for table, step, inner in _tables(value, hints[key], key):
            _check_keys(table, inner, where, f"{above}{step}.")


def _tables(value: Any, hint: Any, key: str) -> Iterator[tuple[Mapping[str, Any], str, type]]:
    """Yield every table that a value is or lists, each with its place and its dataclass."""
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        yield value, key, hint  # type: ignore[misc]  # a dataclass, not an instance of one
    elif get_origin(hint) is tuple and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tables(item, get_args(hint)[0], f"{key}[{index}]")
