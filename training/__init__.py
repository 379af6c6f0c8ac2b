"""Training: `train(config, data) -> values`. No tracking, no flow; runs from a checkout on a bare GPU machine."""
