"""A bento's requirements are the pins of all that services need, on any Python, and of nothing that GPUs alone need."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from deploy import bento_pins
from deploy.bento_pins import closure, pinned_lines
from pliant.errors import InputError

NEEDS = {
    "service": ["Middle[fast]>=1; python_version >= '3.12'", "windows-only; sys_platform == 'win32'"],
    "middle": ["quick; extra == 'fast'", "slow; extra == 'slow'"],
    "torch": ["quick", "triton", "cuda-toolkit", "nvidia-cublas==13; sys_platform == 'linux'"],
    "quick": ["service"],
    "prefect": ["never"],
}


def closed(*roots: str) -> set[str]:
    return closure(map(Requirement, roots), lambda name: NEEDS.get(name, ()))


def test_what_any_python_or_platform_of_ours_needs_is_in_and_what_none_needs_is_not():
    assert closed("service") == {"service", "middle", "quick"}


def test_what_torch_needs_on_gpus_alone_is_not_in_it_but_what_others_need_is():
    assert closed("torch", "nvidia-ml-py") == {"torch", "quick", "service", "middle", "nvidia-ml-py"}


def test_the_pins_of_what_is_needed_keep_their_markers_and_their_order(monkeypatch):
    monkeypatch.setattr(bento_pins, "_installed_version", lambda name: "2+cpu" if name == "b" else "")
    lines = ["A-a==1 ; python_version < '3.12'", "a_a==2 ; python_version >= '3.12'", "b==2", "c==3"]
    assert list(pinned_lines(lines, ["a-a", "b"])) == lines[:3]


def test_another_version_than_the_pinned_one_is_refused(monkeypatch):
    monkeypatch.setattr(bento_pins, "_installed_version", lambda _name: "4")
    with pytest.raises(InputError, match="the installed b is 4, but must be 2 or 3"):
        list(pinned_lines(["b==2", "b==3"], ["b"]))


def test_what_is_needed_and_installed_but_not_pinned_is_refused_and_what_no_platform_here_needs_is_not(monkeypatch):
    monkeypatch.setattr(bento_pins, "_installed_version", lambda name: "2" if name == "b" else "")
    assert list(pinned_lines(["a==1"], ["a", "windows-only"])) == ["a==1"]
    with pytest.raises(InputError, match="without b"):
        list(pinned_lines(["a==1"], ["a", "b"]))
