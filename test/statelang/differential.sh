#!/usr/bin/env bash
# The differential run against Salt's own loader, by hand.
# Usage: differential.sh PYTHON [--full | COUNT] [SEED]
# PYTHON is the interpreter of a Salt virtual environment. The short run takes
# 10,000 sources, --full a million.
set -eu
python=${1:?usage: differential.sh PYTHON [--full | COUNT] [SEED]}
count=${2:-10000}
[ "$count" = --full ] && count=1000000
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
go build -o "$scratch/answer" ./answer
PYTHONDONTWRITEBYTECODE=1 "$python" differential.py --answer "$scratch/answer" --count "$count" --seed "${3:-1}"
