"""The cost of watching is measured in two systems; one that cannot be measured is left out with the reason."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.harness import Context, Skipped
from benchmarks.results import Target
from benchmarks.watch import bench


def test_a_system_that_cannot_be_measured_is_left_out_with_the_reason(monkeypatch, capsys):
    target = Target("watching tokens", 1.0, ">=", 0.98)

    def skipped(_context):
        raise Skipped("needs a model")

    parts = {"tokens": lambda _context: ([target], {"pairs": 12}), "packing": skipped}
    listed = {
        name: SimpleNamespace(part=lambda *_, cost=cost: SimpleNamespace(cost=cost)) for name, cost in parts.items()
    }
    monkeypatch.setattr(bench.systems, "system", listed.__getitem__)
    targets, details = bench._cost(Context(False, lambda _name: None))
    assert targets == [target]
    assert details == {"tokens": {"pairs": 12}, "packing": {"left out": "needs a model"}}
    assert "packing is left out: needs a model" in capsys.readouterr().out
