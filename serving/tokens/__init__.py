"""The service of the system tokens."""
