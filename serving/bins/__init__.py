"""The service of the system bins."""
