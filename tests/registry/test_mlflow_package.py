"""The signature of a published model: what its clients are told of inputs, outputs and parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pliant.registry import mlflow_package
from pliant.registry.package import Package

IMAGES = np.zeros((5, 16, 24, 3), np.uint8)
ROWS = {"text": np.array(["a", "bc"]), "length": np.array([1, 2]), "share": np.zeros(2, np.float32), "at": np.zeros(2)}


def test_tensors_have_their_type_and_shape_but_for_the_batch():
    (spec,) = mlflow_package._schema(IMAGES).inputs
    assert spec.type == np.dtype(np.uint8) and spec.shape == (-1, 16, 24, 3)


def test_columns_have_names_and_types_in_their_order():
    specs = mlflow_package._schema(ROWS).inputs
    assert [(spec.name, spec.type.name) for spec in specs] == [
        ("text", "string"),
        ("length", "long"),
        ("share", "float"),
        ("at", "double"),
    ]


def test_parameters_have_the_types_of_their_defaults():
    options = {"gamma": -5, "seed": 0, "share": 0.5, "task": "digit", "strict": True}
    signature = mlflow_package._signature(Package("m", Path(), IMAGES, ROWS, options))
    assert [(param.name, param.dtype.name, param.default) for param in signature.params] == [
        ("gamma", "long", -5),
        ("seed", "long", 0),
        ("share", "double", 0.5),
        ("task", "string", "digit"),
        ("strict", "boolean", True),
    ]
    assert signature.inputs.is_tensor_spec() and not signature.outputs.is_tensor_spec()
    assert mlflow_package._signature(Package("m", Path(), IMAGES, ROWS)).params is None
