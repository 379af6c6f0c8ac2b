"""The configuration of packing that `pliant init` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.cli.init import AUTO, quoted

if TYPE_CHECKING:
    from pliant.flows.packing.config import PackingFlowConfig

MODEL = "generator to serve: a folder, hub:NAME, or auto (a small one is trained on docstrings)"
DATA = "prompts as they come: a .csv, .json(l) or .parquet file with a column prompt or text, hub:NAME, or docstrings"


def content(model: str, data: str) -> str:
    from pliant.flows.packing.config import EMBEDDED

    generator = EMBEDDED if model == AUTO else model
    return (
        f"generator = {quoted(generator)}\nprompts = {quoted(data)}\n"
        "\n[lengths]\nrequests = 300 # prompts that it answers to learn the lengths from; some thousands are better\n"
        '\n[predictor]\nkind = "linear" # fitted in seconds; best: also trains an encoder, and takes the better one\n'
    )


def check(config: PackingFlowConfig) -> None:
    import pliant.training.packing.prompts
    from pliant.flows.packing.config import CORPUS

    if config.prompts != CORPUS:
        pliant.training.packing.prompts.load(config.prompts)
