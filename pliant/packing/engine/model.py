"""Turns artifacts of generators and of length predictors into torch modules on their device, and modules into weights.

Knows transformers' configurations and nothing of training, caches or scheduling.

Shape suffixes: B texts, N tokens, H width, L levels, K classes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus
from torch.nn.modules.module import register_module_parameter_registration_hook

from pliant.bfloat16 import BFLOAT16
from pliant.errors import ArtifactError
from pliant.packing.artifact import BUCKETS, PRECISIONS, Generator, Predictor
from pliant.packing.scheduling.forecast import QUANTILES, Forecast, ordered
from pliant.precision import has_bfloat16

CHARACTERS = 12  # read of a prompt's end for each token that the predictor reads; tokens have fewer on average
TOGETHER = 64  # prompts in one forward pass
ALIKE = 8
"""Prompts of similar length in one forward pass on a CPU, where padding costs as much as tokens do.

Of 32 mixed prompts in one pass each took 0.36 ms of processor time, sorted and eight at a time 0.18 ms (one layer of width
96; 0.93 and 0.37 ms at two layers of width 128). Eight have nearly all that a larger batch gives.
"""
LINEAR = "linear"
"""The `model_type` of the config.json of a linear length predictor, which is no model of transformers."""
DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in PRECISIONS}


def weights(model: nn.Module, precision: str = "float32") -> dict[str, NDArray[Any]]:
    """Return every parameter and persistent buffer in `precision`; tied ones once, under the first of their names."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, tensor in model.state_dict().items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if mark not in seen:
            kept[name] = _array(tensor.detach().to(DTYPES[precision]).cpu()).copy()
        seen.add(mark)
    return kept


def in_precision(generator: Generator, precision: str) -> Generator:
    """Return the generator with its weights converted to `precision`: itself where it has that already."""
    if precision == generator.precision:
        return generator
    values = {name: _array(_tensor(array).to(DTYPES[precision])) for name, array in generator.weights.items()}
    return replace(generator, weights=values)


def load_generator(generator: Generator, device: str = "cpu", precision: str | None = None) -> Any:
    """Return the causal model with its weights, in evaluation mode. Raises `ArtifactError` if they do not fit it.

    The model has `precision` (None: the generator's own, in which nothing is converted). On a CPU its weights then are
    the generator's arrays themselves, so neither may be changed afterwards.
    """
    generator = in_precision(generator, precision or generator.precision)
    model = _outline(_configuration(generator.config), DTYPES[generator.precision])
    assign(model, generator.weights, generator.name)
    model.generation_config.eos_token_id = list(generator.ends)
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = generator.ends[0]
    return model.eval().to(device)


@contextmanager
def _without_weights() -> Iterator[None]:
    """Create the parameters of this thread's new modules on the meta device: their initialisation then takes no time.

    Buffers, such as the frequencies of rotary embeddings, are computed as ever.
    """
    thread = threading.get_ident()

    def to_meta(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta or threading.get_ident() != thread:
            return None  # leaves it as it is
        return nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    handle = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]  # it may return a parameter
    try:
        yield
    finally:
        handle.remove()


def _array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor of the CPU as an array that shares its memory."""
    if tensor.dtype == torch.bfloat16:
        bits: NDArray[Any] = tensor.view(torch.int16).numpy()
        return bits.view(BFLOAT16)
    array: NDArray[Any] = tensor.numpy()
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor, which shares its memory if that may be written to."""
    array = array if array.flags.writeable else array.copy()
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def vocabulary(generator: Generator) -> int:
    """Return the number of token ids that the model knows, without loading it."""
    return int(_configuration(generator.config).get_text_config().vocab_size)


