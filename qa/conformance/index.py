"""Tells uv which package index to use: it does not read the settings of pip, which are the ones that people have.

Addresses may hold passwords, so they go to uv in its environment, never into a command line, a message or a file.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping

from pliant.errors import PliantError

_MASK = "(an address)"
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`<>)]+")
_SECTIONS = ("global", "install", ":env:")  # a later one wins
_PLAIN = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "timeout": "UV_HTTP_TIMEOUT"}
_SAME = {"UV_DEFAULT_INDEX": ("UV_INDEX_URL",), "UV_EXTRA_INDEX_URL": ("UV_INDEX",)}
"""A variable of uv -> others that say the same: where the user has set one of them, it stays his."""


def pip_settings() -> dict[str, str]:
    """Return the settings of pip for installing, by their names in its configuration; none where there is no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PliantError(f"the settings of pip cannot be read: {type(error).__name__}") from None
    return parse(result.stdout) if result.returncode == 0 else {}


def parse(text: str) -> dict[str, str]:
    """Return the settings in what `pip config list` prints; of several with one name the one that pip would use."""
    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        name, equals, literal = line.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot and section in values):
            continue
        try:
            values[section][key.lstrip(".").replace("_", "-")] = str(ast.literal_eval(literal))
        except (ValueError, SyntaxError):
            continue
    return {key: value for section in _SECTIONS for key, value in values[section].items()}


def uv_variables(settings: Mapping[str, str], present: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that make uv install from where pip would. What the user has set for uv stays as it is."""
    values = {variable: settings[key] for key, variable in _PLAIN.items() if settings.get(key)}
    if extra := settings.get("extra-index-url", "").split():
        values["UV_EXTRA_INDEX_URL"] = " ".join(extra)
    if links := settings.get("find-links", "").split():
        values["UV_FIND_LINKS"] = ",".join(links)
    if hosts := settings.get("trusted-host", "").split():
        values["UV_INSECURE_HOST"] = " ".join(hosts)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        values["UV_NO_INDEX"] = "1"
    if proxy := settings.get("proxy"):
        values |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    # As pip does, and unlike uv by itself: the best version of all indexes, not all versions of the first that has any.
    values["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {
        name: value
        for name, value in values.items()
        if not any(other in present for other in (name, *_SAME.get(name, ())))
    }


def without_addresses(text: str, variables: Mapping[str, str]) -> str:
    """Return a text of uv without the addresses of indexes and folders of packages."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "HTTPS_PROXY")
    places = {place for name in names for place in re.split(r"[\s,]+", variables.get(name, "")) if len(place) > 1}
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, _MASK)
    return _ADDRESS.sub(_MASK, text)
