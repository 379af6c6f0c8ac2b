"""The options of packing, and its loads in virtual time."""
