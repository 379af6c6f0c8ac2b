"""Of a body that is wrong in every entry only the first is looked at: noting each would hold the interpreter."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pliant.serving.bins import bodies as bins
from pliant.serving.cascade import bodies as cascade
from pliant.serving.http.oip.routes import InferBody
from pliant.serving.packing import bodies as packing

ONES, EMPTY, OBJECTS = [1] * 5000, [[""]] * 5000, [{}] * 5000
UNKNOWN = {str(number): "x" for number in range(5000)}
SAY = {"role": "user", "content": "a"}
HOSTILE = [
    (packing.CompletionBody, {"prompt": [["a"]] * 5000}),
    *(
        (packing.CompletionBody, {"prompt": "a", **fields})
        for fields in (
            {"stop": ONES},
            {"stop_token_ids": EMPTY},
            {"logit_bias": UNKNOWN},
            {"stream_options": UNKNOWN},
            {"structured_outputs": {"choice": ONES}},
        )
    ),
    (packing.ChatBody, {"messages": OBJECTS}),
    (packing.ChatBody, {"messages": [{**SAY, "content": OBJECTS}]}),
    (packing.ChatBody, {"messages": [{"role": "assistant", "tool_calls": OBJECTS}]}),
    (packing.ChatBody, {"messages": [SAY], "tools": OBJECTS}),
    *((bins.EmbedBody, {"inputs": value}) for value in (["a", *ONES], EMPTY)),
    (bins.ClassifyBody, {"inputs": EMPTY}),
    (bins.RerankBody, {"query": "a", "texts": ONES}),
    (bins.RerankDocumentsBody, {"query": "a", "documents": OBJECTS}),
    (bins.SimilarityBody, {"inputs": {"source_sentence": "a", "sentences": ONES}}),
    (bins.TokenizeBody, {"inputs": ["a", *ONES]}),
    (bins.DecodeBody, {"ids": EMPTY}),
    (bins.OpenaiEmbeddingsBody, {"input": EMPTY}),
    (cascade.PredictBody, {"texts": ONES}),
    (cascade.PredictBody, {"text": EMPTY}),
    (cascade.PredictBody, UNKNOWN),
    (InferBody, {"inputs": OBJECTS}),
    (InferBody, {"inputs": [{"name": "a", "datatype": "FP32", "shape": EMPTY}]}),
]


@pytest.mark.parametrize(("kind", "fields"), HOSTILE)
def test_one_error_is_enough(kind, fields):
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(fields)
    assert refused.value.error_count() == 1
