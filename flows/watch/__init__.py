"""The night watch on the side of the flows: time limits, events of Prefect, triggered runs, notifications.

What a system's services notice reaches Prefect as events (serving/events.py). Here is what Prefect makes of them: a run of
the system's flow with the reason as a parameter, at most so often, and a report on the run's page (`triggered`), a
process that ends a hung run (`guard`), and notifications of what failed or never came (`automations`, `notify`).
"""
