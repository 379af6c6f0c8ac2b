"""Cuts of every family that can be cut: transformers' own hidden states, and behind them its own logits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pliant.cascade.trunk import Start, Trunk
from pliant.errors import ArtifactError
from pliant.models.classifier import load_model
from tests.fixtures.cascade.classifiers import tiny_classifier

FAMILIES = ("bert", "distilbert", "roberta", "electra", "modernbert", "mpnet", "deberta-v2", "llama", "bart")


@cache
def model(family: str) -> nn.Module:
    return load_model(tiny_classifier(family=family, layers=3))


def batch(of: nn.Module, lengths=(9, 4, 12)) -> dict[str, Tensor]:
    """Random texts with an end token, as BART needs one."""
    generator = torch.Generator().manual_seed(1)
    valid_BN = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    id_BN = torch.randint(5, 80, tuple(valid_BN.shape), generator=generator)
    id_BN[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = 3
    return {"input_ids": id_BN.where(valid_BN, of.config.pad_token_id), "attention_mask": valid_BN.long()}


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_each_stop_has_transformers_own_hidden_states_and_the_rest_has_its_logits(family):
    whole, arguments = model(family), batch(model(family))
    trunk = Trunk(whole)
    trunk.check([1, 2])
    expected = whole(**arguments, output_hidden_states=True)
    hidden = expected.get("hidden_states") or expected["encoder_hidden_states"]
    for layers in (1, 2):
        stopped_BND = trunk.until(layers, arguments)
        torch.testing.assert_close(stopped_BND, hidden[layers])
        torch.testing.assert_close(trunk.rest(Start(layers, stopped_BND), arguments), expected.logits)
    from_one_BND = trunk.until(2, arguments, Start(1, hidden[1]))
    torch.testing.assert_close(from_one_BND, hidden[2])


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_whole_pass_gives_the_hidden_states_of_several_stops_beside_the_logits(family):
    whole, arguments = model(family), batch(model(family))
    trunk = Trunk(whole)
    logit_BK, hidden = trunk.through([2, 1], arguments)
    torch.testing.assert_close(logit_BK, whole(**arguments).logits)
    for layers, hidden_BND in zip((2, 1), hidden, strict=True):
        torch.testing.assert_close(hidden_BND, trunk.until(layers, arguments))


@torch.inference_mode()
def test_a_pass_that_goes_on_computes_no_embeddings():
    whole = load_model(tiny_classifier(layers=3))
    trunk, arguments, runs = Trunk(whole), batch(whole), []
    hidden_BND = trunk.until(1, arguments)
    whole.bert.embeddings.register_forward_hook(lambda *call: runs.append(call))
    trunk.rest(Start(1, hidden_BND), arguments)
    assert not runs
    trunk.until(1, arguments)
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("family", "reason"),
    [("albert", "its list has 1"), ("t5", "the parts give other logits than the whole model")],
)
def test_a_family_whose_layers_share_more_than_hidden_states_is_refused_in_one_sentence(family, reason):
    """ALBERT runs one layer over and over; T5 passes on the position bias of its first."""
    with pytest.raises(
        ArtifactError, match=f"ForSequenceClassification cannot be cut behind 1 of its layers: {reason}$"
    ):
        Trunk(model(family)).check([1])


@pytest.mark.parametrize("layers", [0, 3])
def test_a_cut_that_leaves_one_part_without_layers_is_refused(layers):
    with pytest.raises(ArtifactError, match=f"cannot be cut behind {layers} of its layers: its list has 3"):
        Trunk(model("bert")).check([layers])


def test_a_trunk_shares_all_weights_and_leaves_the_model_as_it_was():
    whole = load_model(tiny_classifier())
    names = list(whole.state_dict())
    trunk = Trunk(whole)
    assert {id(weight) for weight in trunk._cut.parameters()} == {id(weight) for weight in whole.parameters()}
    assert list(whole.state_dict()) == names


def test_passes_of_several_threads_do_not_mix():
    trunk, arguments = Trunk(model("bert")), batch(model("bert"))

    @torch.inference_mode()
    def one(number: int) -> Tensor:
        stop = number % 2 + 1
        return trunk.rest(Start(stop, trunk.until(stop, arguments) + number), arguments)

    alone = [one(number) for number in range(40)]
    with ThreadPoolExecutor(4) as threads:
        for logit_BK, expected_BK in zip(threads.map(one, range(40)), alone, strict=True):
            torch.testing.assert_close(logit_BK, expected_BK)
