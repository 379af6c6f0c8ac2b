"""Settings come from PLIANT_ variables; a misspelt variable or an option of another system is an error."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.settings import from_environment
from pliant.serving.tokens.settings import TokensSettings


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        (TokensSettings, "PLIANT_MAX_WAITNG", "a known one, such as PLIANT_MAX_WAITING"),
        (BinsSettings, "PLIANT_GAMMA", "one of bins's; it is an option of tokens"),
        (TokensSettings, "PLIANT_WORKERS", "one of tokens's; it is an option of bins and cascade"),
        (PackingSettings, "PLIANT_MARGIN", "one of packing's; it is an option of tokens and bins and cascade"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_one_or_with_the_system_that_has_it(kind, name, wanted):
    with pytest.raises(InputError, match=f"environment variable is {name}, but must be {wanted}"):
        from_environment({name: "1"}, kind)
    with pytest.raises(InputError, match="option is "):
        kind(**{name.removeprefix("PLIANT_").lower(): 1})


@pytest.mark.parametrize(
    ("kind", "field", "values"),
    [
        (kind, field, values)
        for kind, listed in {
            BinsSettings: {
                **dict.fromkeys(
                    ("refresh_seconds", "standby_seconds", "wait_for_release", "watch_seconds"), (-0.5, "inf")
                ),
                **dict.fromkeys(("max_waiting", "threads", "max_texts", "workers", "least_workers"), (0, -1)),
                "watch_burn_in": (0,),
                "spare": (-1,),
                "max_deadline": (0, "inf", "nan"),
                "max_body_bytes": (0,),
                "launch_limit": (0,),
                "margin": (-0.01, 1),
                "trace_share": (-0.1, 1.1),
                "trial_copy_time": (0, 1.1),
                "policy": ("otas",),
                "pool": ("sea",),
                "dispatch": ("any",),
                "log_format": ("xml",),
            },
            TokensSettings: {"policy": ("s3",), "margin": (1,), "max_images": (0,), "max_image_pixels": (0,)},
            CascadeSettings: {
                "placement": ("any",),
                "margin": (1,),
                "workers": (0,),
                "agreement_share": (1.1,),
                "outcomes_days": (-1, "inf"),
            },
            PackingSettings: {
                **dict.fromkeys(("max_texts", "stream_limit", "predict_limit", "observed_bytes", "processes"), (0, -1)),
                "slo_ttft_ms": (-1, "inf"),
                "slo_tpot_ms": (-1,),
                "policy": ("oracle",),
                "engine": ("other",),
                "spare": (1,),
            },
        }.items()
        for field, values in listed.items()
    ],
)
def test_a_value_outside_its_limit_is_refused_with_its_variable(kind, field, values):
    for value in values:
        with pytest.raises(InputError) as error:
            from_environment({f"PLIANT_{field.upper()}": str(value)}, kind)
        assert error.value.field == f"PLIANT_{field.upper()}"


@pytest.mark.parametrize(
    ("kind", "fits", "more", "sentence"),
    [
        (BinsSettings, {"workers": 2, "least_workers": 2}, {"least_workers": 3}, "LEAST_WORKERS is 3, .* workers, 2"),
        (BinsSettings, {"pool": "ray"}, {"device": "cuda:0, cpu"}, "DEVICE is cuda:0, cpu, but must be of one kind"),
        (CascadeSettings, {"keep_inputs": True}, {"outcomes_days": 0}, "KEEP_INPUTS is true, but must be false"),
        (PackingSettings, {"processes": 2, "engine": "vllm"}, {"engine": "pliant"}, "PROCESSES is 2, but must be 1"),
        (PackingSettings, {"processes": 2, "engine": "vllm"}, {"device": "cuda:0,cuda:1"}, "PROCESSES is 2, but"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(kind, fits, more, sentence):
    settings = kind(**fits)
    with pytest.raises(InputError, match=f"PLIANT_{sentence}"):
        settings.replace(**more)
