"""Linear models of scikit-learn, which every trained model is compared with on the same held-out rows.

Texts are read by TF-IDF, with logistic regression for classes and ridge for numbers; pictures by logistic regression on the
pixels of `SIDE` x `SIDE`. They are fitted on the fit split, on `ROWS` of its rows drawn at random where it has more. Of the
largest problems tried (7,000 texts of 18 classes, 9,000 pictures of 100) that takes about 10 s of a core.

Shape suffixes: R rows, K outputs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.training.data import ImageData
from pliant.training.text_data import TextData

ROWS = 10_000  # that a linear model is fitted on, at most
WORDS = 20_000  # the most frequent ones are read
SIDE = 8  # pixels
ITERATIONS = 100  # of logistic regression, at most
BOUND = 2.0  # standard errors of the mean difference a row, beyond which a model is worse

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearComparison:
    """A model and a linear one on the same held-out rows, by a paired test of their losses a row.

    `measure`: accuracy, of which more is better, or mean squared error. `margin`: by how much the model's mean loss is
    above the linear one's; `error`: the standard error of that.
    """

    KIND: ClassVar[str] = "linear-comparison"
    SCHEMA: ClassVar[int] = 2

    linear: str  # what the linear model is
    measure: str
    model_score: float
    linear_score: float
    margin: float
    error: float
    fitted: int  # rows that the linear model has seen
    tested: int
    constant_score: float  # of the class that most rows of the fit split have, or of their mean, as the only answer

    @property
    def learnt(self) -> bool:
        """Whether the model does better than one answer to everything."""
        better = self.model_score - self.constant_score
        return better > 0 if self.measure == "accuracy" else better < 0

    @property
    def worse(self) -> bool:
        """Whether the model is worse beyond chance."""
        return self.margin > BOUND * self.error

    def describe(self) -> str:
        return (
            f"{self.measure} {self.model_score:.4f} against {self.linear_score:.4f} of {self.linear}, on {self.tested:,} "
            "held-out rows"
        )

    def metrics(self) -> dict[str, float]:
        return {"linear.score": self.linear_score, "linear.model_score": self.model_score, "linear.margin": self.margin}


def compare_texts(data: TextData, output_RK: NDArray[Any]) -> LinearComparison:
    """Return how a model does that has these outputs on the test split: logits of the classes, or numbers [R, 1]."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    drawn, test = _drawn(data.split.fit), data.split.test
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", sublinear_tf=True, max_features=WORDS)
    seen, held = words.fit_transform(_joined(data, drawn)), words.transform(_joined(data, test))
    label_R = data.labels[test]
    if data.regression:
        predicted_R = Ridge().fit(seen, data.labels[drawn]).predict(held)
        mean = data.labels[data.split.fit].mean()
        losses = [(numbers_R - label_R) ** 2 for numbers_R in (output_RK[:, 0], predicted_R, mean)]
        return _compared("TF-IDF with ridge", "mean squared error", losses, len(drawn))
    predicted_R = _classify(seen, data.labels[drawn], held, 10.0)
    losses = [np.asarray(classes != label_R) for classes in (output_RK.argmax(1), predicted_R, _majority(data))]
    return _compared("TF-IDF with logistic regression", "accuracy", losses, len(drawn))


def compare_pictures(data: ImageData, rows: NDArray[np.int64], right_R: NDArray[np.bool_]) -> LinearComparison:
    """Return how a model does that is right on these of the held-out `rows`."""
    drawn = _drawn(data.split.fit)
    seen, held = (data.images.batch(index, SIDE).reshape(len(index), -1) / 255 for index in (drawn, rows))
    predicted_R = _classify(seen, data.labels[drawn], held, 1.0)
    losses = [~right_R, *(np.asarray(each != data.labels[rows]) for each in (predicted_R, _majority(data)))]
    return _compared("logistic regression on pixels", "accuracy", losses, len(drawn))


def _majority(data: TextData | ImageData) -> int:
    return int(np.bincount(data.labels[data.split.fit].astype(np.int64)).argmax())


def _drawn(fit: NDArray[np.int64]) -> NDArray[np.int64]:
    return fit if len(fit) <= ROWS else np.random.default_rng(0).choice(fit, ROWS, replace=False)


def _joined(data: TextData, index: NDArray[np.int64]) -> list[str]:
    return [f"{first} {second or ''}" for first, second in data.texts(index)]


def _classify(seen: Any, label_R: NDArray[Any], held: Any, strength: float) -> NDArray[np.int64]:
    """Return the classes of what was held out by logistic regression; `strength`: inverse of the regularisation's."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    if len(set(label_R.tolist())) < 2:
        return np.full(held.shape[0], label_R[0])
    with warnings.catch_warnings(), threadpool_limits(1):  # many small steps
        warnings.simplefilter("ignore")  # that it has not converged: ITERATIONS bounds its time
        predicted: NDArray[np.int64] = (
            LogisticRegression(C=strength, max_iter=ITERATIONS).fit(seen, label_R).predict(held)
        )
    return predicted


def _compared(linear: str, measure: str, losses: list[NDArray[Any]], fitted: int) -> LinearComparison:
    """Return the comparison by the losses [R] of the model, the linear one and a constant: of accuracy, what is wrong."""
    model_R, linear_R, constant_R = (loss_R.astype(float) for loss_R in losses)
    difference_R, rows = model_R - linear_R, len(model_R)
    error = float(difference_R.std(ddof=1)) / rows**0.5 if rows > 1 else np.inf
    model, other, constant = (
        float(1 - loss_R.mean() if measure == "accuracy" else loss_R.mean())
        for loss_R in (model_R, linear_R, constant_R)
    )
    return LinearComparison(linear, measure, model, other, float(difference_R.mean()), error, fitted, rows, constant)
