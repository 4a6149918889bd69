"""
Oduflow's fixed entry points as Salt runner functions
=====================================================

Each function makes one call to ``masterd`` over its Unix socket and returns
what it answered, with the same keys as over HTTPS and one more, ``retcode``,
which is also the exit status of ``salt-run``. A refused call returns
``{"error": {"code": ..., "message": ..., "hint": ..., "line": ..., "column":
...}, "retcode": ...}``. Nothing is decided here and nothing is kept.

Configuration, in the master's file:

.. code-block:: yaml

    # masterd's socket; the user that salt-master runs as must be in its group
    oduflow.socket: /run/oduflow/masterd.sock

Where the source goes
---------------------

Salt puts the arguments of every runner call on the master's event bus and into
its job cache. A source must not lie there, so this module replaces the
arguments of its own calls before Salt first sends them (see
``_hide_arguments``), and refuses to be loaded where it can't. A command line
can be read by every user of a host: with ``salt-run`` a source comes from a
file or from standard input (``source_path``), never as ``source=``.
"""

import collections
import functools
import http.client
import inspect
import json
import logging
import os
import re
import socket
import sys

import salt.utils.event

log = logging.getLogger(__name__)

__virtualname__ = "oduflow"

_SOCKET = "/run/oduflow/masterd.sock"
_TIMEOUT = 15  # seconds for masterd to answer, besides wait_s
_MAX_ANSWER = 4 << 20
_MAX_SOURCE = 1 << 20  # masterd's own limit is lower and says so

# Exit statuses, as in masterd's table of codes.
_USAGE, _UNAVAILABLE = 2, 7

_TEXT, _WHOLE, _FLAG = "text", "whole number", "true or false"

_START = {
    "request": _TEXT,
    "target": _TEXT,
    "instance": _TEXT,
    "source": _TEXT,
    "revision": _WHOLE,
    "digest": _TEXT,
    "previous": _TEXT,
    "again": _FLAG,
    "requester": _TEXT,
    "accept_until": _TEXT,
}
_STATUS = {"request": _TEXT, "wait_s": _WHOLE}
_VALIDATE = {"source": _TEXT}

_UUID = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
)


def __virtual__():
    """
    Only where a source can be kept off the event bus and out of the job cache
    """
    if not _hide_arguments():
        return (
            False,
            "This Salt's NamespacedEvent.fire_event(data, tag) isn't as expected, "
            "so a source couldn't be kept off the event bus",
        )
    return __virtualname__


def custom_start(*args, **kwargs):
    """
    Bind a custom Salt state to a request and start it once

    The fields are those of ``POST /v1/custom_start``: ``request``, ``target``,
    ``instance``, ``source``, ``revision``, and where wanted ``digest``,
    ``previous``, ``again``, ``requester``, ``accept_until``. Repeating a call
    whose answer was lost, with the same ``request``, is safe and starts nothing
    twice.

    ``source_path`` (with ``salt-run`` only) names a file to read the source
    from; ``-`` is standard input.

    CLI Example:

    .. code-block:: bash

        salt-run oduflow.custom_start request=0b0e6cd4-6f6b-4b8e-9e43-3f3a52f1c0de \\
            target=web1 instance=9a3c6f6e-2f0e-4f43-8d1b-d1a7f0a1b2c3 revision=7 \\
            source_path=- < state.yaml
    """
    return _call("custom_start", _START, args, kwargs)


def custom_status(*args, **kwargs):
    """
    Tell what became of a request: identity, status, counts and codes

    The fields are those of ``POST /v1/custom_status``: ``request``, and
    ``wait_s`` (at most 30) to wait for a change.

    CLI Example:

    .. code-block:: bash

        salt-run oduflow.custom_status request=0b0e6cd4-6f6b-4b8e-9e43-3f3a52f1c0de wait_s=30
    """
    return _call("custom_status", _STATUS, args, kwargs)


def state_validate(*args, **kwargs):
    """
    Judge a source without executing anything

    The field is that of ``POST /v1/state_validate``: ``source``, or with
    ``salt-run`` a ``source_path``.

    CLI Example:

    .. code-block:: bash

        salt-run oduflow.state_validate source_path=/root/state.yaml
    """
    return _call("state_validate", _VALIDATE, args, kwargs)


