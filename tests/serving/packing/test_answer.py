"""Answers and chunks of a stream have OpenAI's shape, for completions and for chats."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from pliant.serving.packing.openai import Form

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def reply(echo=False, usage=False, count=1, logprobs=None, continuous=False):
    info = SimpleNamespace(
        id="ab12", model="tales", fingerprint="fp_1", echo=echo, usage=usage, continuous_usage=continuous
    )
    choices = [
        SimpleNamespace(
            index=index,
            echo="Once",
            logprobs=logprobs,
            details={"actual_tokens": 4},
            take=lambda: [" upon"],
            finish_reason="stop",
        )
        for index in range(count)
    ]
    usage_of = lambda choice: {**USAGE, "index": choice.index}  # noqa: E731
    return SimpleNamespace(info=info, choices=choices, answered=choices, usage=USAGE, usage_of=usage_of)


@pytest.mark.parametrize("chat", [True, False])
def test_all_chunks_of_a_stream_belong_together_and_to_no_other_stream(chat):
    form, stream = Form(chat), reply()
    (choice,) = stream.choices
    chunks = [form.part(stream, choice, "a"), form.last(stream, choice), form.usage(stream)]
    for name in ("id", "created", "model", "system_fingerprint", "object"):
        assert len({chunk[name] for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-" if chat else "cmpl-") and chunks[0]["model"] == "tales"
    assert chunks[0]["object"] == ("chat.completion.chunk" if chat else "text_completion")


@pytest.mark.parametrize(("echo", "text"), [(True, "Once upon"), (False, " upon")])
def test_a_whole_completion_has_its_prompt_in_front_if_it_is_to_be_repeated(echo, text):
    answer = Form(chat=False).whole(reply(echo=echo, count=2))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    expected = {"text": text, "logprobs": None, "finish_reason": "stop", "pliant": {"actual_tokens": 4}, "index": 0}
    assert answer["choices"][0] == expected
    assert (answer["object"], answer["usage"]) == ("text_completion", USAGE)


def test_a_whole_chat_holds_the_assistants_message():
    answer = Form(chat=True).whole(reply(echo=True))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": " upon", "refusal": None}


def test_a_chats_stream_begins_with_the_role_and_a_completions_with_the_prompt_that_is_repeated():
    chat, completion = Form(chat=True), Form(chat=False)
    (choice,) = reply().choices
    assert chat.first(reply(), choice)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert completion.first(reply(), choice) is None
    assert completion.first(reply(echo=True), choice)["choices"][0]["text"] == "Once"
    choice.echo = ""
    assert completion.first(reply(echo=True), choice) is None


def test_a_chunk_holds_the_next_text_and_the_last_one_how_it_ended():
    (choice,) = reply().choices
    for form, key, text in ((Form(chat=True), "delta", {"content": "a"}), (Form(chat=False), "text", "a")):
        middle, last = (chunk["choices"][0] for chunk in (form.part(reply(), choice, "a"), form.last(reply(), choice)))
        assert middle == {"index": 0, key: text, "logprobs": None, "finish_reason": None}
        empty = {} if key == "delta" else ""
        end = {"logprobs": None, "finish_reason": "stop", "pliant": {"actual_tokens": 4}}
        assert last == {"index": 0, key: empty, **end}


def test_numbers_of_tokens_come_in_a_last_chunk_where_they_are_wanted_and_are_null_before():
    form, stream = Form(chat=True), reply(usage=True)
    (choice,) = stream.choices
    assert form.part(stream, choice, "a")["usage"] is None
    assert "usage" not in form.part(reply(), choice, "a")
    assert (form.usage(stream)["usage"], form.usage(stream)["choices"]) == (USAGE, [])


@pytest.mark.parametrize("chat", [True, False])
def test_an_answer_has_all_of_openais_fields(chat, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1234.9)
    form = Form(chat)
    (choice,) = (stream := reply(usage=True)).choices
    head = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-ab12",
        "created": 1234,
        "model": "tales",
        "system_fingerprint": "fp_1",
    }
    kind = "chat.completion.chunk" if chat else "text_completion"
    content = {"delta": {"content": "a"}} if chat else {"text": "a"}
    chunk = {"index": 0, **content, "logprobs": None, "finish_reason": None}
    assert form.part(stream, choice, "a") == {**head, "object": kind, "choices": [chunk], "usage": None}
    assert form.usage(stream) == {**head, "object": kind, "choices": [], "usage": USAGE}
    whole = form.whole(stream)
    assert {**whole, "choices": None} == {
        **head,
        "object": "chat.completion" if chat else kind,
        "choices": None,
        "usage": USAGE,
    }


class Written:
    """Log-probabilities that say where they were taken."""

    def take(self):
        return "new ones"

    def take_prompt(self):
        self.prompt, taken = "", self.prompt
        return taken

    prompt = "of the prompt"

    turn = asyncio.Lock()

    async def written(self):
        return '["all"]'


def test_log_probabilities_stand_beside_the_text_that_they_belong_to():
    for form in (Form(chat=True), Form(chat=False)):
        stream = reply(echo=True, logprobs=Written())
        (choice,) = stream.choices
        shown = {"first": form.first(stream, choice), "text": form.part(stream, choice, "a")}
        choice.logprobs.prompt = ""
        assert form.more(stream, choice) is None
        choice.logprobs.prompt = "more of it"
        more = form.more(stream, choice)
        assert (more["choices"][0]["logprobs"], more["choices"][0].get("text")) == ("more of it", "")
        whole = json.loads(asyncio.run(form.written(stream)))
        shown |= {"last": form.last(stream, choice), "whole": whole}
        logprobs = {name: content["choices"][0]["logprobs"] for name, content in shown.items()}
        first = None if form.chat else "of the prompt"
        assert logprobs == {"first": first, "text": "new ones", "last": "new ones", "whole": ["all"]}


def test_every_chunk_has_its_choices_numbers_of_tokens_where_they_are_wanted():
    stream = reply(usage=True, continuous=True, count=2)
    chunks = [Form(chat=True).part(stream, choice, "a") for choice in stream.choices]
    assert [chunk["usage"] for chunk in chunks] == [{**USAGE, "index": 0}, {**USAGE, "index": 1}]
