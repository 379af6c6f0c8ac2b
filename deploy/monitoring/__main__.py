"""Writes docs/metrics.md and Grafana's dashboards anew from the list of metrics: `python -m deploy.monitoring`."""

from __future__ import annotations

from pathlib import Path

from deploy.monitoring.dashboards import dashboards
from deploy.monitoring.page import page

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = ROOT / "deploy" / "monitoring" / "grafana" / "dashboards"
PAGE = ROOT / "docs" / "metrics.md"


def main() -> None:
    """Write all files; what is not made any more is removed."""
    PAGE.write_text(page(), encoding="utf-8")
    DASHBOARDS.mkdir(parents=True, exist_ok=True)
    contents = dashboards()
    for name, content in contents.items():
        (DASHBOARDS / name).write_text(content, encoding="utf-8")
    for path in DASHBOARDS.glob("*.json"):
        if path.name not in contents:
            path.unlink()


if __name__ == "__main__":
    main()
