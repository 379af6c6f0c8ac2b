"""A tiny model of random weights with its predictor, and registries that hold them: for services with a real engine.

Its tokens are bytes and a few words; it ends an output where the dice of its weights say so, else at the limit. The cache is
small enough that sequences are preempted.
"""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch

from flows.packing_packages import generator_package, predictor_package
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.model import LengthModel, new_encoder, weights
from pliant.packing.request import Memory
from registry import codec
from registry.mlflow_store import CHAMPION, MlflowRegistry
from registry.package import Package
from serving.packing_catalog import GENERATOR_PREFIX, PREDICTOR_PREFIX, PREFIX
from serving.settings import Settings
from tests.serving import packing_parts
from tests.serving.packing_fakes import new_tokenizer

DEVICE = f"cpu-{platform.machine()}-1t"
CONTEXT = 256
MEMORY = Memory(pages=96, page_tokens=8, host_pages=32, step_tokens=128, sequences=64)
NAME = "tales"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "bos_token_id": None,
    "architectures": ["LlamaForCausalLM"],
}
ENCODER = {
    "model_type": "distilbert",
    "dim": 16,
    "hidden_dim": 32,
    "n_layers": 1,
    "n_heads": 2,
    "max_position_embeddings": 64,
}


def generator(seed: int = 0) -> Generator:
    """Another `seed` writes other texts. An output ends after about 40 tokens where it is drawn."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = new_tokenizer()
    config = {**LLAMA, "vocab_size": tokenizer.get_vocab_size()}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    return packing_parts.generator(config=json.dumps(config), context=CONTEXT, name=NAME, weights=weights(model))


def predictor(digest: str) -> Predictor:
    tokenizer = new_tokenizer()
    config = {**ENCODER, "vocab_size": tokenizer.get_vocab_size()}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LengthModel(new_encoder(config))
    with torch.no_grad():
        model.shift += 2.0
    told = {"config": json.dumps(config), "tokenizer": tokenizer.to_str(), "weights": weights(model)}
    return packing_parts.predictor(digest, name=NAME, max_length=48, **told)


def packing(digest: str, predictor_digest: str, **changes: Any) -> Packing:
    told = {"device_class": DEVICE, "memory": MEMORY, "kv_bytes": 2 * 2 * 2 * 8 * 4}
    return packing_parts.packing(digest, predictor_digest, name=NAME, **{**told, **changes})


def publish_tiny(registry: Any, seed: int = 0, **changes: Any) -> None:
    """Generator, predictor and plan under the alias. `registry.publish(name, artifact)`."""
    digest = registry.publish(GENERATOR_PREFIX + NAME, generator(seed))
    told = registry.publish(PREDICTOR_PREFIX + NAME, predictor(digest))
    registry.publish(PREFIX + NAME, packing(digest, told, **changes))


def settings_for(folder: Path, **changes: Any) -> Settings:
    told: dict[str, Any] = {"system": "packing", "experiment": "pliant-packing", "threads": 1, "refresh_seconds": 0.0}
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    where = {"registry_uri": uri, "artifact_root": str(folder / "artifacts"), "home": folder / "home"}
    return Settings(**{**where, **told, **changes})


class MlflowPublisher:
    """`publish` as a FolderRegistry has it, into MLflow."""

    def __init__(self, folder: Path) -> None:
        settings = settings_for(folder)
        self._folder = folder
        self._registry = MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))

    def publish(self, name: str, artifact: Any) -> str:
        draft = self._folder / "drafts" / uuid4().hex
        digest = codec.save(artifact, draft)
        with self._registry.run("test") as run:
            published = self._registry.publish(run, _package(name, draft, artifact))
        self._registry.promote(published.name, published.version, CHAMPION)
        return digest


def _package(name: str, folder: Path, artifact: Any) -> Package:
    """Examples of inputs and outputs as the flow publishes them, where they matter to the model's code."""
    match artifact:
        case Generator():
            return replace(generator_package(NAME, artifact, folder, {}), name=name)
        case Predictor():
            return replace(predictor_package(NAME, artifact, folder, {}), name=name)
    asked = {"arrival": np.zeros(2), "prompt_tokens": np.array([2, 3]), "output_tokens": np.array([1, 4])}
    answered = {"first_token": np.zeros(2), "seconds": np.zeros(2), "preemptions": np.zeros(2, np.int64)}
    return Package(name, folder, asked, answered, {"policy": "default"}, {"context": CONTEXT})
