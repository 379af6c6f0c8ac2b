"""What the clients of this folder have in common: they take steps, and print a line of JSON for each.

A script imports it as a sibling (`from steps import take_steps`), as it runs in an environment without Pliant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version

Step = Callable[[], object]
"""It returns details, and raises if something is wrong."""


def take_steps(client: str, steps: Mapping[str, Step], left_out: Mapping[str, str] = {}) -> int:
    """Take all steps, print what came of each, and return the exit status: 1 if a step failed.

    `client`: the name of its distribution. `left_out`: steps that are not taken, with the reason; their `ok` is null.
    """
    line, failed = {"client": client, "version": version(client)}, 0
    for what, step in steps.items():
        try:
            ok, detail = True, step()
        except Exception as error:
            ok, detail = False, f"{type(error).__name__}: {error}"
        failed += not ok
        _write({**line, "did": what, "ok": ok, "detail": str(detail)})
    for what, reason in left_out.items():
        _write({**line, "did": what, "ok": None, "detail": reason})
    return int(failed > 0)


def _write(line: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()
