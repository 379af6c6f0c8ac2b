"""Prefect flows: train -> profile -> plan -> gate -> publish."""
