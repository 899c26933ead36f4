#!/bin/sh
# Takes runs until stopped; enrols first, by the one-time token, where that was not done before.
set -eu
if [ -z "${ENROLMENT_TOKEN:-}" ]; then
    exec meshwright agent run --config "$HOME/agent.toml"
fi
exec meshwright agent run --config "$HOME/agent.toml" \
    --server "$MESHWRIGHT_SERVER" --token "$ENROLMENT_TOKEN"
