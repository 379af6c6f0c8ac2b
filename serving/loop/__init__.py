"""The loop of a service: what its answers show, what is tried on real requests, and what their labels say.

`observe.py` is what is known of an answer. `drift.py`, `watcher.py` and `load.py` detect drift; `trials.py`, `trial.py`,
`copies.py` and `record.py` try a challenger, in shadow and as a canary; `outcomes.py` takes labels, over HTTP by
`outcome_routes.py`, and `outcome_writer.py` keeps them in `outcome_store.py`. What is decided lies in pliant/watch,
pliant/rollout and pliant/outcomes; what an alarm starts, in flows/watch. Knows no system.
"""
