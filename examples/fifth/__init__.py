"""A fifth system, outside of Pliant's own packages: text classifiers that read fewer words of a text as the load grows."""

from pliant.systems import System

ROLES = dict.fromkeys(("config", "options", "settings"), "fifth.config") | dict.fromkeys(
    ("flow", "simulate"), "fifth.flow"
)
SERVED = {"assembly": "fifth.serving", "service": "fifth.service", "pyfunc": "fifth.model"}
SYSTEM = System("words", "text classifiers that read fewer words of a text as the load grows", roles=ROLES | SERVED)
