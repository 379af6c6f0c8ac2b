"""The configuration of deployments, and the scripts that write parts of it from the code."""
