"""The options of tokens, and its loads in virtual time."""
