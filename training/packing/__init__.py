"""Trains packing's models, after S3: a small generator, and the predictor of its output lengths."""
