#!/usr/bin/env bash
# Makes a database and its owner for MLflow and for Prefect. Postgres's image runs it once, while its volume is empty.
set -euo pipefail
for name in mlflow prefect; do
    psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
        --set name="$name" --set password="$(cat "${SECRETS:-/run/secrets}/${name}_password")" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE CONNECT ON DATABASE :"name" FROM PUBLIC;
SQL
done
