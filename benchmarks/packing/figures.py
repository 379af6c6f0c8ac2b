"""Draws docs/packing.png from the study's simulated results: `python -m benchmarks.packing.figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import read

RESULTS, PICTURE = Path("benchmarks/results/packing-study.json"), Path("docs/packing.png")
SHOWN = {
    "13B": "Vicuna, 90/s",
    "13B, offline": "Vicuna, 3,000 at once",
    "13B, azure at 110% of what it bears": "Azure, 110%",
    "13B, sharegpt at 110% of what it bears": "ShareGPT, 110%",
    "13B, mooncake at 110% of what it bears": "Mooncake, 110%",
}
COLOURS = {"default": "#1b6ca8", "paged": "#7fb2d6", "s3": "#e08e0b", "oracle": "#777777"}


def draw(sections: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Draw the mean completion and throughput of each policy, as multiples of `s3`'s, median over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, name, title in zip(
        figure.subplots(1, 2), ("mean", "rate"), ("mean completion", "requests/s"), strict=True
    ):
        for place, (policy, colour) in enumerate(COLOURS.items()):
            heights = [_figure(sections[key], policy, name) / _figure(sections[key], "s3", name) for key in SHOWN]
            at = [number + 0.2 * (place - 1.5) for number in range(len(SHOWN))]
            axes.bar(at, heights, 0.2, color=colour, label=policy)
        axes.set_xticks(range(len(SHOWN)), list(SHOWN.values()), rotation=20, ha="right", fontsize=8)
        axes.set(title=f"{title}, as a multiple of S3's")
        axes.axhline(1, color="#444444", lw=0.6)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _figure(rows: Sequence[Mapping[str, Any]], policy: str, name: str) -> float:
    return median(float(row[name]) for row in rows if row["policy"] == policy)


if __name__ == "__main__":
    draw(read(RESULTS)["sections"]).savefig(PICTURE, dpi=110)
