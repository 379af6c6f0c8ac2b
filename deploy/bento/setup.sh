#!/bin/sh
# Runs while an image is made, as root: the folder of the service's own files belongs to the user that the service runs as.
# A new volume that is mounted there takes over its owner.
set -eu
install -d -m 0750 -o "${BENTO_USER:-bentoml}" -g "${BENTO_USER:-bentoml}" "${PLIANT_HOME:-/home/bentoml/state}"
