"""Who may call a service: known hosts, keys with their roles, and what a tenant may use.

`keys` holds keys and tenants, and the file that they are in; `access` judges a request by these and the service's names
before any route, and checks what a service is started with.
"""
