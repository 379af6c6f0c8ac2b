"""What a client of TEI reads of a model before it sends texts."""

from __future__ import annotations

from serving.http.tei import classifier_type, info


def test_the_limits_are_named_as_tei_does_and_texts_are_truncated_unless_a_client_refuses():
    page = info("mails", {"embedding": {"pooling": "cls"}}, max_length=512, max_waiting=100, max_texts=32)
    assert (page["model_id"], page["model_type"]) == ("mails", {"embedding": {"pooling": "cls"}})
    assert (page["max_input_length"], page["max_concurrent_requests"]) == (512, 100)
    assert (page["max_client_batch_size"], page["max_batch_tokens"]) == (32, 32 * 512)
    assert page["auto_truncate"] is True
    assert page["tokenization_workers"] >= 1


def test_a_classifier_names_its_classes_both_ways_and_a_regressor_is_a_reranker_with_one_value():
    labels = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    assert classifier_type(("bad", "good")) == {"classifier": labels}
    assert classifier_type(()) == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