def _call(entry, fields, args, kwargs):
    # Salt turns a TypeError that escapes from here into a success with a usage
    # text, and any other exception into an answer that holds the traceback. So
    # the functions take whatever comes, and nothing escapes.
    try:
        answer = _checked_call(entry, fields, args, kwargs)
    except Exception as exc:  # pylint: disable=broad-except
        # Not exc_info: a traceback may quote what was passed.
        log.error("oduflow.%s failed inside: %s", entry, type(exc).__name__)
        answer = _error("internal", "the runner failed inside", retcode=1)
    try:
        # Salt takes an event's "success" from here.
        __context__["retcode"] = answer["retcode"]
    except NameError:
        pass  # not under Salt's loader
    return answer


def _checked_call(entry, fields, args, kwargs):
    if not _arguments_hidden():
        return _error(
            "internal",
            "the call's arguments were not kept off Salt's event bus",
            hint="masterd was not called; this Salt calls runners in a way that "
            "this version of the module doesn't know",
            retcode=1,
        )
    if args:
        return _error(
            "bad_field", "arguments are given by name", hint="such as request=UUID"
        )
    given = {k: v for k, v in kwargs.items() if not str(k).startswith("__")}
    if "source" in fields:
        refused = _take_source(given)
        if refused:
            return refused
    body = {}
    for name, value in given.items():
        if name not in fields:
            return _error(
                "unknown_field",
                "the field {} isn't known here".format(_shown(name)),
                hint="the fields are {}".format(", ".join(fields)),
            )
        if value is None:
            continue  # how Python says "not given"
        value = _from_form(fields[name], value)
        if not _is(fields[name], value):
            return _error(
                "bad_field",
                "{} isn't a {}".format(name, fields[name]),
                hint="salt-run reads arguments as YAML; a text that looks like "
                "something else needs quotes inside: {}='\"...\"'".format(name),
            )
        body[name] = int(value) if fields[name] == _WHOLE else value
    wait = body.get("wait_s", 0)
    return _post(entry, body, _TIMEOUT + min(max(wait, 0), 30))


def _from_form(kind, value):
    """
    salt-api hands over the fields of a form as text
    """
    if isinstance(value, str):
        if kind == _WHOLE and re.fullmatch(r"[0-9]{1,16}", value):
            return int(value)
        if kind == _FLAG and value.lower() in ("true", "false"):
            return value.lower() == "true"
    return value


def _is(kind, value):
    if kind == _FLAG:
        return isinstance(value, bool)
    if kind == _WHOLE:
        if isinstance(value, float):
            return value.is_integer()
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


def _shown(name):
    return '"{}"'.format(re.sub(r"[^ !#-\[\]-~]", "?", str(name)[:40]))


def _error(code, message, hint=None, retcode=_USAGE):
    return {
        "error": {
            "code": code,
            "message": message,
            "hint": hint,
            "line": None,
            "column": None,
        },
        "retcode": retcode,
    }


# The source


def _from_command_line():
    """
    Whether this is ``salt-run`` itself and not a call that came to the master
    """
    fun = __opts__.get("fun")
    return isinstance(fun, str) and fun.startswith(__virtualname__ + ".")


def _take_source(given):
    """
    Put the text of ``source_path`` into ``given``; an error dict or None
    """
    here = _from_command_line()
    if here and "source" in given:
        return _error(
            "bad_field",
            "source= on a command line can be read by every user of this host",
            hint="source_path=FILE, or source_path=- and the source on standard input",
        )
    if "source_path" not in given:
        return None
    path = given.pop("source_path")
    if not here:
        # Who may only call this runner from afar shall not read the master's files.
        return _error(
            "unknown_field",
            "source_path is for salt-run alone",
            hint="send the text as source",
        )
    if not isinstance(path, str):
        return _error("bad_field", "source_path isn't a text")
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(_MAX_SOURCE + 1)
        else:
            with open(path, "rb") as file:  # pylint: disable=resource-leakage
                raw = file.read(_MAX_SOURCE + 1)
    except (OSError, ValueError) as exc:
        return _error(
            "bad_field",
            "source_path can't be read: {}".format(
                getattr(exc, "strerror", None) or type(exc).__name__
            ),
            hint="it is read as the user that salt-master runs as; source_path=- isn't",
        )
    if len(raw) > _MAX_SOURCE:
        return _error("too_large", "the source has more than 1 MiB")
    try:
        given["source"] = raw.decode("utf-8")
    except UnicodeDecodeError:
        return _error("source_encoding", "the source isn't valid UTF-8")
    return None


