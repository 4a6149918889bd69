#!/bin/bash
# Installs what a bare Debian with only Go and Python 3 lacks for the build and the lab:
#   python3-venv           a venv for each Salt line
#   python3-dev gcc libc6-dev   timelib, a requirement of Salt 3008, comes as source only
#   gcc libc6-dev          SQLite in masterd (cgo)
#   ca-certificates        for the package registries
#   curl                   for the demo's and the documentation's calls by hand
#   strace                 the order of masterd's system calls; a test that needs it is left out without it
# May be repeated; says nothing when nothing is missing. Without root it names what is missing.
# Exit status: 0 all is there, 1 something is missing, 2 Go is.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)

python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3 || true)

missing=()
need() { # need PACKAGE COMMAND...: the command fails where the package is missing
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || missing+=("$package")
}
header() { echo "#include <$1>" | "${CC:-cc}" -E - "${@:2}"; }
python_header() {
	header Python.h "-I$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
}

look() {
	missing=()
	need python3 test -n "$python"
	if [ -n "$python" ]; then
		need python3-venv "$python" -c 'import venv, ensurepip'
		need python3-dev python_header
	fi
	need gcc command -v "${CC:-cc}"
	need libc6-dev header stdlib.h
	need ca-certificates test -s /etc/ssl/certs/ca-certificates.crt
	need curl command -v curl
	if [ "$(id -u)" = 0 ]; then
		need passwd command -v useradd # users salt and oduflow, for as long as a lab runs
		need strace command -v strace
	fi
}

if ! command -v go >/dev/null; then
	echo "install: no go on PATH; $(grep '^go ' "$repo/go.mod") or newer is needed" >&2
	exit 2
fi

look
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "install: missing here: ${missing[*]}" >&2
	echo "install: as root: apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi

echo "install: apt-get install ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	exit 1
fi

python=/usr/bin/python3
hash -r
look
if [ ${#missing[@]} -gt 0 ]; then
	echo "install: still missing after apt-get: ${missing[*]}" >&2
	exit 1
fi