def architecture(config: str) -> str:
    """Return the name of the class of a causal model (its config.json), which not every configuration says."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = str(json.loads(config)["model_type"])
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    if not isinstance(name, str):
        raise ArtifactError(f"{kind} is no causal model that this version of transformers knows")
    return name


def _configuration(config: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**json.loads(config))


def _outline(configuration: Any, dtype: torch.dtype = torch.float32) -> Any:
    """Return a causal model whose weights are still to be assigned."""
    from transformers import AutoModelForCausalLM

    with _without_weights():
        return AutoModelForCausalLM.from_config(configuration, attn_implementation="sdpa", dtype=dtype)


class LengthModel(nn.Module):
    """Predicts the quantiles of the log of an output's tokens, and its class of length (S3, section 3.1).

    Both heads read the mean of the last hidden states beside the largest input embedding in each dimension, which says
    what words occur in however long a prompt. With the hidden states alone, an encoder trained from scratch on 3,000
    prompts of Alpaca was no better than a constant after at most five epochs (rate 1e-3, one seed). With the mean
    embedding instead of the largest, the pinball loss on the embedded corpus was 6 and 10% higher (two seeds).
    """

    shift: Tensor

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder: Any = encoder
        width = 2 * encoder.config.hidden_size
        self.quantile, self.bucket = nn.Linear(width, len(QUANTILES)), nn.Linear(width, BUCKETS)
        self.register_buffer("shift", torch.zeros(len(QUANTILES)))  # added to the quantiles; set by calibration

    def forward(self, ids_BN: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Return quantiles of log tokens [B, L], ascending before the shift, and logits [B, K].

        `mask_BN` is 1 for tokens and 0 for padding.
        """
        hidden_BNH = self.encoder(input_ids=ids_BN, attention_mask=mask_BN).last_hidden_state
        words_BNH = self.encoder.get_input_embeddings()(ids_BN)
        weight_BN1 = (mask_BN / mask_BN.sum(1, keepdim=True))[:, :, None]
        largest_BH = words_BNH.masked_fill(mask_BN[:, :, None] == 0, -torch.inf).amax(1)
        pooled_BH = torch.cat([(hidden_BNH * weight_BN1).sum(1), largest_BH], dim=1)
        raw_BL = self.quantile(pooled_BH)
        steps_BL = torch.cat([raw_BL[:, :1], softplus(raw_BL[:, 1:])], dim=1)
        return steps_BL.cumsum(1) + self.shift, self.bucket(pooled_BH)

    @property
    def config(self) -> str:
        """Return the content of its config.json."""
        text: str = self.encoder.config.to_json_string(use_diff=False)
        return text


