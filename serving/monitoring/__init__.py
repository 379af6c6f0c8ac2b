"""How a service is seen from outside: the list of its metrics, what is drawn and written of it, and logs as JSON.

`python -m serving.monitoring` writes docs/metrics.md and Grafana's dashboards anew from the list.
"""
