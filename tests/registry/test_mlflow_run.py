"""What a run logs, and how MLflow's failures are said: whether something is missing or nobody answers, and no secret."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException, RestException

from pliant.errors import RegistryError, UnreachableError
from registry.mlflow_run import Run, measured, registry_errors

URI = "postgresql://ann:geheim@db/registry"


class Client:
    """Keeps what it was called with; `error` is raised instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls, self._error = [], error

    def __getattr__(self, name):
        def call(*given, **more):
            if self._error:
                raise self._error
            self.calls.append((name, given, more))

        return call


def run(error: Exception | None = None) -> tuple[Run, Client]:
    client = Client(error)
    return Run(client, URI, "r1", "e1"), client


def test_parameters_are_logged_as_texts_together():
    logging, client = run()
    logging.params({"rate": 0.5, "levels": (1, 2)})
    ((name, given, more),) = client.calls
    assert (name, given) == ("log_batch", ("r1",))
    assert {(param.key, param.value) for param in more["params"]} == {("rate", "0.5"), ("levels", "(1, 2)")}


def test_metrics_have_their_step_and_the_present_time_in_milliseconds():
    logging, client = run()
    before = time.time()
    logging.metrics({"loss": 0.25}, 7)
    logging.metrics({"loss": 0.5})
    (first,), (second,) = (more["metrics"] for _, _, more in client.calls)
    assert (first.key, first.value, first.step, second.step) == ("loss", 0.25, 7, 0)
    assert 1000 * before - 1 <= first.timestamp <= 1000 * time.time() + 1
    (metric,) = measured({"share": 0.5}, 3, "m1")
    assert (metric.model_id, metric.step) == ("m1", 3)


def test_figures_and_documents_are_files_by_their_names():
    logging, client = run()
    logging.figure("curve", "figure")
    logging.document("plan", {"a": 1})
    logging.text("report.md", "fine")
    logging.end("FINISHED")
    assert client.calls == [
        ("log_figure", ("r1", "figure", "curve.png"), {}),
        ("log_dict", ("r1", {"a": 1}, "plan.json"), {}),
        ("log_text", ("r1", "fine", "report.md"), {}),
        ("set_terminated", ("r1", "FINISHED"), {}),
    ]


def test_a_data_set_keeps_its_whole_fingerprint_beside_the_short_one():
    logging, client = run()
    fingerprint = "sha256:" + "ab" * 32
    logging.dataset("digits", fingerprint, "/data", "testing")
    ((name, (run_id, (given,)), _),) = client.calls
    assert (name, run_id) == ("log_inputs", "r1")
    assert given.dataset.name == "digits" and given.dataset.digest == fingerprint[:36]
    assert json.loads(given.dataset.profile) == {"fingerprint": fingerprint}
    assert json.loads(given.dataset.source) == {"uri": "/data"}
    assert [(tag.key, tag.value) for tag in given.tags] == [("mlflow.data.context", "testing")]


def answered(status: int) -> Exception:
    error = RestException({"error_code": "INTERNAL_ERROR", "message": "no"})
    error.response = SimpleNamespace(status_code=status)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MlflowException("gone", error_code=5002), UnreachableError),
        (RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "gone"}), RegistryError),
        (RestException({"error_code": "NOT_FOUND", "message": "gone"}), RegistryError),
        (RestException({"error_code": "INTERNAL_ERROR", "message": "ill"}), UnreachableError),
        (answered(404), RegistryError),
        (answered(500), UnreachableError),
        (FileNotFoundError("no file"), RegistryError),
        (MlflowException("No such file or directory: 'x'"), RegistryError),
        (ConnectionError("refused"), UnreachableError),
        (OSError(), UnreachableError),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_registry_that_answers_that_something_is_missing_is_told_from_one_that_fails(error, kind):
    with pytest.raises(RegistryError) as caught:
        run(error)[0].text("report.md", "fine")
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_the_sentence_says_what_failed_where_and_why_in_one_line_without_a_password():
    with pytest.raises(UnreachableError) as caught, registry_errors(URI, "the models could not be listed"):
        raise ConnectionError(f"refused by {URI}\nat line 3")
    sentence = str(caught.value)
    assert sentence.startswith("the models could not be listed at ") and "refused by" in sentence
    assert "geheim" not in sentence and "\n" not in sentence and "line 3" not in sentence


def test_an_error_without_a_message_is_named_by_its_kind():
    with pytest.raises(UnreachableError, match=r": TimeoutError$"), registry_errors(URI, "it failed"):
        raise TimeoutError


def test_our_own_faults_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), registry_errors(URI, "it failed"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda logging: logging.params({"a": 1}), "parameters could not be logged"),
        (lambda logging: logging.metrics({"a": 1}), "metrics could not be logged"),
        (lambda logging: logging.figure("curve", None), "figure curve could not be logged"),
        (lambda logging: logging.document("plan", {}), "plan could not be logged"),
        (lambda logging: logging.text("report.md", ""), "report.md could not be logged"),
        (lambda logging: logging.dataset("digits", "x", "y"), "data set digits could not be logged"),
        (lambda logging: logging.end("FAILED"), "the run could not be ended"),
    ],
)
def test_whatever_cannot_be_logged_is_named(act, sentence):
    with pytest.raises(UnreachableError, match=f"^{sentence} at "):
        act(run(ConnectionError("refused"))[0])
