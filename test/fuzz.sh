#!/usr/bin/env bash
# Runs each fuzz target for a short time. Usage: test/fuzz.sh [TIME], e.g. 10s.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
grep -rlE '^func Fuzz' --include='*_test.go' internal masterd test | while read -r file; do
  dir=./$(dirname "$file")
  for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -d' ' -f2); do
    echo "fuzz $dir $target $time"
    go test "$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$time" >"${TMPDIR:-/tmp}/fuzz.$$" 2>&1 || { cat "${TMPDIR:-/tmp}/fuzz.$$"; exit 1; }
    rm -f "${TMPDIR:-/tmp}/fuzz.$$"
  done
done
