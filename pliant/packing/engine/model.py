"""Generators and predictors of output lengths as modules, from the values that their artifacts hold, and back.

Knows transformers' configurations and nothing of training, caches or scheduling.

Shape suffixes: B texts, N tokens, H width, L levels, K classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import softplus

from pliant.errors import ArtifactError
from pliant.packing.artifact import BUCKETS, Generator, Predictor
from pliant.packing.scheduling.forecast import LEVELS, ordered

CHARACTERS = 12  # of a prompt that are read for each token that is: what stands before them could not count
TOGETHER = 64  # prompts in one forward pass


def weights(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Every parameter and persistent buffer as float32; tied ones once, under the first of their names."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, tensor in model.state_dict().items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if mark not in seen:
            kept[name] = tensor.detach().float().cpu().numpy().copy()
        seen.add(mark)
    return kept


def load_generator(generator: Generator, device: str = "cpu") -> Any:
    """The causal model of transformers with its weights, ready to run. Raises `ArtifactError` where they do not fit."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(
        _configuration(generator), attn_implementation="sdpa", dtype=torch.float32
    )
    fill(model, generator.weights, generator.name)
    model.generation_config.eos_token_id = list(generator.ends)
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = generator.ends[0]
    return model.eval().to(device)


def vocabulary(generator: Generator) -> int:
    """Token ids that the model knows; nothing is loaded."""
    return int(_configuration(generator).get_text_config().vocab_size)


def _configuration(generator: Generator) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**json.loads(generator.config))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is said of one prompt's output."""

    tokens: tuple[float, ...]  # quantiles at LEVELS, ascending
    bucket: int  # upper bound of the predicted class, in tokens


class LengthModel(nn.Module):
    """Prompts to the quantiles of the log of the output's tokens, and to the classes of length (S3, section 3.1).

    The heads see the mean of the last hidden states and, beside it, the largest of the input embeddings in each
    dimension: which words there are, in however long a prompt. Without words beside it an encoder trained from nothing on
    3,000 prompts of Alpaca was no better than a constant after at most five epochs (rate 1e-3, one seed); with the mean of
    the embeddings for the largest the pinball loss on the embedded corpus was 6 and 10% above (two seeds).
    """

    shift: Tensor

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder: Any = encoder
        width = 2 * encoder.config.hidden_size
        self.quantile, self.bucket = nn.Linear(width, len(LEVELS)), nn.Linear(width, BUCKETS)
        self.register_buffer("shift", torch.zeros(len(LEVELS)))  # added to the quantiles: what calibration found

    def forward(self, ids_BN: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L] quantiles of log tokens, ascending but for the shift, and [B, K] logits. `mask_BN` is 1 for tokens."""
        hidden_BNH = self.encoder(input_ids=ids_BN, attention_mask=mask_BN).last_hidden_state
        words_BNH = self.encoder.get_input_embeddings()(ids_BN)
        weight_BN1 = (mask_BN / mask_BN.sum(1, keepdim=True))[:, :, None]
        most_BH = words_BNH.masked_fill(mask_BN[:, :, None] == 0, -torch.inf).amax(1)
        pooled_BH = torch.cat([(hidden_BNH * weight_BN1).sum(1), most_BH], dim=1)
        raw_BL = self.quantile(pooled_BH)
        steps_BL = torch.cat([raw_BL[:, :1], softplus(raw_BL[:, 1:])], dim=1)
        return steps_BL.cumsum(1) + self.shift, self.bucket(pooled_BH)


def new_encoder(config: Mapping[str, Any]) -> Any:
    """An untrained encoder of transformers for a configuration as its config.json holds it."""
    from transformers import AutoConfig, AutoModel

    told: Any = AutoConfig.for_model(**config)
    made: Any = AutoModel.from_config(told, attn_implementation="sdpa", dtype=torch.float32)
    return without_pooler(made)


def without_pooler(encoder: Any) -> Any:
    """BERT's own pooling of the first token, which nothing here reads."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


@dataclass(frozen=True, slots=True)
class PredictorModel:
    """A predictor ready to be asked."""

    model: LengthModel
    tokenizer: Tokenizer  # cuts and pads
    characters: int  # of a prompt that are read, the last
    bucket_tokens: int

    @staticmethod
    def of(predictor: Predictor) -> PredictorModel:
        """On the CPU. Raises `ArtifactError` where the parts do not fit one another."""
        model = LengthModel(new_encoder(json.loads(predictor.config)))
        fill(model, predictor.weights, predictor.name)
        tokenizer = cutting(tokenizer_of(predictor.tokenizer), predictor.max_length)
        return PredictorModel(model.eval(), tokenizer, CHARACTERS * predictor.max_length, predictor.bucket_tokens)

    def predict(self, texts: Sequence[str]) -> list[Forecast]:
        """In the order of the prompts."""
        found: list[Forecast] = []
        for start in range(0, len(texts), TOGETHER):
            log_BL, class_B = self._run([text[-self.characters :] for text in texts[start : start + TOGETHER]])
            found += [self._forecast(*pair) for pair in zip(log_BL.tolist(), class_B.tolist(), strict=True)]
        return found

    @torch.inference_mode()
    def _run(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        logs_BL, logits_BK = self.model(*tensors([one.ids for one in self.tokenizer.encode_batch(texts)]))
        return logs_BL.exp(), logits_BK.argmax(1)

    def _forecast(self, tokens: list[float], bucket: int) -> Forecast:
        return Forecast(ordered(tokens, BUCKETS * self.bucket_tokens), (bucket + 1) * self.bucket_tokens)


def cutting(tokenizer: Tokenizer, length: int) -> Tokenizer:
    """The same, which keeps the last `length` tokens of a longer text."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(length, direction="left")
    return tokenizer


def tensors(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids [B, N], padded behind with 0, and their mask. An empty row counts as one token 0."""
    longest = max(1, *(len(row) for row in rows))
    ids_BN, mask_BN = (
        torch.zeros(len(rows), longest, dtype=torch.long),
        torch.zeros(len(rows), longest, dtype=torch.long),
    )
    for at, row in enumerate(rows):
        ids_BN[at, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask_BN[at, : max(1, len(row))] = 1
    return ids_BN, mask_BN


def fill(model: nn.Module, values: Mapping[str, NDArray[np.float32]], name: str) -> None:
    """Put the weights in; those that are tied to others need not be named. Raises `ArtifactError`."""
    given = {key: torch.from_numpy(np.array(array)) for key, array in values.items()}
    try:
        missing, unexpected = model.load_state_dict(given, strict=False)
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {error}") from error
    state = model.state_dict()
    held = {state[key].data_ptr() for key in given if key in state}
    lacking = [key for key in missing if state[key].data_ptr() not in held]
    if lacking or unexpected:
        told = ", ".join([*lacking, *unexpected][:4])
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {told}")


def tokenizer_of(text: str) -> Tokenizer:
    """From a tokenizer.json. Raises `ArtifactError`."""
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # its reader raises nothing narrower
        raise ArtifactError(f"the tokenizer is no tokenizer.json that this version reads: {error}") from error
