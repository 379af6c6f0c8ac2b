"""The loop of a service: what its answers show, what is tried on real requests, and what their labels say.

`observe.py` is what is known of an answer, and counts it. `watcher.py` detects drift; `trials.py`, `trial.py`
and `copies.py` try a challenger, in shadow and as a canary; `outcomes.py` takes labels, over HTTP by `outcome_routes.py`,
and `outcome_store.py` keeps them. What is decided lies in pliant/watch, pliant/rollout and pliant/outcomes; what an alarm
starts, in flows/watch. Knows no system.
"""