# Salt's event bus and job cache


def _hide_arguments():
    """
    Make Salt's own announcement of a call of ours carry the request's UUID and
    no other argument; False where this Salt can't be made to

    ``salt/client/mixins.py`` builds one dict for each call, with ``fun_args``,
    fires it with the tag ``new``, writes it to ``proc``, and after the call
    into the job cache and on the bus again. There is no option and no hook
    before the first of these, so ``NamespacedEvent.fire_event``, through which
    the dict goes first, is wrapped for this process. It only ever changes
    ``fun_args``, and only of this module's functions.
    """
    cls = getattr(salt.utils.event, "NamespacedEvent", None)
    fire = getattr(cls, "fire_event", None)
    if hasattr(fire, "oduflow_seen"):
        return True
    try:
        if list(inspect.signature(fire).parameters) != ["self", "data", "tag"]:
            return False
    except (TypeError, ValueError):
        return False
    # The calls announced last; more than one where threads share the process.
    seen = collections.deque(maxlen=256)

    @functools.wraps(fire)
    def fire_event(self, data, tag):
        if tag in ("new", "ret") and isinstance(data, dict):
            if str(data.get("fun", "")).startswith("runner.oduflow."):
                if "fun_args" in data:
                    data["fun_args"] = _harmless(data["fun_args"])
            if tag == "new":
                seen.append(data.get("jid"))
        return fire(self, data, tag)

    fire_event.oduflow_seen = seen
    cls.fire_event = fire_event
    return True


def _harmless(fun_args):
    for arg in fun_args if isinstance(fun_args, list) else ():
        if isinstance(arg, dict):
            request = arg.get("request")
            if isinstance(request, str) and _UUID.fullmatch(request):
                return [{"request": request}]
    return []


def _arguments_hidden():
    """
    Whether Salt's announcement of the call under way went through our wrapper
    """
    jid = globals().get("__jid__")
    if jid is None:
        return True  # called by another module: Salt announced nothing for us
    fire = getattr(salt.utils.event.NamespacedEvent, "fire_event", None)
    return jid in getattr(fire, "oduflow_seen", ())


# masterd


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("masterd", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _post(entry, body, timeout):
    path = __opts__.get("oduflow.socket") or _SOCKET
    try:
        # Escaped to ASCII; a lone surrogate stays one and is refused by masterd.
        payload = json.dumps(body).encode("ascii")
    except (TypeError, ValueError):
        return _error("bad_request", "the fields can't be written as JSON")
    connection = _Connection(os.fspath(path), timeout)
    try:
        connection.request(
            "POST",
            "/v1/" + entry,
            body=payload,
            headers={"Content-Type": "application/json", "Connection": "close"},
        )
        response = connection.getresponse()
        raw = response.read(_MAX_ANSWER + 1)
        if response.length:
            raise ValueError("the answer was cut off")
        answer = json.loads(raw.decode("utf-8"))
        retcode = int(response.headers["Oduflow-Exit"])
        if not isinstance(answer, dict) or "data" in answer:
            raise ValueError("not an answer of masterd's")
    except (OSError, http.client.HTTPException, ValueError, TypeError) as exc:
        # Only the kind: the text of some of these quotes what was received.
        log.warning("oduflow.%s: no answer from masterd: %s", entry, type(exc).__name__)
        return _error(
            "unreachable",
            "masterd gave no answer on {}".format(path),
            hint="the call may have been taken all the same; repeat it with the "
            "same request",
            retcode=_UNAVAILABLE,
        )
    finally:
        connection.close()
    answer["retcode"] = retcode
    return answer
