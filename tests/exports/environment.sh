#!/usr/bin/env bash
# tests/exports/environment.sh FOLDER [PYTHON]: the environment of `make test-exports`.
# torchtitan, DeepSpeed, Accelerate and others are installed with the planner; what needs GPUs or
# clouds to be imported whole lies unpacked under FOLDER/unpacked. Nothing is done twice.
set -euo pipefail
folder=$1
python=${2:-python3.11}
here=$(dirname "$0")
wanted=$(cat "$here"/requirements*.txt "$0" | cksum)
if [ -f "$folder/.made" ] && [ "$(cat "$folder/.made")" = "$wanted" ]; then
    exit 0
fi
"$python" -m venv "$folder"
install=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
"${install[@]}" --editable "$here/../.." -r "$here/requirements.txt"
grep -v '^#' "$here/requirements-unpacked.txt" | while read -r pin; do
    # wheels of a later Python: only source files of these are read
    "${install[@]}" --no-deps --only-binary=:all: --python-version 3.12 --upgrade \
        --target "$folder/unpacked/${pin%%=*}" "$pin"
done
echo "$wanted" >"$folder/.made"
