"""
A service state that remembers instead of starting, for the equivalence run.
"""

import os

__virtualname__ = "service"


def __virtual__():
    return __virtualname__


def running(name, enable=None, reload=False, **kwargs):
    """
    Remember that a service runs.
    """
    path = os.path.join(__opts__["oduflow_sandbox"], f"mock-service-{name}")
    ret = {"name": name, "result": True, "changes": {}, "comment": f"mocked, enable {enable!r}"}
    if os.path.exists(path):
        return ret
    ret["changes"] = {name: True}
    if __opts__["test"]:
        ret["result"] = None
        return ret
    with open(path, "w", encoding="utf-8"):
        pass
    return ret


def mod_watch(name, sfun=None, reload=False, **kwargs):
    """
    Restart or reload.
    """
    return {"name": name, "result": True, "changes": {name: "reloaded" if reload else "restarted"}, "comment": f"mocked for {sfun}"}
