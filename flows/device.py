"""Checks before anything is trained that the device can do what a flow's config asks of it. Knows no system."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from pliant.device import device_class, threads
from pliant.errors import DeviceError
from pliant.precision import check_precision


def check_device(config: Any) -> str:
    """Return the class of the configured device with the configured threads.

    Raises `InputError` for a device that is not there, and for a precision anywhere in the config that it does not have.
    """
    name = configured_class(config)
    for field, precision in _precisions(config):
        check_precision(precision, config.device, field)
    return name


def configured_class(config: Any) -> str:
    """Return the class of the configured device with the configured threads. Raises `InputError` without that device."""
    with threads(config.threads):
        return device_class(config.device)


def check_replaces(name: str, present: str, champion: str, allowed: bool) -> None:
    """Raise `DeviceError` where a profile of the class `present` would replace the champion of another class.

    `name`: of what is profiled. Called before anything is measured.
    """
    if present != champion and not allowed:
        raise DeviceError(
            f"the champion of {name} was measured on {champion}, and this device is {present}: its profile would replace "
            "that one, and services on the other class would refuse it; name the other device (--device, --threads), or "
            "replace it all the same (--other-device)"
        )


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
