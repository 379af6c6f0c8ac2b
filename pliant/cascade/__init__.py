"""The cascade system (Tabi): a small classifier answers where it is sure, a larger one where it is not."""
