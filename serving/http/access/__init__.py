"""Who may call a service: known hosts, keys with their roles, and what a tenant may use.

`keys` holds keys and tenants, `key_file` keeps them in a file and follows it; `hosts` knows the service's
names; `access` judges a request by all of these, and `middleware` does so before any route; `roles` is what routes ask.
"""
