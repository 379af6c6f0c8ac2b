"""Every stage's key: another one whenever code that makes its result is another, and only then."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from flows import closure, keys
from flows.closure import ROOT, is_apart, libraries
from flows.keys import StageResult
from flows.packing.config import read
from flows.packing.precision import known_precision
from flows.packing.stages import generator_key
from registry.store import FolderStore
from tests.fixtures.packing.tiny import setting, write_generator
from tests.flows.stages import SYSTEMS


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's key; `asked`: the function that gave it; `names`: of the closure that it holds."""

    name: str
    key: Callable[[], str]
    asked: str
    names: frozenset[str]


def test_every_key_of_a_stage_is_tried_here(stages):
    asked = set()
    for path in sorted((ROOT / "flows").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and "stage_key" in {
                getattr(each, "id", "") for each in ast.walk(node)
            }:
                asked.add(f"{module}:{node.name}")
    assert {stage.asked for stage in stages} == asked
    assert len({stage.name for stage in stages}) == len(stages)


def test_a_change_of_any_module_that_makes_a_result_changes_its_key(stages, changed):
    for stage in stages:
        before = stage.key()
        unseen = [name for name in sorted(stage.names) if changed(stage.key, {name}) == before]
        assert unseen == [], stage.name
        assert stage.key() == before


def test_a_change_of_all_that_makes_nothing_of_a_result_changes_no_key(stages, changed):
    for stage in stages:
        modules = {name.partition(":")[0] for name in stage.names}
        others = {name for name in every_module() if name not in modules}
        assert any(name.startswith("serving.http") for name in others)
        assert changed(stage.key, others) == stage.key(), stage.name


def test_comments_and_docstrings_change_no_key(stages, monkeypatch):
    before = [stage.key() for stage in stages]
    text_of = closure.source
    monkeypatch.setattr(closure, "source", lambda module: f'# More.\n{text_of(module)}\n"""More."""\n# And more.\n')
    assert [stage.key() for stage in stages] == before


def test_what_only_reports_or_keeps_is_in_no_closure_and_what_is_left_out_is_there(stages):
    assert [name for stage in stages for name in stage.names if is_apart(name)] == []
    for pattern in closure.APART:
        assert any(is_apart(name) for name in every_module()), pattern


def test_a_measurement_by_another_version_of_a_library_is_another_one(stages, monkeypatch):
    before = {stage.name: stage.key() for stage in stages}
    version = keys.version
    for library in closure.LIBRARIES:
        monkeypatch.setattr(keys, "version", lambda name, new=library: "99" if name == new else version(name))
        other = {stage.name for stage in stages if stage.key() != before[stage.name]}
        using = {stage.name for stage in stages if library in libraries(stage.names)}
        assert other == using & MEASURED, library


def test_a_generator_is_made_again_for_a_change_of_the_engine_where_that_has_run_it(tmp_path, changed):
    write_generator(tmp_path)
    loaded, trained, timed = (
        read(overrides=setting(tmp_path, precision=word) | ({"generator": "embedded"} if own else {}))
        for word, own in (("float32", False), ("float32", True), ("auto", True))
    )
    engine, trainer = {"pliant.packing.engine.paged_engine"}, {"training.packing.generator"}
    for config, run in ((loaded, True), (trained, False), (timed, not known_precision(timed))):
        assert (changed(lambda c=config: generator_key(c, None), engine) != generator_key(config, None)) == run
        assert changed(lambda c=config: generator_key(c, None), trainer) != generator_key(config, None)


MEASURED = {
    *("tokens/profile", "tokens/champion-digit"),
    *("cascade/outputs-things-profiling", "cascade/outputs-things-test", "cascade/latencies-things"),
    *("bins/latencies-things", "bins/plan-things"),
    *("packing/lengths-things", "packing/steps-things", "packing/plan-things"),
}
"""What is measured; what is trained stays as it is when a library is upgraded."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> list[Stage]:
    """Of all systems. No result is made."""
    found: list[Stage] = []

    def note(key: Callable[[], str], _make: object) -> StageResult:
        followed: list[tuple[str, frozenset[str]]] = []

        def follow(*made_by: Callable[..., object]) -> dict[str, str]:
            caller = sys._getframe(2)
            code = closure.closure(*made_by)
            followed.append((f"{caller.f_globals['__name__']}:{caller.f_code.co_name}", frozenset(code)))
            return code

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(keys, "closure", follow)
            text = key()
        [(asked, names)] = followed
        found.append(Stage(text.rpartition("/")[0], key, asked, names))
        return {"key": text, "digest": f"sha256:{text}"}

    for system, all_of in SYSTEMS.items():
        folder = tmp_path_factory.mktemp(system)
        all_of(folder, FolderStore(folder / "store"), note)
    return found


@pytest.fixture
def changed(monkeypatch) -> Callable[[Callable[[], str], set[str]], str]:
    """Gives a key where these names of closures do something else."""
    text_of = closure.source

    def key_of(key: Callable[[], str], names: set[str]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(closure, "source", lambda module: otherwise(module, text_of(module), names))
            return key()

    return key_of


def otherwise(module: str, text: str, names: set[str]) -> str:
    """The text of a module, in which what the names stand for is another than it is."""
    items = {name.partition(":")[2] for name in names if name.partition(":")[0] == module}
    if not items:
        return text
    if items == {""}:
        return f"{text}\nOTHER = 1\n"
    tree = ast.parse(text)
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in items:
                statement.body.append(ast.parse("OTHER = 1").body[0])
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if any(
                getattr(each, "id", "") in items for each in ast.walk(statement)
            ):
                statement.value = ast.Tuple([value, ast.Constant(1)], ast.Load())
    return ast.unparse(tree)


def every_module() -> list[str]:
    paths = (path for top in closure.OURS for path in (ROOT / top).rglob("*.py"))
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths)
