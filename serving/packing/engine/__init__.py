"""The engine's process and the predictor as the service sees them."""
