"""Processes that own a device, and what the service sees of them. Knows no system."""
