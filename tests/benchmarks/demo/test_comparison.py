"""How the comparisons of the demo are told, and when Pliant is not ahead."""

from __future__ import annotations

import io

from rich.console import Console

from pliant.benchmarks.demo.run import Comparison, conclude


def test_a_comparison_that_is_lost_is_named_with_its_figure_and_a_reason():
    console = Console(file=io.StringIO(), width=200)
    won = Comparison("texts, over the other", 1.2, "So it is.")
    lost = Comparison("chats, over another", 0.4, "Too small a model.")
    assert conclude(console, {"bins": won, "packing": lost}) == ["packing"]
    text = console.file.getvalue()
    assert "packing is not ahead: 0.40x in chats, over another. Too small a model." in text
    assert "bins is not ahead" not in text
