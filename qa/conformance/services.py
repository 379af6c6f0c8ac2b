"""The live services that clients are run against: registries of tiny models in a temporary folder, and `bentoml serve`.

Packing serves the language model of the folder that PLIANT_SMOLLM2 names, if it is set, and else a tiny one of random
weights. A folder of the same model in transformers' form lies beside it, for clients that tokenize or run it themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.fixtures.live import running

REAL_MODEL = "PLIANT_SMOLLM2"
"""The environment variable that names a folder with config.json, tokenizer.json and weights of a language model."""
SYSTEMS = ("packing", "bins", "cascade", "tokens")
CONTEXT = 2048  # tokens of the tiny model's prompt and output together: load generators write hundreds
PAGES, PAGE_TOKENS = 512, 16


@dataclass(frozen=True, slots=True)
class LiveService:
    """The address of a service. `model_folder`: of packing's model in transformers' form; None for the others."""

    system: str
    url: str
    model: str
    model_folder: Path | None


@contextmanager
def live(system: str, folder: Path) -> Iterator[LiveService]:
    """Publish the models of a system into a registry in `folder`, serve them, and stop the service at the end."""
    with _PUBLISHED[system](folder) as service:
        yield service


@contextmanager
def _packing(folder: Path) -> Iterator[LiveService]:
    from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
    from tests.fixtures.packing import published

    given = os.environ.get(REAL_MODEL)
    model_folder = Path(given).resolve() if given else write_tiny_model(folder / "model")
    generator = _generator(model_folder)
    publisher = published.MlflowPublisher(folder)
    digest = publisher.publish(PACKING_GENERATOR + generator.name, generator)
    predictor = replace(published.predictor(digest), name=generator.name)
    predictor_digest = publisher.publish(PACKING_PREDICTOR + generator.name, predictor)
    memory = replace(published.MEMORY, pages=PAGES, page_tokens=PAGE_TOKENS, step_tokens=256)
    fields: Mapping[str, Any] = {"memory": memory, "kv_bytes": _token_bytes(generator.config)}
    plan = replace(published.packing(digest, predictor_digest, **fields), name=generator.name)
    publisher.publish(PACKING_PREFIX + generator.name, plan)
    settings = published.settings_for(folder, any_profile=True, launch_limit=60.0, predict_limit=1.0)
    with running(settings, folder) as service:
        yield LiveService("packing", service.url, generator.name, model_folder)


@contextmanager
def _bins(folder: Path) -> Iterator[LiveService]:
    from tests.fixtures.bins import published

    publisher = published.MlflowPublisher(folder)
    published.publish_compiled(publisher, folder / "home", "meanings")
    published.publish_tiny(publisher, "colours", "ranks")
    with running(published.settings_for(folder), folder) as service:
        yield LiveService("bins", service.url, "meanings", None)


@contextmanager
def _cascade(folder: Path) -> Iterator[LiveService]:
    from tests.fixtures.cascade import published

    published.publish_tiny(published.MlflowPublisher(folder))
    with running(published.settings_for(folder), folder) as service:
        yield LiveService("cascade", service.url, "colours", None)


@contextmanager
def _tokens(folder: Path) -> Iterator[LiveService]:
    from tests.fixtures.packing.published import DEVICE
    from tests.fixtures.tokens import published

    published.publish_all(folder, DEVICE)
    with running(published.settings_for(folder), folder) as service:
        yield LiveService("tokens", service.url, "digits", None)


_PUBLISHED: Mapping[str, Callable[[Path], Any]] = {
    "packing": _packing,
    "bins": _bins,
    "cascade": _cascade,
    "tokens": _tokens,
}


def write_tiny_model(folder: Path) -> Path:
    """Write a language model of random weights and its tokenizer as transformers does, and return the folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    from tests.fixtures.packing.fakes import new_tokenizer
    from tests.fixtures.packing.in_process import TEMPLATE
    from tests.fixtures.packing.published import LLAMA

    logging.disable_progress_bar()
    tokenizer = new_tokenizer()
    words = {"eos_token": "<|end|>", "pad_token": "<|end|>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=CONTEXT, **words)
    fast.chat_template = TEMPLATE.replace("{{ raise_exception('no system messages here') }}", "")
    fast.save_pretrained(folder)
    config = {**LLAMA, "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": CONTEXT}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = LLAMA["eos_token_id"]
    model.save_pretrained(folder)
    return folder


def _generator(folder: Path) -> Any:
    from pliant.training.packing.generator import load

    return load(f"path:{folder}")


def _token_bytes(config: str) -> int:
    """Return the bytes of one token's keys and values in all layers, as float32."""
    fields = json.loads(config)
    heads = fields["num_attention_heads"]
    width = fields.get("head_dim") or fields["hidden_size"] // heads
    return 2 * 4 * int(fields["num_hidden_layers"] * fields.get("num_key_value_heads", heads) * width)
