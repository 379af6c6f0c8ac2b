"""What takes long to show: prompts learn, and so does a foundation; an encoder without sdpa is compiled."""

from __future__ import annotations

from dataclasses import replace

import torch

from pliant.bins.runtimes.compile import compile_encoder
from pliant.profiling.tokens.accuracy import profile
from pliant.training import data
from pliant.training.bins.encoder import load
from pliant.training.tokens.foundation import pretrain
from pliant.training.tokens.task import TaskConfig, train
from tests.fixtures.tokens.samples import tiny_backbone
from tests.training.bins.test_architectures import write
from tests.training.tokens.test_foundation import TINY


def test_prompts_learn_what_the_frozen_backbone_alone_does_not_show():
    loops = data.digits("loops")
    torch.manual_seed(0)
    task = train(TaskConfig(gammas=(8,), epochs=20.0), loops, tiny_backbone(), "digest")
    measured = profile(tiny_backbone(), task, loops, gammas=(0, 8))
    assert measured.accuracy[8] > measured.accuracy[0] + 0.03
    assert measured.test_accuracy[8] > measured.test_accuracy[0] + 0.03


def test_pretraining_makes_a_task_easier():
    digits, short = data.digits("digit"), TaskConfig(gammas=(), points=False, head_images=60, precision="float32")
    accuracies = []
    for images in (64, 12_800):
        backbone = pretrain(replace(TINY, images=images), digits)
        task = profile(backbone, train(short, digits, backbone, "digest"), digits, gammas=(0,))
        accuracies.append(task.test_accuracy[0])
    assert accuracies[1] > accuracies[0] + 0.1


def test_an_encoder_without_sdpa_is_compiled(tmp_path):
    write(tmp_path / "model", "deberta-v2", False)
    encoder = load(f"path:{tmp_path / 'model'}", "tiny")
    compile_encoder(encoder, "onnx", tmp_path / "runtimes")
