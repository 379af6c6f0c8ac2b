"""Targets of requests under overload, simulated and live."""
