"""The options of cascade, and its loads in virtual time."""
