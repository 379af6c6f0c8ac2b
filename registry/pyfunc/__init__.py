"""The code that answers for an artifact in an MLflow client, one file a kind of artifact."""
