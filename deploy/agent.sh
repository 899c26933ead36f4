#!/bin/sh
# Enrols once, with the one-time token, and then takes runs until stopped.
set -eu
configuration="$HOME/agent.toml"
if [ ! -e "$configuration" ]; then
    if [ -z "${ENROLMENT_TOKEN:-}" ]; then
        echo "error: set ENROLMENT_TOKEN to a one-time token (POST /v1/enrolment-tokens)" >&2
        exit 1
    fi
    meshwright agent enrol --server "$MESHWRIGHT_SERVER" --token "$ENROLMENT_TOKEN" \
        --config "$configuration"
fi
exec meshwright agent run --config "$configuration"
