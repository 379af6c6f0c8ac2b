"""The options of bins, and its loads in virtual time."""
