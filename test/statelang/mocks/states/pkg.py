"""
A package state that remembers instead of installing, for the equivalence run.
"""

import json
import os

__virtualname__ = "pkg"


def __virtual__():
    return __virtualname__


def _state():
    path = os.path.join(__opts__["oduflow_sandbox"], "mock-packages.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as handle:
            return path, json.load(handle)
    return path, {}


def _apply(name, wanted):
    path, have = _state()
    changes = {}
    for pkg, version in wanted.items():
        old = have.get(pkg, "")
        if old == version:
            continue
        changes[pkg] = {"old": old, "new": version}
        if version:
            have[pkg] = version
        else:
            have.pop(pkg, None)
    if not __opts__["test"]:
        with open(path, "w", encoding="utf-8") as handle:
            json.dump(have, handle)
    result = None if changes and __opts__["test"] else True
    return {"name": name, "result": result, "changes": changes, "comment": "mocked"}


def installed(name, pkgs=None, version=None, refresh=None, **kwargs):
    """
    Remember packages with a version.
    """
    return _apply(name, {str(pkg): str(version or "1.0") for pkg in (pkgs or [name])})


def removed(name, pkgs=None, **kwargs):
    """
    Forget packages.
    """
    return _apply(name, {str(pkg): "" for pkg in (pkgs or [name])})
