"""What the models of several systems have in common."""
