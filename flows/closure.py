"""Finds, from syntax trees alone, the code of ours that makes a stage's result. Imports nothing of what it reads.

Of `pliant`, `training` and `profiling` whole modules count, with all that they import, wherever in them. Of the flows' own
modules, which hold the code of many stages side by side, those functions, classes and values count that are reached. What
is left out, and why, is `APART`. What annotations of functions name is not followed: they say nothing of what is done. What
code does is compared as text, without comments, layout and docstrings.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pliant.errors

ROOT = Path(pliant.errors.__file__).resolve().parents[1]
APART: Mapping[str, str] = {
    "pliant": "offers names to notebooks, and imports nothing",
    "pliant.errors": "says what went wrong, which ends the stage without a result",
    "pliant.progress": "reports how far the work is",
    "pliant.redaction": "takes secrets out of what is logged",
    "pliant.settings": "says within which limits settings are",
    "pliant.flows.stage": "names results and keeps them",
    "pliant.flows.progress": "reports how far the work is",
    "pliant.flows.settings": "says where things are kept",
    "pliant.flows.release": "opens the registry, and asks again where it does not answer",
    "pliant.flows.champions": "fetches what the registry keeps, whose digest the key holds",
    "pliant.registry": "keeps artifacts as they are, and knows them by their digests",
    "pliant.registry.*": "as the registry",
}
"""Patterns of modules that make nothing of a result, and why."""
LIBRARIES = ("numba", "numpy", "onnx", "onnxruntime", "timm", "tokenizers", "torch", "transformers")
"""Those that compute: what was measured with one version says little of another one."""

Entry = Callable[..., object]
"""A function that makes a result, or a class whose methods it calls without naming it. Of a class in a class, the outer."""


def closure(*entries: Entry) -> dict[str, str]:
    """Return what makes a result: the entries, and all that they reach, as name -> what it does as text.

    A name is that of a module, or of a flow's module and a name in it, as in "pliant.flows.tokens.stages:make_task".
    """
    modules: dict[str, str] = {}
    waiting = {name for entry in entries for name in _named(f"{entry.__module__}.{entry.__qualname__}")}
    while waiting:
        name = waiting.pop()
        module, _, item = name.partition(":")
        parts = _parts(module, source(module))
        chosen = [part for part in parts if item in part.names or not part.names] if item else parts
        if item and not any(part.names for part in chosen):
            raise LookupError(f"{module} defines no {item}")
        modules[name] = "\n".join(part.code for part in chosen if part.code)
        steps = module.split(".")  # of which the packages that it lies in are loaded before it
        above = {".".join(steps[:count]) for count in range(1, len(steps))}
        reached = above.union(*(part.reached for part in chosen))
        waiting |= {each for each in reached if not is_apart(each)} - modules.keys()
    return modules


def libraries(names: Iterable[str]) -> list[str]:
    """Return which of `LIBRARIES` are imported where these names are defined, sorted."""
    modules = {name.partition(":")[0] for name in names}
    return sorted({top for module in modules for top in _outside(source(module))}.intersection(LIBRARIES))


@cache
def _outside(text: str) -> frozenset[str]:
    """Return the libraries that a module imports."""
    imports = (each for node in _executed(ast.parse(text)) for each in _imports(node))
    return frozenset(each.loaded.partition(".")[0] for each in imports)


@cache
def is_apart(name: str) -> bool:
    """Whether a module, or what is defined in one, is left out."""
    return any(fnmatch(name.partition(":")[0], pattern) for pattern in APART)


@cache
def source(module: str) -> str:
    """Return the text of a module of ours."""
    path = _path(module)
    if path is None:
        raise LookupError(f"{module} is no module of ours")
    return path.read_text(encoding="utf-8")


@cache
def _path(module: str) -> Path | None:
    """Return the file of a module of ours, None for anything else."""
    steps = module.split(".")
    if steps[0] != "pliant":
        return None
    path = ROOT.joinpath(*steps)
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


class _Part(NamedTuple):
    """A statement of a module, or a name that it imports. Without a name it counts with all others.

    `code`: what it does, as text; `reached`: names as in a closure.
    """

    names: frozenset[str]
    code: str
    reached: frozenset[str]


@cache
def _parts(module: str, text: str) -> tuple[_Part, ...]:
    """Return the parts of a module: of the flows' each statement, of any other all as one."""
    tree = ast.parse(text)
    imports = [each for node in _executed(tree) for each in _imports(node)]
    if not module.startswith("pliant.flows."):
        reached = {name for each in imports for name in _named(each.loaded)}
        return (_Part(frozenset(), code_of_tree(tree), frozenset(reached)),)
    meanings: dict[str, set[str]] = {}
    for each in imports:
        meanings.setdefault(each.name, set()).add(each.meaning)
    statements = [each for each in tree.body if not (is_text(each) or isinstance(each, ast.Import | ast.ImportFrom))]
    for name in {name for statement in statements for name in _given(statement)}:
        meanings.setdefault(name, set()).add(f"{module}.{name}")
    passed_on = (_Part(frozenset({each.name}), each.loaded, frozenset(_named(each.loaded))) for each in imports)
    return (*passed_on, *(_part(statement, meanings) for statement in statements))


