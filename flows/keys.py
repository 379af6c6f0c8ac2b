"""What a stage's result is called: a key of all that it depends on. Knows no system, no Prefect and no MLflow.

Config, data, and the source of the code that does the work. The key names the result in the store, so a stage whose key
is there already need not run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
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
