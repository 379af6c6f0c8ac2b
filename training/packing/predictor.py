"""Trains the predictor of output lengths: one DistilBERT for the quantiles of the log length and S3's classes.

A linear model (ridge on TF-IDF) is fitted to the same prompts, and the one with the smaller pinball loss on those held out
is taken. Where its loss is not clearly below that of the same quantiles for all, and it does not order the prompts by
length beyond chance either, a linear model of these quantiles alone takes its place.

Quantiles are trained by pinball loss (Koenker and Bassett 1978), and each is then shifted until it covers its share of
the held-out prompts (split conformal: Romano, Patterson and Candes 2019). Training stops early, by the held-out pinball
loss. A predictor can be trained further on what it predicted wrongly. Knows no generator but its digest.

Shape suffixes: R prompts, B batch, L quantiles, K classes, F features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from scipy.stats import kendalltau, ttest_rel
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pliant.errors import InputError
from pliant.models.text import SHORTEST
from pliant.packing.artifact import BUCKETS, Predictor
from pliant.packing.engine.model import (
    TOGETHER,
    LengthModel,
    LinearModel,
    PredictorModel,
    cutting,
    new_encoder,
    tensors,
    tokenizer_of,
    weights,
    without_pooler,
)
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER
from pliant.progress import Progress, silent
from pliant.training import loading
from pliant.training.curves import note
from pliant.training.packing.lengths import LengthData, divide
from pliant.training.starts import new_tokenizer, read_tokenizer, reading

Floats = NDArray[np.float64]
KINDS = ("best", "encoder", "linear")
LINEAR_TOKENS = 512  # that the linear model reads of a prompt's end
VOCABULARY, PAIRS = 4000, 8192  # of the linear model: tokens, and hashed pairs of them
STRENGTH = 0.3  # of ridge's penalty
NUMBERS = 64  # lengths of a class to try


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The encoder and its training. Sizes are for the embedded encoder alone. Raises `InputError` outside limits."""

    kind: str = "best"  # encoder, linear, or the better of both where it earns anything
    encoder: str = "embedded"  # or path:FOLDER, hub:NAME
    width: int = 128
    layers: int = 1
    heads: int = 4
    vocabulary: int = 4000
    max_length: int = 128  # tokens that it reads of a prompt's end
    epochs: int = 12
    patience: int = 3  # epochs in a row without a better held-out loss, after which training stops
    held_out: float = 0.15  # share of the prompts for early stopping and calibration
    batch: int = 16  # prompts
    rate: float = 2e-3  # learning rate of new parameters
    pretrained_rate: float = 5e-5  # learning rate of a pretrained encoder
    decay: float = 0.01
    warmup: float = 0.1  # share of all steps
    class_weight: float = 0.2  # of the classes' cross-entropy, where the pinball loss has 1
    limit: int = 0  # most tokens of an output, of which a class is a tenth; 0: of the longest observed output
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("kind", self.kind, f"one of {', '.join(KINDS)}")
        if not 0 < self.held_out < 1:
            raise InputError("held_out", self.held_out, "between 0 and 1")
        if self.width % self.heads:
            raise InputError("width", self.width, f"a multiple of heads, {self.heads}")
        for key, least in (("epochs", 1), ("patience", 0), ("batch", 1), ("max_length", 8), ("limit", 0)):
            if getattr(self, key) < least:
                raise InputError(key, getattr(self, key), f"at least {least}")


