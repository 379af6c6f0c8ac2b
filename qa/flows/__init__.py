"""The flows on real servers: nights, faults of Prefect, hung runs, what is learnt from labels, webhooks of MLflow."""
