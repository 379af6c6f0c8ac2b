"""What a stage's result is called: a key of all that it depends on. Knows no system, no Prefect and no MLflow.

Config, data, and the source of the code that does the work. The key names the result in the store, so a stage whose key
is there already need not run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NotRequired, TypedDict


class Made(TypedDict):
    """A stage's result, small enough to be cached as JSON: where the artifact lies and what it is."""

    key: str
    digest: str
    notes: NotRequired[dict[str, Any]]  # how it was made: seconds, and what was tried on the way


def stage_key(stage: str, depends: dict[str, Any], *code: ModuleType) -> str:
    """`stage` is a folder of the store, such as "tokens/profile"."""
    mark = hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode())
    for module in code:
        mark.update(inspect.getsource(module).encode())
    return f"{stage}/{mark.hexdigest()[:24]}"


def contents(address: str) -> Iterator[str]:
    """Digests of the files of a `path:` model and of its parts' settings: others may come to lie under the same names."""
    scheme, _, rest = address.partition(":")
    folder = Path(rest)
    if scheme != "path" or not folder.is_dir():
        return
    for path in sorted(path for path in (*folder.iterdir(), *folder.glob("*/config.json")) if path.is_file()):
        with path.open("rb") as file:
            yield f"{path.relative_to(folder).as_posix()} {hashlib.file_digest(file, 'sha256').hexdigest()}"
