"""The endpoint of cascade."""
