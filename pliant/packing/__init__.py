"""S3: predicted output lengths steer the generation of texts."""
