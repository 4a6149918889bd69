"""
States with which tests look at a run from the inside
"""

import os
import subprocess


def _answer(name, result):
    return {"name": name, "result": result, "changes": {}, "comment": "secret-output"}


def append(name, text):
    """
    Append a line to a file: what ran, and in which order
    """
    with open(name, "a", encoding="utf-8") as handle:
        handle.write(text + "\n")
    return _answer(name, True)


def options(name):
    """
    True if nothing of the minion's configuration reaches into this run
    """
    return _answer(name, __opts__["state_events"] is False and __opts__["test"] is False)


def environment(name):
    """
    Write what a child process sees of the request
    """
    seen = subprocess.run(["/usr/bin/env"], stdout=subprocess.PIPE, check=True).stdout.decode()
    with open(name, "w", encoding="utf-8") as handle:
        handle.write("\n".join(v for v in seen.splitlines() if v.startswith("ODUFLOW_REQUEST")))
    return _answer(name, True)


def same(name, value, text):
    """
    True if a value arrived as Python writes it
    """
    with open(name, "w", encoding="utf-8") as handle:
        handle.write(repr(value))
    return _answer(name, repr(value) == text)


def raises(name):
    """
    Break
    """
    raise RuntimeError("secret-exception")


def exits(name):
    """
    End the job process from within
    """
    os._exit(3)
