"""Who may call a service: known hosts, keys with their roles, and what a tenant may use.

`keys` holds keys and tenants, and the file that they are in; `hosts` knows the service's names; `access` judges a request by
all of these before any route; `settings` checks what a service is started with.
"""
