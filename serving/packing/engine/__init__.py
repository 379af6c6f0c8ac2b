"""The engine's process and the predictor of output lengths, as the service uses them."""
