"""The stack of real servers on one machine, without containers: what deploy/compose.yaml runs, from its own configuration.

Postgres behind MLflow and Prefect, MLflow's server, Prefect's with a worker, two endpoints, nginx with TLS in front, and
Prometheus. `make stack` starts it for people to look at, `make stack-test` tests it and prints the targets.
"""
