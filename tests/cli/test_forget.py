"""`pliant forget` removes what a service kept of what people sent, of some answers or of all, and says how many."""

from __future__ import annotations

import json
import time

import pytest

from pliant import labelling
from pliant.outcomes.files import folder_of, input_ids
from pliant.serving.client import Client
from pliant.serving.loop.outcome_store import Inputs
from pliant.serving.loop.outcomes import chosen_id
from tests.fixtures.commands import refused, shown
from tests.fixtures.labels import REVIEWS

ACME, OTHERS = Client("acme"), Client("o'neill")


@pytest.fixture(params=[".pliant", ".pliant/services/tokens"])
def inputs(here, request):
    """Inputs that a running service keeps: of two of its own ids, and of ids that clients chose; also in its own home."""
    folder = folder_of(here / request.param, "tokens")
    folder.mkdir(parents=True)
    inputs = Inputs(folder, 1e9)
    for id in ("first", "first/1", "second", chosen_id(ACME, "mine"), chosen_id(OTHERS, "mine/1"), "mine2"):
        inputs.keep(id, "digit", "uint8 1 1 1", b"private")
    inputs.write()
    yield folder
    inputs.close()


def test_the_inputs_of_an_answer_go_by_its_id_also_where_a_client_chose_it(inputs, capsys):
    assert shown(["forget", "tokens", "--id", "second"], capsys) == "tokens: removed 1 kept input.\n"
    assert input_ids(inputs) == ["first", "first/1", chosen_id(ACME, "mine"), chosen_id(OTHERS, "mine/1"), "mine2"]
    words = ["forget", "tokens", "--id", "mine", "--id", "first", "--id", "unknown"]
    assert shown(words, capsys) == "tokens: removed 4 kept inputs.\n"
    assert input_ids(inputs) == ["mine2"]
    assert shown(["forget", "tokens", "--id", ".*"], capsys) == "tokens: removed 0 kept inputs.\n"


def test_all_inputs_go_at_once_and_leave_no_byte(inputs, capsys):
    assert shown(["forget", "tokens", "--all"], capsys) == "tokens: removed 6 kept inputs.\n"
    assert input_ids(inputs) == [] and b"private" not in b"".join(path.read_bytes() for path in inputs.iterdir())
    assert shown(["forget", "tokens", "--all"], capsys) == "tokens: removed 0 kept inputs.\n"


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["tokens"], "forget is no id, but must be given one of --id ID, --tenant NAME, --days N and --all"),
        (["tokens", "--all", "--id", "x"], "forget is --id and --all, but must be given one of --id ID, --tenant NAME"),
        (
            ["tokens", "--tenant", "acme"],
            "--tenant is acme, but must be left out, as inputs are kept without the tenant",
        ),
        (["packing", "--tenant", "acme"], "one that was started with --observe, and there is no "),
        (["cascade", "--all"], "one whose inputs are kept, and there is no "),
        (["cascade", "--id", "x"], "a service keeps inputs only with PLIANT_KEEP_INPUTS=true"),
        (["sandwiches", "--all"], "SYSTEM is sandwiches"),
    ],
)
def test_what_cannot_be_forgotten_is_refused_with_a_sentence(words, sentence, inputs, capsys):
    assert sentence in refused(["forget", *words], capsys)
    assert len(input_ids(inputs)) == 6


def test_a_file_that_cannot_be_read_is_a_sentence(here, capsys):
    folder = folder_of(here / ".pliant", "cascade")
    folder.mkdir(parents=True)
    (folder / "inputs.db").write_bytes(b"no database, but long enough to be looked at " * 30)
    assert "a file that can be read" in refused(["forget", "cascade", "--all"], capsys)
    assert "a file that can be read" in refused(["forget", "cascade", "--id", "x"], capsys)


def test_observed_prompts_go_by_the_answers_id_by_tenant_and_by_age_while_a_service_appends(here, capsys):
    folder, now = here / ".pliant" / "observed", time.time()
    folder.mkdir(parents=True)
    lines = [
        ("tales", "a", "acme", 0),
        ("tales.1", "b", "acme", 9),
        ("tales.1", "c", "evil", 1),
        ("tales", "d", "evil", 40),
    ]
    for model, id, tenant, days in lines:
        entry = {"prompt": f"private {id}", "id": id, "tenant": tenant, "time": now - 86_400 * days}
        with (folder / f"{model}.jsonl").open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
    with (folder / "tales.jsonl").open("ab") as service:
        assert shown(["forget", "packing", "--id", "chatcmpl-a"], capsys) == "packing: removed 1 observed prompt.\n"
        assert shown(["forget", "packing", "--days", "30"], capsys) == "packing: removed 1 observed prompt.\n"
        service.write(json.dumps({"prompt": "new", "id": "e", "tenant": "", "time": now}).encode() + b"\n")
    assert shown(["forget", "packing", "--tenant", "acme"], capsys) == "packing: removed 1 observed prompt.\n"
    left = [json.loads(line) for path in folder.iterdir() for line in path.read_bytes().splitlines() if line.strip()]
    assert sorted(entry["id"] for entry in left) == ["c", "e"]
    assert shown(["forget", "packing", "--all"], capsys) == "packing: removed 2 observed prompts.\n"
    assert not b"".join(path.read_bytes() for path in folder.iterdir()).strip()


def test_a_text_goes_with_its_label_and_with_the_question_that_a_flow_asks_of_it(here, capsys):
    folder, questions = folder_of(here / ".pliant", "cascade"), labelling.folder_of(here / ".pliant")
    folder.mkdir(parents=True)
    inputs = Inputs(folder, 1e9)
    inputs.keep("x", "reviews", "json", json.dumps([REVIEWS.texts[0][0]]).encode())
    inputs.write()
    inputs.close()
    labelling.ask(questions, REVIEWS)
    labelling.take(questions, "reviews", [(*text, "neutral") for text in REVIEWS.texts[:2]], "me")
    assert shown(["forget", "cascade", "--id", "x"], capsys) == "cascade: removed 1 kept input.\n"
    assert labelling.questions_of(questions, "reviews").texts == REVIEWS.texts[1:]
    assert [each.first for each in labelling.answers(questions, "reviews")] == [REVIEWS.texts[1][0]]
    assert REVIEWS.texts[0][0].encode() not in b"".join(path.read_bytes() for path in questions.iterdir())
