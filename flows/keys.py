"""Names a stage's result by a key of all that it depends on. Knows no system, no Prefect and no MLflow.

That is config, data, and the code that makes the result: the function that does it and whatever it reaches, without
comments, docstrings and the names of local variables, which change nothing of the result. The key names the result in the
store, so a stage whose key is there already need not run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pliant.flows.closure import Entry, closure, libraries


def stage_key(stage: str, depends: dict[str, Any], *made_by: Entry, measured: bool = False) -> str:
    """Return the key of a stage's result; `stage` is a folder of the store, such as "tokens/profile".

    `made_by`: the functions that make the result, and classes whose methods they call without naming them; all that these
    reach counts (flows/closure.py). `measured`: whether the versions of libraries that compute count as well.
    """
    code = closure(*made_by)
    versions = {name: _version(name) for name in libraries(code)} if measured else {}
    mark = hashlib.sha256(json.dumps([depends, versions], sort_keys=True, default=str).encode())
    for name in sorted(code):
        mark.update(f"\0{name}\0{code[name]}".encode())
    return f"{stage}/{mark.hexdigest()[:24]}"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "missing"


def contents(address: str) -> Iterator[str]:
    """Yield the digests of the files of a `path:` model, which may change under their names, and of its parts' settings
    and further chat templates.
    """
    scheme, _, rest = address.partition(":")
    folder = Path(rest)
    if scheme != "path" or not folder.is_dir():
        return
    within = (*folder.glob("*/config.json"), *folder.glob("*/*.jinja"))
    for path in sorted(path for path in (*folder.iterdir(), *within) if path.is_file()):
        with path.open("rb") as file:
            yield f"{path.relative_to(folder).as_posix()} {hashlib.file_digest(file, 'sha256').hexdigest()}"
