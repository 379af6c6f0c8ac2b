"""The flow of bins: train, profile, plan, judge, publish."""
