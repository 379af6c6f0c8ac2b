"""The configuration of tokens that `pliant init` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.cli.init import AUTO, quoted

if TYPE_CHECKING:
    from pliant.flows.tokens.config import TokensFlowConfig

MODEL = "vision transformer: timm:ARCHITECTURE, file:ARCHITECTURE:PATH, or auto (a small one is trained on the data)"
DATA = "labelled pictures: a folder with one folder a class, a .parquet file, hub:NAME, or digits:digit"


def content(model: str, data: str) -> str:
    backbone = "embedded" if model == AUTO else model
    return (
        f"data = [{quoted(data)}] # one address a task\nbackbone = {quoted(backbone)}\n"
        "# limit = 2000 # pictures a task, for a first try on large data\n"
        "\n[gate]\n# below_linear = true # release a task also where a linear model of its pixels is better\n"
    )


def check(config: TokensFlowConfig) -> None:
    from pliant.flows.tokens import stages

    stages.load_data(config)
