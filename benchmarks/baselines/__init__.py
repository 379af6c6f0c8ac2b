"""Three services that a user would otherwise take, serving the champion at gamma 0 with their own batching.

Each is a real server in processes of its own that takes the predict endpoint's JSON body. Installed by the `bench` extra.
"""
