"""The code that runs an artifact in an MLflow client, one file a kind of artifact."""