def _part(statement: ast.stmt, meanings: Mapping[str, set[str]]) -> _Part:
    """Return a statement's part; `meanings`: full names that each name of the module may stand for."""
    reached, meant = set[str](), set[str]()
    for first, *rest in _chains(statement):
        for full in meanings.get(first, ()):
            reached.update(_named(".".join((full, *rest))))
            meant.add(f"{first} is {full}")  # the statement alone does not say of `import x as first`
    code = "\n".join((*sorted(meant), code_of_tree(ast.Module([statement], []))))
    return _Part(frozenset(_given(statement)), code, frozenset(reached))


def _given(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module gives to it."""
    match statement:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return {name}
    inner = list(ast.walk(statement))
    defined = {node.name for node in inner if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return defined | {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names in code, such as ("np", "random", "rand"), but for those in annotations of functions."""
    match node:
        case ast.Name(name):
            yield (name,)
            return
        case ast.Attribute():
            steps, inner = [node.attr], node.value
            while isinstance(inner, ast.Attribute):
                steps, inner = [inner.attr, *steps], inner.value
            if isinstance(inner, ast.Name):
                yield (inner.id, *steps)
                return
    for name, value in ast.iter_fields(node):
        if name == "returns" or (name == "annotation" and isinstance(node, ast.arg)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _chains(child)


class _Import(NamedTuple):
    """`name` is bound and means the module, or what a module holds, `meaning`; `loaded` is imported for it."""

    name: str
    meaning: str
    loaded: str


def _imports(node: ast.AST) -> Iterator[_Import]:
    match node:
        case ast.Import(names):
            for alias in names:
                top = alias.name.partition(".")[0]
                yield _Import(alias.asname or top, alias.name if alias.asname else top, alias.name)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                full = f"{module}.{alias.name}"
                yield _Import(alias.asname or alias.name, full, full)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those that only a type checker reads."""
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def _named(full: str) -> Iterator[str]:
    """Yield the name, as in a closure, that a full dotted name of ours stands for; nothing for a library's."""
    steps = full.split(".")
    for count in range(len(steps), 0, -1):
        module = ".".join(steps[:count])
        if _path(module) is not None:
            in_part = module.startswith("pliant.flows.") and count < len(steps)
            yield f"{module}:{steps[count]}" if in_part else module
            return


def code_of_tree(tree: ast.Module) -> str:
    """Return what a module's statements do, as text. Takes docstrings out of the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not is_text(statement)]
    return ast.unparse(tree)


def is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or the text behind an attribute."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
