#!/usr/bin/env bash
# Our whole way of 64 KiB of ordinary states (parse, check, digest, convert)
# against Salt's loader alone on the same bytes, in one run.
# Usage: bench.sh [PYTHON...]   (interpreters of Salt virtual environments;
# without any, those of the lab)
set -eu
cd "$(dirname "$0")/../.."
if [ $# -eq 0 ]; then
  for line in 3006 3008; do
    set -- "$@" "$(go run ./test/lab/cmd/lab venv --salt "$line")/bin/python"
  done
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ODUFLOW_BENCH_SOURCE=$scratch/ordinary.sls
ours=$(go test ./internal/state -run '^$' -bench 'Ordinary64K$' -benchtime 1s -count 3 | awk '/ns\/op/ {if (!best || $3 < best) best = $3} END {print best / 1e6}')
for python in "$@"; do
  PYTHONDONTWRITEBYTECODE=1 "$python" - "$ODUFLOW_BENCH_SOURCE" "$ours" <<'PY'
import sys
import time

import salt.renderers.yaml as renderer
import salt.version

renderer.__opts__ = {}
with open(sys.argv[1], encoding="utf-8") as handle:
    source = handle.read()
best = None
for _ in range(25):
    start = time.perf_counter()
    renderer.render(source)
    spent = (time.perf_counter() - start) * 1000
    best = spent if best is None else min(best, spent)
ours = float(sys.argv[2])
print(f"state language, {len(source.encode())} bytes: ours {ours:.1f} ms (parse, check, digest, convert), "
      f"Salt {salt.version.__version__}'s loader alone {best:.1f} ms, ratio {best / ours:.2f}")
sys.exit(0 if ours < best else 1)
PY
done
