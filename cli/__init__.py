"""The command line: one file a command, and the list of systems that they all go by."""
