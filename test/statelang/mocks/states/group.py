"""
A group state that remembers nothing, for the equivalence run.
"""

__virtualname__ = "group"


def __virtual__():
    return __virtualname__


def present(name, **kwargs):
    """
    Say what would be made, with the types of the arguments.
    """
    given = {key: repr(value) for key, value in sorted(kwargs.items()) if not key.startswith("__")}
    return {"name": name, "result": True, "changes": {name: given}, "comment": "mocked"}


def absent(name, **kwargs):
    """
    Say what would be removed.
    """
    return {"name": name, "result": True, "changes": {}, "comment": "mocked"}
