"""The flow of tokens: train, profile, plan, judge, publish."""
