"""Training for tokens: a frozen backbone, and a head and prompts per task."""
