"""The service of the system packing."""