class LinearModel(nn.Module):
    """Predicts the same as `LengthModel` by one linear layer on the TF-IDF of tokens and of pairs of neighbouring tokens.

    Pairs are hashed, as there are too many. The quantiles lie around the predicted log at the same distances for all.
    """

    idf: Tensor
    shift: Tensor

    def __init__(self, tokens: int, pairs: int) -> None:
        super().__init__()
        self.tokens, self.pairs = tokens, pairs
        self.head = nn.Linear(tokens + pairs, 1 + BUCKETS)
        self.register_buffer("idf", torch.ones(tokens + pairs))  # inverse document frequencies
        self.register_buffer("shift", torch.zeros(len(QUANTILES)))  # as that of `LengthModel`

    def counts(self, ids_BN: Tensor, mask_BN: Tensor) -> Tensor:
        """Return how often each token and each hashed pair occurs [B, F]."""
        pair_BM = self.tokens + (ids_BN[:, :-1] * 7919 + ids_BN[:, 1:]) % self.pairs
        present_BM = torch.cat([mask_BN, mask_BN[:, :-1] * mask_BN[:, 1:]], dim=1).float()
        zero_BF = torch.zeros(len(ids_BN), self.tokens + self.pairs, device=ids_BN.device)
        return zero_BF.scatter_add(1, torch.cat([ids_BN, pair_BM], dim=1), present_BM)

    def features(self, ids_BN: Tensor, mask_BN: Tensor) -> Tensor:
        """Return TF-IDF [B, F] with the logarithms of counts, of length 1."""
        return normalize(self.counts(ids_BN, mask_BN).log1p() * self.idf, dim=1)

    def forward(self, ids_BN: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Return quantiles of log tokens [B, L] and scores of the classes [B, K], as `LengthModel` does."""
        output_BK = self.head(self.features(ids_BN, mask_BN))
        return output_BK[:, :1] + self.shift, output_BK[:, 1:]

    @property
    def config(self) -> str:
        return json.dumps({"model_type": LINEAR, "tokens": self.tokens, "pairs": self.pairs})


def new_encoder(config: Mapping[str, Any]) -> Any:
    """Return an untrained encoder of transformers; `config` is the content of its config.json."""
    from transformers import AutoConfig, AutoModel

    configuration: Any = AutoConfig.for_model(**config)
    encoder: Any = AutoModel.from_config(configuration, dtype=torch.float32)
    return without_pooler(encoder)


def without_pooler(encoder: Any) -> Any:
    """Return the encoder without BERT's pooling of the first token, which nothing here reads."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


@dataclass(frozen=True, slots=True)
class PredictorModel:
    """A length predictor, ready to run."""

    model: LengthModel | LinearModel
    tokenizer: Tokenizer  # keeps the last tokens of a long prompt
    characters: int  # read of the end of a prompt
    bucket_tokens: int  # width of a class of length
    alike: int = 0  # prompts of similar length in one forward pass; 0: `TOGETHER`, in the order in which they come

    @staticmethod
    def of(predictor: Predictor) -> PredictorModel:
        """Load a predictor on the CPU. Raises `ArtifactError` if its weights do not fit its configuration."""
        config = json.loads(predictor.config)
        linear = config["model_type"] == LINEAR
        model = LinearModel(config["tokens"], config["pairs"]) if linear else LengthModel(new_encoder(config))
        fill(model, predictor.weights, predictor.name)
        tokenizer = cutting(tokenizer_of(predictor.tokenizer), predictor.max_length)
        return PredictorModel(model.eval(), tokenizer, CHARACTERS * predictor.max_length, predictor.bucket_tokens)

    def predict(self, texts: Sequence[str]) -> list[Forecast]:
        """Return a forecast for each prompt, in order."""
        order, size = list(range(len(texts))), self.alike or TOGETHER
        if self.alike:
            order.sort(key=lambda at: len(texts[at]))
        forecasts: dict[int, Forecast] = {}
        for start in range(0, len(order), size):
            places = order[start : start + size]
            log_BL, class_B = self._run([texts[at][-self.characters :] for at in places])
            for at, tokens, bucket in zip(places, log_BL.tolist(), class_B.tolist(), strict=True):
                forecasts[at] = self._forecast(tokens, bucket)
        return [forecasts[at] for at in range(len(texts))]

    @torch.inference_mode()
    def _run(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        logs_BL, logits_BK = self.model(*tensors([encoding.ids for encoding in self.tokenizer.encode_batch(texts)]))
        return logs_BL.exp(), logits_BK.argmax(1)

    def _forecast(self, tokens: list[float], bucket: int) -> Forecast:
        return Forecast(ordered(tokens, BUCKETS * self.bucket_tokens), (bucket + 1) * self.bucket_tokens)


def cutting(tokenizer: Tokenizer, length: int) -> Tokenizer:
    """Make the tokenizer keep the last `length` tokens of a longer text, and return it."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(length, direction="left")
    return tokenizer


def tensors(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return ids [B, N], padded behind with 0, and their mask. An empty row becomes one token 0."""
    longest = max(1, *(len(row) for row in rows))
    ids_BN, mask_BN = torch.zeros(2, len(rows), longest, dtype=torch.long)
    for at, row in enumerate(rows):
        ids_BN[at, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask_BN[at, : max(1, len(row))] = 1
    return ids_BN, mask_BN


def fill(model: nn.Module, values: Mapping[str, NDArray[np.float32]], name: str) -> None:
    """Copy weights into a model; tied ones need one of their names. Raises `ArtifactError` if they do not fit it."""
    copies = {key: torch.from_numpy(np.array(array)) for key, array in values.items()}
    missing, unexpected = _load(model, copies, name, assign=False)
    state = model.state_dict()
    held = {state[key].data_ptr() for key in copies if key in state}
    _check_fit(name, [key for key in missing if state[key].data_ptr() not in held], unexpected)


def assign(model: nn.Module, values: Mapping[str, NDArray[Any]], name: str) -> None:
    """Make arrays the weights of a model, without copying them; otherwise like `fill`."""
    given = {key: _tensor(array) for key, array in values.items()}
    tied: dict[int, list[str]] = {}
    for key, parameter in model.named_parameters(remove_duplicate=False):
        tied.setdefault(id(parameter), []).append(key)
    for keys in tied.values():
        if sources := [given[key] for key in keys if key in given]:
            given |= dict.fromkeys(keys, nn.Parameter(sources[-1]))  # one for all, so that they stay tied
    given |= {key: given[key].to(buffer.dtype) for key, buffer in model.named_buffers() if key in given}
    _check_fit(name, *_load(model, given, name, assign=True))


def _load(model: nn.Module, state: Mapping[str, Tensor], name: str, assign: bool) -> tuple[list[str], list[str]]:
    """Load a state; return the names that it lacks and those that the model lacks. Raises `ArtifactError` for a shape."""
    try:
        missing, unexpected = model.load_state_dict(state, strict=False, assign=assign)
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {error}") from error
    return list(missing), list(unexpected)


def _check_fit(name: str, lacking: Sequence[str], unexpected: Sequence[str]) -> None:
    if lacking or unexpected:
        names = ", ".join([*lacking, *unexpected][:4])
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {names}")


def tokenizer_of(text: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json's content. Raises `ArtifactError` if it cannot be read."""
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # its reader raises nothing narrower
        raise ArtifactError(f"the tokenizer is no tokenizer.json that this version reads: {error}") from error


def load(predictor: Predictor, device: str) -> PredictorModel:
    """Return the predictor, placed on the device. Raises `ArtifactError` if its weights do not fit it."""
    loaded, there = PredictorModel.of(predictor), torch.device(device)
    place(loaded.model, there)
    return replace(loaded, alike=ALIKE if there.type == "cpu" else TOGETHER)


def place(model: LengthModel | LinearModel, device: torch.device) -> None:
    """Move a length model to its device, with the encoder in the device's precision.

    The heads and a linear model, which are small, stay in float32: the heads' inputs are promoted to it. Inputs of a call
    come from the CPU.
    """
    if isinstance(model, LengthModel):
        model.encoder.to(precision_of(device))
    model.to(device)

    def bring(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.to(device, non_blocking=True) for tensor in inputs)

    model.register_forward_pre_hook(bring)


def precision_of(device: torch.device) -> torch.dtype:
    """Return bfloat16 on a GPU that has it, float16 on an older one, and else float32."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if has_bfloat16(device) else torch.float16
