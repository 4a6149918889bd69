"""
Equivalence on real Salt: each SLS file through Salt's own `state.apply` and,
as the high data that internal/state makes of it, through the fixed
`state.high`, each in a fresh sandbox, on a masterless minion in this process.
Result keys, their order, results and changes have to be the same.

It runs inside a Salt virtual environment:

    VENV/bin/python equivalence.py --answer PATH --scratch DIR FILE.sls...

The files are plain SLS files. The folder /sandbox in them stands for a folder
below the scratch folder; packages, services, users, groups and crons are
remembered by the states in mocks/ and touch nothing.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import canonical  # noqa: E402
import salt.client  # noqa: E402
import salt.config  # noqa: E402
import salt.version  # noqa: E402


def minion(scratch, name, text):
    """
    A fresh masterless minion with one SLS file.
    """
    for folder in ("minion", "sandbox", "roots"):
        shutil.rmtree(os.path.join(scratch, folder), ignore_errors=True)
        os.makedirs(os.path.join(scratch, folder))
    with open(os.path.join(scratch, "roots", name + ".sls"), "w", encoding="utf-8") as handle:
        handle.write(text)
    root = os.path.join(scratch, "minion")
    opts = salt.config.minion_config(None)
    opts.update(salt.config.apply_minion_config({
        "id": "equivalence",
        "root_dir": root,
        "cachedir": os.path.join(root, "cache"),
        "pki_dir": os.path.join(root, "pki"),
        "sock_dir": os.path.join(root, "sock"),
        "extension_modules": os.path.join(root, "extmods"),
        "log_file": os.path.join(root, "log"),
        "pidfile": os.path.join(root, "pid"),
        "conf_file": os.path.join(root, "minion.conf"),
        "file_client": "local",
        "local": True,
        "file_roots": {"base": [os.path.join(scratch, "roots")]},
        "pillar_roots": {"base": []},
        "states_dirs": [os.path.join(HERE, "mocks", "states")],
        "oduflow_sandbox": os.path.join(scratch, "sandbox"),
        "grains": {},
        "state_events": False,
        "master": "localhost",
    }))
    for folder in ("cache", "pki", "sock", "extmods"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    return salt.client.Caller(mopts=opts)


def high_data(answer, text):
    """
    What internal/state makes of a source, read the way the shim reads it.
    """
    raw = text.encode("utf-8")
    done = subprocess.run([answer], input=struct.pack(">I", len(raw)) + raw, stdout=subprocess.PIPE, check=True)
    got = json.loads(done.stdout.decode("utf-8"))
    if not got["ok"]:
        raise SystemExit(f"refused: line {got['line']}: {got['message']}")
    return canonical.decode(got["high"]), got["expected"]


def plain(value):
    """
    Salt's ordered mappings as lists of pairs, so that order and types count.
    """
    if isinstance(value, dict):
        return [(plain(k), plain(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return (type(value).__name__ if not isinstance(value, str) else "str", value)


def without_names(high, sls):
    """
    High data without the name of its SLS file.
    """
    out = {}
    for id_, body in high.items():
        out[id_] = {k: ("SLS" if k == "__sls__" else v) for k, v in body.items()}
        if body["__sls__"] != sls:
            raise SystemExit(f"{id_}: __sls__ is {body['__sls__']!r}")
    return plain(out)


def summary(ret):
    """
    What has to be the same: keys in the order in which they ran, results and
    changes. Process ids are chance.
    """
    if not isinstance(ret, dict):
        return ret
    rows = []
    for key, entry in sorted(ret.items(), key=lambda item: item[1]["__run_num__"]):
        changes = entry["changes"]
        if isinstance(changes, dict):
            changes = {k: v for k, v in changes.items() if k != "pid"}
        rows.append((key, entry["result"], changes))
    return rows


def run(options, path):
    """
    One file both ways; gives what differs.
    """
    name = os.path.basename(path)[: -len(".sls")]
    with open(path, encoding="utf-8") as handle:
        text = handle.read().replace("/sandbox", os.path.join(options.scratch, "sandbox"))
    wrong = []
    high, expected = high_data(options.answer, text)
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        shown = minion(options.scratch, name, text).cmd("state.show_sls", name)
        applied = minion(options.scratch, name, text).cmd("state.apply", name, test=False, queue=False)
        ours = minion(options.scratch, name, text).cmd("state.high", high, test=False, queue=False)
    compiled, _ = high_data(options.answer, text)  # Salt has changed the one that ran
    if not isinstance(shown, dict) or without_names(shown, name) != without_names(compiled, "oduflow"):
        wrong.append(f"high data differs:\n    salt {shown}\n    ours {compiled}")
    a, b = summary(applied), summary(ours)
    if a != b:
        wrong.append(f"results differ:\n    apply {a}\n    high  {b}")
    if isinstance(b, list) and b and isinstance(b[0], tuple):
        keys = {row[0] for row in b}
        complete = all(row[1] is True for row in b)
        missing = [key for key in expected if key not in keys]
        if missing and complete:
            wrong.append(f"expected results are missing: {missing}")
        extra = [key for key in keys if key not in expected and "_|-listener_" not in key]
        if extra:
            wrong.append(f"results that nobody expected: {extra}")
    elif not isinstance(b, list):
        wrong.append(f"unexpected answer {b!r}")
    return wrong, len(b)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    options.scratch = os.path.abspath(options.scratch)
    os.makedirs(options.scratch, exist_ok=True)
    logging.disable(logging.CRITICAL)
    failed = 0
    for path in options.files:
        wrong, results = run(options, path)
        print(f"{'DIFFERENT' if wrong else 'same     '} {os.path.basename(path)} ({results} results)")
        for line in wrong:
            print("  " + line)
        failed += bool(wrong)
    print(f"Salt {salt.version.__version__}: {len(options.files)} files, {failed} different")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
