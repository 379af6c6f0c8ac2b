"""HTTP for every service: the app, request bodies, errors and texts."""
