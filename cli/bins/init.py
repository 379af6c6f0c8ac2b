"""The configuration of bins that `pliant init` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.cli.init import AUTO, quoted
from pliant.progress import silent

if TYPE_CHECKING:
    from pliant.flows.bins.config import BinsFlowConfig

MODEL = "encoder to serve as it is: a folder, hub:NAME, cascade:TASK, or auto (a classifier is trained on the data)"
DATA = "texts as they come: a .csv, .json(l) or .parquet file with the columns text and label, hub:NAME, docstrings:package"


def content(model: str, data: str) -> str:
    from pliant.flows.bins.config import EMBEDDED

    encoder = EMBEDDED if model == AUTO else model
    return (
        f"[[streams]]\nencoder = {quoted(encoder)}\ndata = {quoted(data)}\n"
        "slo = 0.15 # seconds from arrival to answer\n# limit = 2000 # texts, for a first try on large data\n"
        "\n[gate]\n# below_linear = true # release a classifier also where a linear one is better\n"
    )


def check(config: BinsFlowConfig) -> None:
    from pliant.flows.bins import stages

    stages.load_streams(config, silent)
