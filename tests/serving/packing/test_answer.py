"""Answers and chunks of a stream have OpenAI's shape, for completions and for chats."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from serving.packing.answer import Form

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def reply(echo=False, usage=False, count=1):
    info = SimpleNamespace(model="tales", fingerprint="fp_1", echo=echo, usage=usage)
    choices = [
        SimpleNamespace(
            index=index,
            echo="Once",
            details={"actual_tokens": 4},
            output=SimpleNamespace(finish="stop", writer=SimpleNamespace(take=lambda: " upon")),
        )
        for index in range(count)
    ]
    return SimpleNamespace(info=info, choices=choices, usage=USAGE)


@pytest.mark.parametrize("chat", [True, False])
def test_all_chunks_of_a_stream_belong_together_and_to_no_other_stream(chat):
    form, stream = Form(chat), reply()
    (choice,) = stream.choices
    chunks = [form.text(stream, choice, "a"), form.last(stream, choice), form.usage(stream)]
    for name in ("id", "created", "model", "system_fingerprint", "object"):
        assert len({chunk[name] for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-" if chat else "cmpl-") and chunks[0]["model"] == "tales"
    assert chunks[0]["object"] == ("chat.completion.chunk" if chat else "text_completion")
    assert form.id != Form(chat).id


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
        middle, last = (chunk["choices"][0] for chunk in (form.text(reply(), choice, "a"), form.last(reply(), choice)))
        assert middle == {"index": 0, key: text, "logprobs": None, "finish_reason": None}
        empty = {} if key == "delta" else ""
        end = {"logprobs": None, "finish_reason": "stop", "pliant": {"actual_tokens": 4}}
        assert last == {"index": 0, key: empty, **end}


def test_numbers_of_tokens_come_in_a_last_chunk_where_they_are_wanted_and_are_null_before():
    form, stream = Form(chat=True), reply(usage=True)
    (choice,) = stream.choices
    assert form.text(stream, choice, "a")["usage"] is None
    assert "usage" not in form.text(reply(), choice, "a")
    assert (form.usage(stream)["usage"], form.usage(stream)["choices"]) == (USAGE, [])


@pytest.mark.parametrize("chat", [True, False])
def test_an_answer_has_all_of_openais_fields(chat, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1234.9)
    form = Form(chat)
    (choice,) = (stream := reply(usage=True)).choices
    head = {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{form.id}",
        "created": 1234,
        "model": "tales",
        "system_fingerprint": "fp_1",
    }
    kind = "chat.completion.chunk" if chat else "text_completion"
    content = {"delta": {"content": "a"}} if chat else {"text": "a"}
    chunk = {"index": 0, **content, "logprobs": None, "finish_reason": None}
    assert form.text(stream, choice, "a") == {**head, "object": kind, "choices": [chunk], "usage": None}
    assert form.usage(stream) == {**head, "object": kind, "choices": [], "usage": USAGE}
    whole = form.whole(stream)
    assert {**whole, "choices": None} == {
        **head,
        "object": "chat.completion" if chat else kind,
        "choices": None,
        "usage": USAGE,
    }
    assert len(form.id) == 32 and int(form.id, 16) >= 0
