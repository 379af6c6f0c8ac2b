"""What the commands of cascade take beside the options that all systems have, and what `pliant init cascade` writes."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from pliant.cli import options
from pliant.cli.init import AUTO, quoted

if TYPE_CHECKING:
    from pliant.flows.cascade.config import CascadeFlowConfig

MODEL = "pretrained encoder to fine-tune: a folder, hub:NAME, or auto (one that can be had, else random weights)"
DATA = "labelled texts: a .csv, .json(l) or .parquet file with the columns text and label, hub:NAME, docstrings:package"
LEVEL = """
[[levels]]
name = "large"
start = {start}
classifier = {{ epochs = 16, batch = 16, rate = 2e-4, head_rate = 2e-3, max_length = 128 }}
"""
REST = """
[latency] # short measurements; without this table they are finer, and take minutes
lengths = [16, 32, 64]
batches = [1, 4, 16]
timer = { warmup = 1, least = 3, most = 10, budget = 0.05 }

[arithmetic]
precision = "float32" # auto: also tries half precision

[gate]
# below_linear = true # release a model also where a linear one is better
"""


def train(parser: ArgumentParser) -> None:
    options.training(parser, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME")


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds")
    options.simulated_workers(parser)
    text = "simulate this candidate alone (default: the best-known ones)"
    parser.add_argument("--candidate", metavar="NAME", help=text)


def content(model: str, data: str) -> str:
    text = f'[[tasks]]\ndata = {quoted(data)}\n# unlabelled = "csv:more.csv" # texts without labels\n'
    text += "# limit = 2000 # texts, for a first try on large data\n"
    if model != AUTO:
        text += LEVEL.format(start=quoted(model))
    return text + REST


def check(config: CascadeFlowConfig) -> None:
    from pliant.flows.cascade import stages

    stages.load_data(config)
