"""Decisions and models: imports nothing else of ours, and neither Prefect, MLflow nor BentoML."""
