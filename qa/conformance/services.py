"""The live services that clients are run against: registries of tiny models in a temporary folder, and `bentoml serve`.

Packing serves the language model of the folder that PLIANT_SMOLLM2 names, if it is set, and else a tiny one of random
weights. A folder of the same model in transformers' form lies beside it, for clients that tokenize or run it themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from qa.worlds import WORLDS
from tests.fixtures.bins import published as bins
from tests.fixtures.live import running
from tests.fixtures.packing import published as packing

REAL_MODEL = "PLIANT_SMOLLM2"
"""The environment variable that names a folder with config.json, tokenizer.json and weights of a language model."""
MODELS = {"packing": "", "bins": "meanings", "cascade": "colours", "tokens": "digits"}
"""System -> the model that clients ask for; packing's is that of its folder."""
CONTEXT = 2048  # tokens of the tiny model's prompt and output together: load generators write hundreds


@dataclass(frozen=True, slots=True)
class LiveService:
    """The address of a service. `model_folder`: of packing's model in transformers' form; None for the others."""

    system: str
    url: str
    model: str
    model_folder: Path | None


@contextmanager
def live(system: str, folder: Path) -> Iterator[LiveService]:
    """Publish tiny models into a registry in `folder`, start a service of them, and stop it at the end."""
    model, model_folder, more = MODELS[system], None, {}
    match system:
        case "packing":
            model, model_folder = _publish_language_model(folder)
            more = {"any_profile": True, "launch_limit": 60.0, "predict_limit": 1.0}
        case "bins":
            publisher = bins.MlflowPublisher(folder)
            bins.publish_compiled(publisher, folder / "home", model)
            bins.publish_tiny(publisher, "colours", "ranks")
        case _:
            WORLDS[system].publish(folder)
    with running(WORLDS[system].settings(folder, **more), folder) as service:
        yield LiveService(system, service.url, model, model_folder)


def _publish_language_model(folder: Path) -> tuple[str, Path]:
    """Return the model's name and its folder."""
    from pliant.training.packing.generator import load

    given = os.environ.get(REAL_MODEL)
    model_folder = Path(given).resolve() if given else write_tiny_model(folder / "model")
    generator = load(f"path:{model_folder}")
    publisher, name = packing.MlflowPublisher(folder), generator.name
    digest = publisher.publish(PACKING_GENERATOR + name, generator)
    predictor = publisher.publish(PACKING_PREDICTOR + name, replace(packing.predictor(digest), name=name))
    fields = json.loads(generator.config)
    heads = fields["num_attention_heads"]
    width = fields.get("head_dim") or fields["hidden_size"] // heads
    # Bytes of one token's keys and values in all layers, as float32.
    kv_bytes = 2 * 4 * int(fields["num_hidden_layers"] * fields.get("num_key_value_heads", heads) * width)
    memory = replace(packing.MEMORY, pages=512, page_tokens=16, step_tokens=256)
    plan = packing.packing(digest, predictor, memory=memory, kv_bytes=kv_bytes)
    publisher.publish(PACKING_PREFIX + name, replace(plan, name=name))
    return name, model_folder


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
