#!/usr/bin/env bash
# Lists the requirements of spec.md that no test names. Usage: test/spec.sh [path of spec.md]
set -eu
cd "$(dirname "$0")/.."
spec=${1:-../shared/spec.md}
[ -f "$spec" ] || { echo "spec: $spec isn't here; give its path as an argument" >&2; exit 2; }
missing=0
for r in $(grep -oE '^\| [AB][0-9]+ ' "$spec" | tr -d '| '); do
  if ! git grep -qwE --untracked "$r" -- '*_test.go' '*_test.py' '*test_*.py' 'test/*'; then
    echo "$r: no test names it"; missing=$((missing + 1))
  fi
done
echo "spec: $missing requirements without a test"
