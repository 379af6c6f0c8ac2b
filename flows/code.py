"""What code does, as text: the same for code that differs in comments, layout, docstrings or names of local variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache


@cache
def code_of(source: str) -> str:
    """Return what `source` does, as text: equal for sources that differ in comments, layout, docstrings or local names."""
    return code_of_tree(ast.parse(source))


def code_of_tree(tree: ast.Module) -> str:
    """Return what a module's statements do, as text. Changes the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not is_text(statement)]
    for function in _outermost_functions(tree):
        _number_locals(function)
    return ast.unparse(tree)


def is_text(statement: ast.stmt) -> bool:
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
