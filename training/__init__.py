"""Training: from data to artifacts, by functions such as `train(config, data)`; runs on a bare GPU machine."""
