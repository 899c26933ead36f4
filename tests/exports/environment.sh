#!/usr/bin/env bash
# tests/exports/environment.sh FOLDER PYTHON: the environment of `make test-exports`.
# PYTHON is that of the environment of `make test`, whose packages (torch, transformers, pytest, the
# planner) are seen from FOLDER and not installed again. What needs a later Python lies unpacked under
# FOLDER/unpacked. Nothing is done twice.
set -euo pipefail
folder=$1
python=$2
here=$(dirname "$0")
wanted=$(cat "$here"/requirements*.txt "$0" | cksum)
if [ -f "$folder/.made" ] && [ "$(cat "$folder/.made")" = "$wanted" ]; then
    exit 0
fi
rm -rf "$folder"
"$python" -m venv --without-pip "$folder"
site_of=(-c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
shared=$("$python" "${site_of[@]}")
echo "import site; site.addsitedir('$shared')" >"$("$folder/bin/python" "${site_of[@]}")/shared.pth"
pip=("$python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" --python "$folder/bin/python" install --no-deps --no-compile -r "$here/requirements.txt"
grep -v '^#' "$here/requirements-unpacked.txt" | while read -r pin; do
    "${pip[@]}" install --no-deps --no-compile --only-binary=:all: --python-version 3.12 \
        --ignore-requires-python --upgrade \
        --target "$folder/unpacked/${pin%%=*}" "$pin"
done
echo "$wanted" >"$folder/.made"
