"""Names a stage's result by a key of all that it depends on. Knows no system, no Prefect and no MLflow.

That is config, data, and the code that does the work: its syntax tree without comments, docstrings and the names of local
variables, which change nothing of the result. The key names the result in the store, so a stage whose key is there already
need not run.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NotRequired, TypedDict


class StageResult(TypedDict):
    """A stage's result, small enough to be cached as JSON: where the artifact lies and what it is."""

    key: str
    digest: str
    notes: NotRequired[dict[str, Any]]  # seconds, and what was tried on the way


def stage_key(stage: str, depends: dict[str, Any], *code: ModuleType) -> str:
    """Return the key of a stage's result; `stage` is a folder of the store, such as "tokens/profile"."""
    mark = hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode())
    for module in code:
        mark.update(code_of(inspect.getsource(module)).encode())
    return f"{stage}/{mark.hexdigest()[:24]}"


@cache
def code_of(source: str) -> str:
    """Return what `source` does, as text: equal for sources that differ in comments, layout, docstrings or local names."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
    for function in _outermost_functions(tree):
        _number_locals(function)
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or the text behind an attribute."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def _outermost_functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _outermost_functions(child)


def _number_locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Replace the variables that `function` assigns by numbers, in the order in which they come. Parameters stay."""
    nodes = list(ast.walk(function))
    kept = {node.arg for node in nodes if isinstance(node, ast.arg)}
    kept |= {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    numbers = {name: f"_{number}" for number, name in enumerate(dict.fromkeys(names)) if name not in kept}
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = numbers.get(node.id, node.id)


def contents(address: str) -> Iterator[str]:
    """Yield the digests of the files of a `path:` model, which may change under their names, and of its parts' settings."""
    scheme, _, rest = address.partition(":")
    folder = Path(rest)
    if scheme != "path" or not folder.is_dir():
        return
    for path in sorted(path for path in (*folder.iterdir(), *folder.glob("*/config.json")) if path.is_file()):
        with path.open("rb") as file:
            yield f"{path.relative_to(folder).as_posix()} {hashlib.file_digest(file, 'sha256').hexdigest()}"