def train(
    config: PredictorConfig,
    data: LengthData,
    progress: Progress = silent,
    *,
    name: str = "docstrings",
    generator: str = "",
    test: LengthData | None = None,
    device: str = "cpu",
) -> Predictor:
    """Return the best predictor by held-out loss, with its metrics on `test`, or else on the held-out prompts.

    Where both kinds are made, the metrics hold the pinball loss of either: `encoder_pinball` and `linear_pinball`. Where the
    better earns nothing (`earns`), the predictor returned forecasts the same quantiles for all.
    `generator`: digest of the generator whose lengths these are. Raises `InputError`, and `OfflineError` if an encoder
    cannot be downloaded.
    """
    fit, held = divide(data, config.held_out, config.seed)
    width = -(-(config.limit or int(data.tokens.max())) // BUCKETS)
    runs: dict[str, _Run] = {}
    if config.kind != "encoder":
        runs["linear"] = run = _linear(config, *new_linear(fit.prompts), width)
        run.fit(fit, held, np.ones(len(fit.tokens)))
    if config.kind != "linear":
        torch.manual_seed(config.seed)
        encoder, tokenizer = _start(config, fit.prompts)
        model = LengthModel(encoder)
        _start_at(model, np.quantile(np.log(fit.tokens), QUANTILES))
        fresh = config.encoder == "embedded"
        runs["encoder"] = run = _Run(config, model.to(device), tokenizer, width, torch.device(device), fresh)
        run.epochs(fit, held, np.ones(len(fit.tokens)), progress)
    stored = {kind: _stored(run, name, generator, data) for kind, run in runs.items()}
    judged = {kind: judge(predictor, test or held) for kind, predictor in stored.items()}
    tried = {f"{kind}_pinball": each["pinball"] for kind, each in judged.items()}
    best = min(judged, key=lambda kind: judged[kind]["pinball"])
    chosen, figures = stored[best], judged[best]
    judges = test or held
    forecast_RL = np.array([each.tokens for each in PredictorModel.of(chosen).predict(judges.prompts)])
    if config.kind == "best" and not earns(chosen, forecast_RL, judges.tokens):
        run = runs["linear"]
        assert isinstance(run.model, LinearModel)
        constant(run.model, fit, width)
        run.calibrate(held)
        chosen = _stored(run, name, generator, data)
        figures = judge(chosen, judges)
    return replace(chosen, metrics=figures | tried)


def retrain(
    predictor: Predictor,
    data: LengthData,
    weight_R: Floats,
    config: PredictorConfig | None = None,
    progress: Progress = silent,
    *,
    test: LengthData | None = None,
    device: str = "cpu",
) -> Predictor:
    """Train a predictor further, from its weights. `weight_R`: how much each prompt counts.

    It keeps its kind, the width of its classes and what it reads of a prompt. `config`: the training; None: 4 epochs at a
    smaller rate. Raises `InputError` for another number of weights than prompts.
    """
    config = replace(config or PredictorConfig(epochs=4, rate=3e-4), max_length=predictor.max_length)
    if len(weight_R) != len(data.tokens):
        raise InputError("weights", f"{len(weight_R)} of them", f"as many as prompts, {len(data.tokens)}")
    torch.manual_seed(config.seed)
    start = PredictorModel.of(predictor)
    start.model.shift.zero_()
    tokenizer = cutting(tokenizer_of(predictor.tokenizer), predictor.max_length)
    fit, held = divide(data, config.held_out, config.seed)
    weight_of = dict(zip(data.prompts, weight_R.tolist(), strict=True))
    fresh = config.encoder == "embedded"
    weight_R = np.array([weight_of[prompt] for prompt in fit.prompts])
    if isinstance(start.model, LinearModel):
        run = _linear(config, start.model, tokenizer, predictor.bucket_tokens)
        run.fit(fit, held, weight_R)
    else:
        run = _Run(config, start.model.to(device), tokenizer, predictor.bucket_tokens, torch.device(device), fresh)
        run.epochs(fit, held, weight_R, progress)
    retrained = _stored(run, predictor.name, predictor.generator, data)
    return replace(retrained, metrics=judge(retrained, test or held))


def mispredicted(predictor: Predictor, data: LengthData, weight: float = 3.0) -> Floats:
    """Return [R]: `weight` for outputs outside the quantiles 0.1 to 0.9 or of another class than predicted, else 1."""
    forecasts = PredictorModel.of(predictor).predict(data.prompts)
    low, high = (np.array([forecast.tokens[QUANTILES.index(level)] for forecast in forecasts]) for level in (0.1, 0.9))
    bound = np.array([forecast.bucket for forecast in forecasts])
    other = np.minimum(-(-data.tokens // predictor.bucket_tokens), BUCKETS) != bound // predictor.bucket_tokens
    return np.where((data.tokens < low) | (data.tokens > high) | other, weight, 1.0)


@dataclass(frozen=True, slots=True)
class _Run:
    """One training of a model."""

    config: PredictorConfig
    model: LengthModel | LinearModel
    tokenizer: Tokenizer
    width: int  # of a class, in tokens
    device: torch.device
    fresh: bool  # whether the encoder is new, and learns as fast as the heads

    def fit(self, fit: LengthData, held: LengthData, weight_R: Floats) -> None:
        """Fit a linear model, calibrated."""
        assert isinstance(self.model, LinearModel)
        fit_linear(self.model, self.tokenizer, fit, weight_R, self.width)
        self.calibrate(held)

    def epochs(self, fit: LengthData, held: LengthData, weight_R: Floats, progress: Progress) -> None:
        """Train until the loss stops falling, and leave the best epoch's weights in the model, calibrated.

        Raises `InputError` if the loss diverges.
        """
        rows, kept_out = self._rows(fit, weight_R), self._rows(held)
        steps = self.config.epochs * math.ceil(len(rows) / self.config.batch)
        optimizer = self._optimizer()
        best, kept, stale, done = math.inf, None, 0, 0
        for epoch in range(self.config.epochs):
            for batch in _batches(rows, self.config.batch, self.config.seed + epoch):
                note("loss", done, steps, self._step(optimizer, batch, done, steps))
                done += 1
                progress(done, steps)
            loss = self._judge(kept_out)
            note("held_out_loss", epoch, self.config.epochs, loss)
            if loss < best:
                best, kept, stale = loss, {key: value.clone() for key, value in self.model.state_dict().items()}, 0
            elif (stale := stale + 1) > self.config.patience:
                break
        progress(steps, steps)
        if kept is None:
            raise InputError("rate", self.config.rate, "so small that the loss stays finite")
        self.model.load_state_dict(kept)
        self.calibrate(held)

    def _rows(self, data: LengthData, weight_R: Floats | None = None) -> list[_Row]:
        encoded = self.tokenizer.encode_batch(list(data.prompts))
        weights = [1.0] * len(encoded) if weight_R is None else weight_R.tolist()
        columns = zip(encoded, data.tokens.tolist(), weights, strict=True)
        return [_Row(encoding.ids, tokens, weight) for encoding, tokens, weight in columns]

    def _optimizer(self) -> torch.optim.Optimizer:
        assert isinstance(self.model, LengthModel)
        encoder = list(self.model.encoder.parameters())
        heads = [*self.model.quantile.parameters(), *self.model.bucket.parameters()]
        peak = self.config.rate if self.fresh else self.config.pretrained_rate
        groups = [{"params": encoder, "peak": peak}, {"params": heads, "peak": self.config.rate}]
        return torch.optim.AdamW(groups, lr=peak, weight_decay=self.config.decay, fused=True)

    def _step(self, optimizer: torch.optim.Optimizer, batch: list[_Row], step: int, steps: int) -> Tensor:
        """Learn from a batch, and return its loss."""
        rise = max(1, round(self.config.warmup * steps))
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min((step + 1) / rise, (steps - step) / max(1, steps - rise))
        self.model.train()
        pinball_B, cross_B, weight_B = self._losses(batch)
        optimizer.zero_grad()
        loss = ((pinball_B + self.config.class_weight * cross_B) * weight_B).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def _losses(self, batch: list[_Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each row its pinball loss, the cross-entropy of its class, and its weight."""
        logs_BL, logits_BK = self._outputs(batch)
        tokens_B = torch.tensor([row.tokens for row in batch], device=self.device)
        weight_B = torch.tensor([row.weight for row in batch], device=self.device, dtype=torch.float32)
        class_B = ((tokens_B - 1) // self.width).clamp(max=BUCKETS - 1)
        return pinball(logs_BL, tokens_B.log()), cross_entropy(logits_BK, class_B, reduction="none"), weight_B

    def _outputs(self, batch: list[_Row]) -> tuple[Tensor, Tensor]:
        ids_BN, mask_BN = tensors([row.ids for row in batch])
        outputs: tuple[Tensor, Tensor] = self.model(ids_BN.to(self.device), mask_BN.to(self.device))
        return outputs

    @torch.no_grad()
    def _judge(self, rows: list[_Row]) -> float:
        self.model.eval()
        losses = [self._losses(batch)[0] for batch in _batches(rows, 4 * self.config.batch, 0)]
        return float(torch.cat(losses).mean())

    @torch.no_grad()
    def calibrate(self, held: LengthData) -> None:
        """Shift each quantile by that quantile of its errors: at least its share is covered, below 0.5 at most."""
        rows = self._rows(held)
        self.model.eval()
        logs_RL = torch.cat([self._outputs(rows[at : at + 64])[0] for at in range(0, len(rows), 64)]).cpu().numpy()
        over_RL = np.log([[row.tokens] for row in rows]) - logs_RL
        n = len(rows)
        at_L = [min(1.0, math.ceil((n + 1) * p) / n) if p >= 0.5 else math.floor((n + 1) * p) / n for p in QUANTILES]
        shift_L = [np.quantile(over_RL[:, k], at, method="inverted_cdf") for k, at in enumerate(at_L)]
        self.model.shift.copy_(torch.tensor(np.array(shift_L), dtype=torch.float32))


@dataclass(frozen=True, slots=True)
class _Row:
    ids: list[int]
    tokens: int
    weight: float


def _linear(config: PredictorConfig, model: LinearModel, tokenizer: Tokenizer, width: int) -> _Run:
    return _Run(replace(config, max_length=LINEAR_TOKENS), model, tokenizer, width, torch.device("cpu"), fresh=True)


def pinball(logs_BL: Tensor, target_B: Tensor) -> Tensor:
    """Return the pinball loss [B], averaged over the quantiles."""
    over_BL = target_B[:, None] - logs_BL
    level_L = torch.tensor(QUANTILES, dtype=logs_BL.dtype, device=logs_BL.device)
    return torch.maximum(level_L * over_BL, (level_L - 1) * over_BL).mean(1)


def _batches(rows: list[_Row], size: int, seed: int) -> Iterable[list[_Row]]:
    """Return batches in random order, of rows of similar length: sorted by length within runs of 20 batches."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(rows))
    batches = []
    for at in range(0, len(rows), 20 * size):
        run = sorted(shuffled[at : at + 20 * size], key=lambda i: len(rows[i].ids))
        batches += [[rows[i] for i in run[start : start + size]] for start in range(0, len(run), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _start_at(model: LengthModel, log_L: Floats) -> None:
    """Set the heads to predict these log quantiles [L] for every prompt."""
    step_L = np.maximum(np.diff(log_L), 0.02)
    with torch.no_grad():
        for head in (model.quantile, model.bucket):
            head.weight.zero_()
        bias_L = np.array([log_L[0], *(np.log(np.expm1(step_L)))])
        model.quantile.bias.copy_(torch.tensor(bias_L, dtype=torch.float32))
        model.bucket.bias.zero_()


def _start(config: PredictorConfig, texts: Iterable[str]) -> tuple[Any, Tokenizer]:
    """Return a new small DistilBERT with a new vocabulary, or the encoder and tokenizer at the address."""
    if config.encoder == "embedded":
        tokenizer = new_tokenizer(texts, config.vocabulary)
        sizes = {
            "model_type": "distilbert",
            "vocab_size": tokenizer.get_vocab_size(),
            "dim": config.width,
            "n_layers": config.layers,
            "n_heads": config.heads,
            "hidden_dim": 4 * config.width,
            "max_position_embeddings": config.max_length,
            "pad_token_id": 0,
        }
        return new_encoder(sizes), cutting(tokenizer, config.max_length)
    encoder, tokenizer = read_encoder(config.encoder, config.max_length)
    return encoder, cutting(tokenizer, config.max_length)


def _stored(run: _Run, name: str, generator: str, data: LengthData) -> Predictor:
    bare = Tokenizer.from_str(run.tokenizer.to_str())
    bare.no_truncation()
    marginal = tuple(float(x) for x in np.quantile(data.tokens, QUANTILES))
    trained = weights(run.model)
    return Predictor(
        *(name, generator, run.model.config, bare.to_str(), run.config.max_length, QUANTILES, run.width, marginal),
        metrics={},
        data=data.fingerprint,
        weights=trained,
    )


def read_encoder(address: str, max_length: int) -> tuple[nn.Module, Tokenizer]:
    """Return the encoder and tokenizer at `path:FOLDER` or `hub:NAME`; `max_length`: tokens that it must read.

    Raises `InputError`, and `OfflineError` if the hub is out of reach.
    """
    with reading(address, "encoder", "embedded", "the embedded encoder (embedded)") as (_, name):
        encoder, tokenizer = _load(name, max_length), read_tokenizer(name)
        _try(encoder, name)
        loading.check_tokens(tokenizer, encoder, name, "encoder")
    return encoder, tokenizer


def _try(encoder: nn.Module, name: str) -> None:
    """Raise `InputError` for a model that cannot be read by a predictor, such as one that wants a second text."""
    try:
        LengthModel(encoder)(*tensors([range(SHORTEST)]))
    except Exception as error:  # models raise all kinds for what they are not made for
        value = f"{name}, whose {type(encoder).__name__} cannot be run by token ids and a mask alone"
        raise InputError("encoder", value, "an encoder of transformers") from error


def _load(name: str, max_length: int) -> nn.Module:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
    logging.disable_progress_bar()
    model = loading.load(AutoModel, name, "encoder", loading.headless, dtype=torch.float32)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and max_length > positions:
        raise InputError("max_length", max_length, f"at most {positions} for this encoder")
    encoder: nn.Module = without_pooler(model)
    return encoder


def new_linear(prompts: Iterable[str]) -> tuple[LinearModel, Tokenizer]:
    """Return a model that predicts nothing yet, with the inverse document frequencies of these prompts."""
    texts = list(prompts)
    tokenizer = cutting(new_tokenizer(texts, VOCABULARY), LINEAR_TOKENS)
    model = LinearModel(tokenizer.get_vocab_size(), PAIRS)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    having_F = np.asarray((_features(model, tokenizer, texts) > 0).sum(0)).ravel()
    model.idf.copy_(torch.from_numpy(np.log((1 + len(texts)) / (1 + having_F)) + 1))
    return model, tokenizer


def fit_linear(
    model: LinearModel, tokenizer: Tokenizer, data: LengthData, weight_R: NDArray[np.float64], width: int
) -> None:
    """Fit what the model leaves unexplained of the log lengths and classes: a new one from nothing, another one further.

    `width`: of a class, in tokens.
    """
    from sklearn.linear_model import Ridge

    feature_RF = _features(model, tokenizer, list(data.prompts))
    class_R = np.minimum((data.tokens - 1) // width, BUCKETS - 1)
    wanted_RK = np.column_stack([np.log(data.tokens), np.eye(BUCKETS)[class_R]])
    weight_KF, bias_K = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    ridge = Ridge(STRENGTH).fit(feature_RF, wanted_RK - (feature_RF @ weight_KF.T + bias_K), sample_weight=weight_R)
    with torch.no_grad():
        model.head.weight.add_(torch.from_numpy(ridge.coef_).float())
        model.head.bias.add_(torch.from_numpy(ridge.intercept_).float())


@torch.no_grad()
def constant(model: LinearModel, data: LengthData, width: int) -> None:
    """Let a model predict the same for every prompt: these prompts' mean log length and most frequent class."""
    class_R = np.minimum((data.tokens - 1) // width, BUCKETS - 1)
    wanted_K = [np.log(data.tokens).mean(), *(np.bincount(class_R, minlength=BUCKETS) / len(class_R))]
    model.head.weight.zero_()
    model.shift.zero_()
    model.head.bias.copy_(torch.tensor(np.array(wanted_K), dtype=torch.float32))


@torch.no_grad()
def _features(model: LinearModel, tokenizer: Tokenizer, texts: list[str]) -> csr_matrix:
    """Return what the model's layer reads of the prompts [R, F]."""
    starts = range(0, len(texts), TOGETHER)
    batches = ([each.ids for each in tokenizer.encode_batch(texts[at : at + TOGETHER])] for at in starts)
    return vstack([csr_matrix(model.features(*tensors(ids)).numpy()) for ids in batches], format="csr")


def saving(predictor: Predictor, quantile_RL: NDArray[Any], tokens_R: NDArray[Any]) -> tuple[float, float, float]:
    """Return how much less these quantiles lose than those of the training lengths, and the 95% interval of that.

    What is lost is the pinball loss of logarithms, as in training. `quantile_RL`, `tokens_R`: in tokens.
    """
    constant_R, loss_R = (losses(each, tokens_R) for each in (np.maximum(predictor.marginal, 1.0)[None], quantile_RL))
    low, high = ttest_rel(constant_R, loss_R).confidence_interval(0.95)
    return float((constant_R - loss_R).mean()), float(low), float(high)


def earns(predictor: Predictor, quantile_RL: NDArray[Any], tokens_R: NDArray[Any]) -> bool:
    """Return whether quantiles lose less than those of the training lengths, and that or their order is beyond chance.

    Either has a probability of at most 2.5% by chance: the loss by a paired t-test, the order by Kendall's tau.
    """
    saved, low, _ = saving(predictor, quantile_RL, tokens_R)
    order = kendalltau(quantile_RL[:, MEDIAN], tokens_R, alternative="greater")
    return saved > 0 and (low > 0 or order.pvalue < 0.025)


def judge(predictor: Predictor, data: LengthData) -> dict[str, float]:
    """Return the figures of a predictor on these prompts:

    bucket_accuracy, majority_class   accuracy of the predicted classes of length, and of the most frequent class
    tau                               Kendall's tau-b of the predicted medians and the lengths
    pinball, constant_pinball         mean loss of the log quantiles, and of the training lengths' own quantiles
    majority_pinball                  loss of the one length of the most frequent class that fits these prompts best
    coverage_LEVEL                    share of outputs of at most that quantile
    over_0.9, under_0.9               tokens a prompt reserved too many and too few, at the quantile 0.9
    over_bucket, under_bucket         the same at the predicted class's bound
    over_constant, under_constant     the same at the training lengths' own quantile 0.9
    """
    forecasts = PredictorModel.of(predictor).predict(data.prompts)
    quantile_RL = np.array([forecast.tokens for forecast in forecasts])
    constant_RL = np.broadcast_to(np.maximum(predictor.marginal, 1.0), quantile_RL.shape)
    bound_R, width = np.array([forecast.bucket for forecast in forecasts]), predictor.bucket_tokens
    class_R = np.minimum((data.tokens - 1) // width, BUCKETS - 1)
    shares_K = np.bincount(class_R, minlength=BUCKETS) / len(class_R)
    majority = int(shares_K.argmax())
    numbers = np.unique(np.rint(np.geomspace(majority * width + 1, (majority + 1) * width, NUMBERS)))
    return {
        "bucket_accuracy": float(np.mean(bound_R // width - 1 == class_R)),
        "majority_class": float(shares_K.max()),
        "tau": float(np.nan_to_num(kendalltau(quantile_RL[:, MEDIAN], data.tokens).statistic)),
        "pinball": _loss(quantile_RL, data.tokens),
        "constant_pinball": _loss(constant_RL, data.tokens),
        "majority_pinball": min(_loss(np.full_like(quantile_RL, number), data.tokens) for number in numbers),
        **{
            f"coverage_{level:g}": float(np.mean(data.tokens <= quantile_RL[:, k])) for k, level in enumerate(QUANTILES)
        },
        **_reserved("0.9", quantile_RL[:, UPPER], data.tokens),
        **_reserved("bucket", bound_R, data.tokens),
        **_reserved("constant", constant_RL[:, UPPER], data.tokens),
    }


def losses(quantile_RL: NDArray[Any], tokens_R: NDArray[Any]) -> Floats:
    """Return [R] the pinball losses of the log lengths, averaged over the quantiles."""
    logs = (torch.from_numpy(np.log(each.astype(float))) for each in (quantile_RL, tokens_R))
    return pinball(*logs).numpy()


def _loss(quantile_RL: Floats, tokens_R: NDArray[np.int32]) -> float:
    return float(losses(quantile_RL, tokens_R).mean())


def _reserved(name: str, bound_R: NDArray[Any], tokens_R: NDArray[np.int32]) -> dict[str, float]:
    over_R = bound_R - tokens_R
    return {
        f"over_{name}": float(np.mean(np.maximum(over_R, 0))),
        f"under_{name}": float(np.mean(np.maximum(-over_R, 0))),
    }
