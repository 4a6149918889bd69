#!/usr/bin/env bash
# The API's tests that need Python: docs/openapi.yaml by schemathesis, the Python client, the Salt
# runner and engine. Arguments go to pytest; without any, all of it runs.
set -euo pipefail
cd "$(dirname "$0")/../.."

requirements=test/openapi/requirements.txt
python=${PYTHON:-python3}
cache=${ODUFLOW_API_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/oduflow-api-venvs}
# Another pin or another Python makes another venv; the marker is written last.
sum=$({ cat "$requirements"; "$python" -c 'import sys; print(sys.version, sys.prefix)'; } | sha256sum | cut -c1-8)
venv=$cache/$sum
mkdir -p "$cache"
(
  flock 9
  if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    echo "building a venv for the API's tests in $venv (once)" >&2
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    touch "$venv/.complete"
  fi
) 9>"$cache/lock"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
go build -o "$scratch/server" ./test/openapi/server
export ODUFLOW_FAKE_MASTERD=$scratch/server PYTHONDONTWRITEBYTECODE=1

if [ $# -eq 0 ]; then
  set -- test/openapi test/shims
fi
"$venv/bin/python" -m pytest -q -p no:cacheprovider -rs ${JUNIT:+--junitxml="$JUNIT"} "$@"
