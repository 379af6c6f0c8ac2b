#!/usr/bin/env bash
# Makes what is missing in deploy/secrets: passwords, the operators' login and, unless there is a certificate, a self-signed one.
# deploy/make_secrets.sh [NAME]   NAME: the host name of the certificate (localhost)
#
# The folder is closed to others (0700). The files in it can be read by all, as the containers' users differ from yours and
# Compose mounts each file with the mode that it has.
set -euo pipefail
name=${1:-localhost}
folder=${SECRETS:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 0700 "$folder"
cd "$folder"
umask 022

for file in postgres_password mlflow_password prefect_password grafana_password; do
    [ -s "$file" ] || openssl rand -hex 24 | tr -d '\n' > "$file"
done
if [ ! -s operators ]; then
    password=$(openssl rand -hex 12)
    printf 'operators:%s\n' "$(printf '%s' "$password" | openssl passwd -apr1 -stdin)" > operators
    echo "operators log in at https://grafana.localhost:8444 and so on as operators with $password (shown this once)"
fi
if [ ! -s tls_certificate ] || [ ! -s tls_key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$name" \
        -addext "subjectAltName=DNS:$name,DNS:localhost,DNS:grafana.localhost,DNS:mlflow.localhost,DNS:prefect.localhost,IP:127.0.0.1" \
        -keyout tls_key -out tls_certificate 2> /dev/null
    chmod 0644 tls_key
    echo "clients must trust $PWD/tls_certificate, or put certificate and key of your own in its place"
fi
