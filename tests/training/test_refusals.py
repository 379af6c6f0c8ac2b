"""Addresses that lead nowhere and settings outside their limits are refused by name before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from pliant.errors import InputError, OfflineError
from pliant.precision import lowered
from pliant.profiling.bins.latency import LatencyConfig as BinsLatencyConfig
from pliant.profiling.cascade.latency import LatencyConfig as CascadeLatencyConfig
from pliant.training import data, starts, texts
from pliant.training.bins import encoder
from pliant.training.classifier import ClassifierConfig
from pliant.training.packing import generator, predictor, prompts
from pliant.training.packing.generator import GeneratorConfig
from pliant.training.packing.predictor import PredictorConfig
from pliant.training.starts import ScratchConfig
from pliant.training.tokens.foundation import FoundationConfig
from pliant.training.tokens.task import TaskConfig

CPU = torch.device("cpu")

READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "the start of a level": (starts.pretrained, "model is"),
    "an encoder": (partial(encoder.load, name="mine"), "encoder is"),
    "a generator": (generator.load, "generator is"),
    "a predictor's encoder": (partial(predictor.read_encoder, max_length=20), "encoder is"),
    "pictures": (data.load, "data is"),
    "texts": (texts.load, "data is"),
    "prompts": (prompts.load, "prompts is"),
}
"""What reads an address, and what the sentence begins with."""
MODELS = list(READERS)[:4]


@pytest.mark.parametrize("address", ["path:/nowhere", "parquet:/nowhere.parquet", "folder:/nowhere", "ftp:x", "mine"])
@pytest.mark.parametrize("reader", READERS)
def test_an_address_that_leads_nowhere_is_refused(reader, address):
    read, words = READERS[reader]
    with pytest.raises(InputError, match=f"^{words}"):
        read(address)


@pytest.mark.parametrize("reader", [*MODELS, "pictures", "texts"])
def test_without_a_network_the_sentence_says_what_works(reader):
    with pytest.raises(OfflineError, match=r"nobody/nothing could not be fetched .*without a network use a local f"):
        READERS[reader][0]("hub:nobody/nothing")


LIMITS: dict[object, list[dict[str, object]]] = {
    ClassifierConfig(): [
        *({"precision": "int8"}, {"held_out": 0.0}, {"epochs": 0}),
        *({"max_length": 7}, {"batch": 0}, {"patience": -1}),
    ],
    ScratchConfig(): [{"width": 30}],
    TaskConfig(): [
        *({"augment": "blur"}, {"precision": "int8"}, {"held_out": 1.0}, {"gammas": (4, 2)}, {"gammas": (0, 2)}),
        {"head_images": 0},
    ],
    GeneratorConfig(): [
        *({"width": 30}, {"precision": "int8"}, {"vocabulary": 100}, {"context": 8}, {"epochs": 0}),
        *({"batch_tokens": 8}, {"first": 3}, {"joined": 0.0}),
    ],
    PredictorConfig(): [
        *({"held_out": 1.0}, {"width": 30, "heads": 4}, {"epochs": 0}, {"batch": 0}, {"max_length": 4}, {"limit": -1})
    ],
    BinsLatencyConfig(): [
        {"lengths": ()},
        {"batches": (0, 1)},
        {"lengths": (4, 2)},
        {"batches": (2, 2)},
        {"least": 10},
    ],
    CascadeLatencyConfig(): [{"lengths": ()}, {"batches": (0, 1)}, {"lengths": (4, 2)}, {"batches": (2, 2)}],
}


@pytest.mark.parametrize(
    ("config", "change"),
    [(config, change) for config, changes in LIMITS.items() for change in changes],
    ids=lambda value: str(value) if isinstance(value, dict) else type(value).__name__,
)
def test_a_setting_outside_its_limits_is_refused_by_name(config, change):
    with pytest.raises(InputError, match=next(iter(change))):
        replace(config, **change)


def test_options_of_a_foundation_that_lack_a_size_are_named():
    with pytest.raises(InputError, match="without img_size, patch_size"):
        FoundationConfig(options={"embed_dim": 24})


def test_bfloat16_is_refused_where_the_processor_lacks_it(monkeypatch):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 here"):
        lowered("bfloat16", CPU)
