"""Generation on a device: the model, its cache, and one iteration after another."""
