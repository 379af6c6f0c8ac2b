"""How a service is seen from outside: the list of its metrics, and logs as JSON."""
