"""The service of the system cascade."""
