"""How the comparisons of the demo are told, and when Pliant is not ahead; the demo's exit status."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from rich.console import Console

from pliant import systems
from pliant.benchmarks.demo import run
from pliant.benchmarks.demo.run import Comparison, conclude
from pliant.flows import settings

WON, LOST = (
    Comparison("texts, over the other", 1.2, "So it is."),
    Comparison("chats, over another", 0.4, "Too small a model."),
)


def concluded(**comparisons: Comparison) -> tuple[list[str], str]:
    console = Console(file=io.StringIO(), width=200)
    return conclude(console, comparisons), console.file.getvalue()


def test_a_comparison_that_is_lost_is_named_with_its_figure_and_a_reason():
    behind, text = concluded(bins=WON, packing=LOST)
    assert behind == ["packing"]
    assert "packing is not ahead: 0.40x in chats, over another. Too small a model." in text
    assert "bins is not ahead" not in text


@pytest.fixture
def ended(monkeypatch, tmp_path, capsys):
    """Run the demo with parts that are made up: what each system's comparison ends with is given."""
    project = settings.read({"PLIANT_HOME": str(tmp_path)})

    @contextmanager
    def with_prefect(*_given):
        yield "http://prefect"

    monkeypatch.setattr(run.settings, "read", lambda: project)
    monkeypatch.setattr(run, "with_prefect", with_prefect)
    monkeypatch.setattr(run, "run_connected", lambda *_: None)

    def demo(check: bool, **comparisons: Comparison) -> tuple[int, str]:
        def part(name: str, stage: str, role: str):
            if role == "demo":
                return SimpleNamespace(OVERRIDES={}, demo=lambda *_: comparisons[name])
            return SimpleNamespace()

        def named(name: str):
            return SimpleNamespace(part=lambda stage, role: part(name, stage, role))

        monkeypatch.setattr(systems, "system", named)
        monkeypatch.setattr(run, "show", lambda _outcome: None)
        status = run.demo(list(comparisons), keep=False, check=check)
        kept = json.loads((tmp_path / "demo.json").read_text())
        assert kept["ratios"] == {name: comparison.ratio for name, comparison in comparisons.items()}
        return status, capsys.readouterr().out

    return demo


def test_the_demo_tells_of_a_lost_comparison_and_ends_with_1_only_where_it_is_to_check(ended):
    status, text = ended(check=False, bins=WON, packing=LOST)
    assert status == 0
    assert "packing is not ahead" in text
    assert ended(check=True, bins=WON, packing=LOST)[0] == 1
