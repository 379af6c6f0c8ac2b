"""A fifth system, outside of Pliant's own packages: text classifiers that read fewer words of a text as the load grows."""

from pliant.systems import System

CONFIG, FLOW = dict.fromkeys(("config", "options", "settings"), "fifth.config"), {"flow": "fifth.flow"}
SERVED = {"assembly": "fifth.serving", "service": "fifth.service", "pyfunc": "fifth.model", "simulate": "fifth.flow"}
SYSTEM = System(
    "words", "text classifiers that read fewer words of each text as the load grows", roles={**CONFIG, **FLOW, **SERVED}
)
