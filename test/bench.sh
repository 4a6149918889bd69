#!/usr/bin/env bash
# Everything that is compared, in one run. Usage: test/bench.sh
set -eu
cd "$(dirname "$0")/.."
go run ./test/bench --salt 3006
if [ -x test/statelang/bench.sh ]; then
  test/statelang/bench.sh
fi
go test ./internal/... -run '^$' -bench . -benchtime 300ms | grep -E '^(pkg|Benchmark|ok)'
