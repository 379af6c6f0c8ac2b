"""A tiny cascade, and registries that hold it: in folders, and in MLflow as the flow would leave it.

Its BERTs of width 8 were made by hand, so that everybody knows what they say: a token's embedding names its colour, the
attention goes to tokens that have one, and the head reads the mixture. The small one takes red for green and green for red,
each with half a mind, and is sure of blue alone.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pliant.cascade.artifact import Candidate, Cascade, Classifier, Gate, LevelProfile, Pruning
from pliant.cascade.model import module, weights
from pliant.latency import LatencyTable
from registry import codec
from registry.mlflow_store import CHAMPION, MlflowRegistry
from registry.package import Package
from serving.cascade_catalog import TASK_PREFIX, model_name
from serving.settings import Settings

CLASSES = ("red", "green", "blue")
WORDS = {"rose": 0, "blood": 0, "grass": 1, "emerald": 1, "sky": 2, "sea": 2}
FILLERS = ("the", "old", "near", "a", "small", "house", "of", "two", "and", "seven")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
PIECES = {"em": 1, "##erald": 1}  # to the large model, which lacks the word
WIDTH, MOST = 8, 32
DEVICE = f"cpu-{platform.machine()}-1t"
LEVELS = ("small", "large")
SURE, UNSURE = "the sky near a sea", "the emerald of a small house"  # is the small model


def tiny_tokenizer(level: str) -> Tokenizer:
    words = [word for word in WORDS if level == "small" or word != "emerald"]
    vocabulary = {token: at for at, token in enumerate([*SPECIAL, *FILLERS, *words, *PIECES])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    return made


def tiny_classifier(task: str, level: str, seed: int = 0, classes: Sequence[str] = CLASSES) -> Classifier:
    """Equal but for the bytes at another `seed`. Without classes a regressor, which gives how red a text is."""
    tokenizer, layers = tiny_tokenizer(level), LEVELS.index(level) + 1
    config = {
        "model_type": "bert",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 1,
        "intermediate_size": WIDTH,
        "max_position_embeddings": MOST,
        "id2label": {str(i): name for i, name in enumerate(classes or ("redness",))},
        "label2id": {name: i for i, name in enumerate(classes or ("redness",))},
    }
    values = {name: np.zeros_like(array) for name, array in weights(module(config)).items()}
    for name, array in values.items():
        if "LayerNorm.weight" in name:
            array[:] = 1
        elif name.endswith(("key.weight", "value.weight", "attention.output.dense.weight", "pooler.dense.weight")):
            array[:] = np.eye(WIDTH)
        elif name.endswith("query.bias"):
            array[:3] = 4  # attend to what has a colour
    embedding = values["bert.embeddings.word_embeddings.weight"]
    for token, at in tokenizer.get_vocab().items():
        embedding[at, {**WORDS, **PIECES}.get(token, 3 if token in FILLERS else 4)] = 4
    head = values["classifier.weight"]
    head[:, :3] = (4 + seed / 100) * np.eye(3)[: len(head)]
    if level == "small" and classes:
        head[:2, :2] = 3.9, 4.1
    text = tokenizer.to_str()
    return Classifier(level, task, tuple(classes), json.dumps(config), text, MOST, "by hand", values)


def tiny_cascade(task: str, digests: Sequence[str], device: str = DEVICE, **changes) -> Cascade:
    """Four ways through two levels; "default" goes on below a confidence of 0.95, "pruned" always."""
    unsure = Gate("tabi", threshold=0.9, slope=1e6)
    always = Gate("always", pruning=Pruning("mass", 0.6), weight=0.8)
    candidates = (
        Candidate("default", (0, 1), (unsure,), 0.95, 0.9, 0.002, (1.0, 0.3)),
        Candidate("small", (0,), (), 0.8, 0.7, 0.001, (1.0,)),
        Candidate("pruned", (0, 1), (always,), 0.96, 0.92, 0.003, (1.0, 1.0), 0.6),
        Candidate("single", (1,), (), 0.98, 0.95, 0.004, (1.0,)),
    )
    levels = tuple(
        _level(name, digest, number) for number, (name, digest) in enumerate(zip(LEVELS, digests, strict=True))
    )
    accuracy = {candidate.name: candidate.accuracy for candidate in candidates}
    made = Cascade(task, CLASSES, False, 0.0, device, levels, candidates, 0.95, 0.95, accuracy, "by hand")
    return replace(made, **changes)


def _level(name: str, digest: str, number: int) -> LevelProfile:
    batches = (1, 2, 4, 8, 16)
    seconds = tuple(tuple((number + 1) * (1e-3 + 1e-5 * n * b) for b in batches) for n in (8, 32))
    table = LatencyTable((8, 32), batches, seconds)
    return LevelProfile(name, digest, 1.0, (), 0.8 + 0.1 * number, 0.05, 0.02, table, table)


def publish_tiny(registry, task: str = "colours", seed: int = 0, device: str = DEVICE, **changes) -> list[str]:
    """Both classifiers and then the task, under the alias; digests of all three. `registry.publish(name, artifact)`."""
    digests = [registry.publish(model_name(task, level), tiny_classifier(task, level, seed)) for level in LEVELS]
    return [*digests, registry.publish(TASK_PREFIX + task, tiny_cascade(task, digests, device, **changes))]


def settings_for(folder: Path, **changes) -> Settings:
    told: Mapping = {"system": "cascade", "experiment": "pliant-cascade", "threads": 1, "refresh_seconds": 0.0}
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    return Settings(registry_uri=uri, artifact_root=str(folder / "artifacts"), **{**told, **changes})


class MlflowPublisher:
    """`publish` as a FolderRegistry has it, into MLflow."""

    def __init__(self, folder: Path) -> None:
        settings = settings_for(folder)
        self._folder = folder
        self._registry = MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))

    def publish(self, name: str, artifact) -> str:
        draft = self._folder / "drafts" / uuid4().hex
        digest = codec.save(artifact, draft)
        outputs = {"label": np.array(CLASSES), "confidence": np.ones(3)}
        with self._registry.run("test") as run:
            published = self._registry.publish(run, Package(name, draft, {"text": np.array([SURE] * 3)}, outputs))
        self._registry.promote(published.name, published.version, CHAMPION)
        return digest
