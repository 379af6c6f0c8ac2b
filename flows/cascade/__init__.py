"""The flow of cascade: train, profile, plan, judge, publish."""
