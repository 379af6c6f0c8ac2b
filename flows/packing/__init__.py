"""The flow of packing: train, profile, plan, judge, publish."""
