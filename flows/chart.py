"""An interactive chart as a page of HTML (chart.html) that needs nothing from outside: MLflow shows it among a run's files.

A series for each measure, which a click on its name takes away; a point for each row, which says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("chart.html")


def page(title: str, rows: Sequence[Mapping[str, Any]], x: str, ys: Sequence[str], label: str = "") -> str:
    """Return the page of a chart of the columns `ys` over the column `x`; `label`: the column that says what a row is."""
    full = [row for row in rows if all(isinstance(row.get(name), int | float) for name in (x, *ys))]
    data = json.dumps({"rows": full, "x": x, "ys": list(ys), "label": label}).replace("<", "\\u003c")
    return PAGE.read_text("utf-8").replace("{{title}}", escape(title)).replace("{{data}}", data)
