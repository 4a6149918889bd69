"""
Hand messages of Oduflow Salt's masterd to this minion's executor
=================================================================

This module is a thin shim. It starts ``minion-executor``, tells it the message
and a few facts about this minion, and does the three things that only a Salt
job process can do: hold the lease, call the fixed ``state.high``, and return
to the master. What is right and what is refused the executor decides; this
module holds no policy and no state, sees no key, and returns nothing but the
text that the executor gives it. No exception, comment, change or output of a
state ever leaves through it.

All five functions take one opaque, sealed message from masterd. There is
nothing that can be called by hand.

:configuration: Minion options, never pillar, with their defaults:

    .. code-block:: yaml

        oduflow.state_dir: /var/lib/oduflow-minion
        oduflow.lib_dir: /usr/lib/oduflow-minion
        oduflow.etc_dir: /etc/oduflow-minion
        oduflow.run_dir: ''  # a folder below /run, lost with the boot
        oduflow.allow_unprivileged: False   # True in a lab only

:depends: ``minion-executor`` in ``oduflow.lib_dir``
:platform: Linux
"""

import errno
import json
import logging
import os
import select
import subprocess
import time

import salt.payload
import salt.utils.jid
import salt.utils.platform
import salt.utils.state

try:
    import fcntl

    HAS_FCNTL = True
except ImportError:
    HAS_FCNTL = False

log = logging.getLogger(__name__)

__virtualname__ = "oduflow"

# Fixed texts for when there is no executor to speak. They prove nothing.
_UNREADABLE = "oduflow: rejected message_unreadable"
_MISSING = "oduflow: unavailable executor_missing"
_FAILED = "oduflow: unavailable executor_failed"
_SILENT = "oduflow: unavailable executor_silent"

_TALK_VERSION = 1
_MAX_MESSAGE = 256 * 1024
_MAX_ANSWER = 4 * 1024
_MAX_LINE = 32 * 1024 * 1024

# How long one line of the executor may take. It bounds itself well below.
_PATIENCE_S = 60
_LEASE_POLL_S = 0.05
_MAX_LEASE_WAIT_S = 60
_LEASE_SIZE = 256

# How long a job's file may be empty while the minion writes it, and how old a
# job may be that was taken from the queue and isn't running yet.
_POLL_S = 0.01
_HALF_WRITTEN_S = 1
_TAKEN_S = 60

# A mapping with keys other than text travels as {"\u0000map": [[key, value], ...]}.
_MAP_MARK = "\u0000map"


def __virtual__():
    """
    Load on Linux only; never raises
    """
    if not HAS_FCNTL or not salt.utils.platform.is_linux():
        return (False, "The oduflow module works on Linux only")
    return __virtualname__


def prepare(message):
    """
    Check whether a request may be started here. No effect; may be repeated

    CLI Example:

    .. code-block:: bash

        salt 'minion' oduflow.prepare <sealed message from masterd>
    """
    return _serve("prepare", message)


def start(message):
    """
    Run a prepared request, once

    CLI Example:

    .. code-block:: bash

        salt 'minion' oduflow.start <sealed message from masterd>
    """
    return _serve("start", message)


def evidence(message):
    """
    Say what this minion's ledger proves about a request. May be repeated

    CLI Example:

    .. code-block:: bash

        salt 'minion' oduflow.evidence <sealed message from masterd>
    """
    return _serve("evidence", message)


def settle(message):
    """
    Close the record of a started request with what an operator found out

    CLI Example:

    .. code-block:: bash

        salt 'minion' oduflow.settle <sealed message from masterd>
    """
    return _serve("settle", message)


def update(message):
    """
    Write what the ledger holds about the minion itself

    CLI Example:

    .. code-block:: bash

        salt 'minion' oduflow.update <sealed message from masterd>
    """
    return _serve("update", message)


class _ExecutorError(Exception):
    """
    The conversation is over; text is what to return to the master
    """

    def __init__(self, text):
        super().__init__(text)
        self.text = text


def _serve(kind, message):
    """
    Hold one conversation and return its text. Nothing else leaves: a traceback
    could hold what was sealed.
    """
    try:
        if not isinstance(message, str) or len(message) > _MAX_MESSAGE:
            return _UNREADABLE
        return _converse(kind, message)
    except _ExecutorError as exc:
        return exc.text
    except Exception as exc:  # pylint: disable=broad-except
        log.error("oduflow.%s failed inside: %s", kind, type(exc).__name__)
        return _FAILED


def _converse(kind, message):
    lease = _Lease(os.path.join(_option("state_dir"), "lease"))
    executor = None
    try:
        executor = _Executor(kind)
        executor.say({"v": _TALK_VERSION, "message": message, "facts": _facts()})
        while True:
            asked = executor.hear()
            what = asked.get("do")
            if what == "return":
                text = asked.get("text")
                if not isinstance(text, str) or len(text) > _MAX_ANSWER:
                    raise _ExecutorError(_FAILED)
                return text
            if kind != "start":
                raise _ExecutorError(_FAILED)
            if what == "facts":
                _silence_state_events()
                _mark_as_state_run()
                executor.say({"facts": _facts()})
            elif what == "lease":
                held = lease.take(asked["request"], float(asked["wait_s"]))
                executor.say({"lease": "held" if held else "busy"})
            elif what == "run":
                if not lease.held_for(asked["request"]):
                    raise _ExecutorError(_FAILED)
                executor.say(_run(asked["request"], asked["high"]))
            else:
                raise _ExecutorError(_FAILED)
    finally:
        # The executor first: the lease says that something may still happen.
        if executor is not None:
            executor.end()
        if kind == "start":
            _unmark()
        lease.free()


def _option(name):
    """
    A path from the minion's configuration
    """
    defaults = {
        "state_dir": "/var/lib/oduflow-minion",
        "lib_dir": "/usr/lib/oduflow-minion",
        "etc_dir": "/etc/oduflow-minion",
    }
    return str(__opts__.get("oduflow." + name) or defaults[name])


def _facts():
    """
    What the executor has to know about this minion
    """
    return {
        "id": str(__opts__.get("id", "")),
        "pki_dir": str(__opts__.get("pki_dir", "")),
        "state_dir": _option("state_dir"),
        "lib_dir": _option("lib_dir"),
        "etc_dir": _option("etc_dir"),
        "run_dir": str(__opts__.get("oduflow.run_dir") or ""),
        "uid": os.geteuid(),
        "allow_unprivileged": __opts__.get("oduflow.allow_unprivileged") is True,
        # salt-call runs one job in a process of its own, whatever is configured.
        "multiprocessing": bool(
            __opts__.get("multiprocessing", True) or __opts__.get("__cli") == "salt-call"
        ),
        "proxy": bool(
            __opts__.get("proxy")
            or __opts__.get("proxyid")
            or salt.utils.platform.is_proxy()
        ),
        "resources": bool(__opts__.get("resources")),
        "pillar_errors": bool(__pillar__.get("_errors")),
        "state_running": _state_running(),
    }


def _state_running():
    """
    Whether another state run is active on this minion, or waits on its disk
    """
    return any(_is_state_run(job) for job in _jobs()) or _state_waits()


def _jobs():
    """
    The jobs of this minion, by the files that Salt keeps of them. It is looked
    without Salt's own functions: those take a file that is just being written
    for an empty one, and remove it.
    """
    folder = _proc_dir()
    jobs = []
    until = time.monotonic() + _HALF_WRITTEN_S
    try:
        names = os.listdir(folder)
    except OSError:
        return jobs
    for name in names:
        while True:
            try:
                job = _read_job(os.path.join(folder, name))
            except OSError:  # it is gone, and so is its job
                break
            if job is not None:
                jobs.append(job)
                break
            if time.monotonic() >= until:  # left behind by a crash
                break
            time.sleep(_POLL_S)
    return jobs


def _read_job(path):
    """
    What a job's file says, None if it is empty or half written
    """
    with open(path, "rb") as handle:
        raw = handle.read()
    try:
        job = salt.payload.loads(raw)
    except Exception:  # pylint: disable=broad-except
        return None
    return job if isinstance(job, dict) else None


def _is_state_run(job):
    """
    Whether a job that isn't this one runs states, alone or among others, and
    lives
    """
    functions = job.get("fun")
    if not isinstance(functions, (list, tuple)):
        functions = [functions]
    pid = job.get("pid")
    if pid == os.getpid() or not any(str(f).startswith("state.") for f in functions):
        return False
    try:
        with open("/proc/{}/stat".format(int(pid)), "rb") as handle:
            state = handle.read().rpartition(b")")[2].split()[0]
        with open("/proc/{}/cmdline".format(int(pid)), "rb") as handle:
            cmdline = handle.read()
    except (OSError, TypeError, ValueError, IndexError):
        return False
    # A job that was killed with its minion stays as long as init doesn't wait
    # for it, which some take their time for.
    if state in (b"Z", b"X"):
        return False
    # An empty one is a process that ends, or another one's that can't be read.
    return b"salt" in cmdline or not cmdline


def _state_waits():
    try:
        folder = salt.utils.state.state_queue_dir(__opts__)
    except AttributeError:  # older releases have one folder
        folder = os.path.join(__opts__["cachedir"], "state_queue")
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        if name.endswith(".p") and name.startswith("queued_"):
            return True
        if name.endswith(".p") and name.startswith("running_"):
            # Taken from the queue, and not yet among the jobs. A crash leaves
            # such a file behind for good.
            try:
                if time.time() - os.stat(os.path.join(folder, name)).st_ctime < _TAKEN_S:
                    return True
            except OSError:
                pass
    return False


def _proc_dir():
    return os.path.join(__opts__["cachedir"], "proc")


def _silence_state_events():
    """
    Set ``state_events`` to False for this job: with it every result, output
    included, would go to the master's bus. Salt's loader gives each module its
    own copy of the options, so it is the copy of ``state.high`` that counts. If
    that can't be reached nothing is run.
    """
    options = getattr(__salt__["state.high"], "__globals__", {}).get("__opts__")
    if options is None:
        raise _ExecutorError(_FAILED)
    options["state_events"] = False
    if options.get("state_events") is not False:
        raise _ExecutorError(_FAILED)


def _mark_as_state_run():
    """
    Let this job look like a state run to other jobs, so that an operator's
    ``state.apply`` is refused while a request runs. It gets a second file among
    those of the running jobs: the minion may write the job's own one at any
    time after the fork. Whoever calls this looks for other state runs
    afterwards; of two that do so, at least one sees the other.
    """
    pid = os.getpid()
    mine = [job for job in _jobs() if job.get("pid") == pid]
    job = dict(mine[0]) if mine else {"jid": salt.utils.jid.gen_jid(__opts__), "arg": []}
    job.update({"fun": "state.high", "pid": pid, "arg": []})
    path = _mark_path()
    temp = os.path.join(__opts__["cachedir"], ".oduflow-proc-{}".format(pid))
    try:
        os.makedirs(_proc_dir(), exist_ok=True)
        handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, salt.payload.dumps(job))
        finally:
            os.close(handle)
        os.rename(temp, path)  # never empty in between: Salt removes an empty one
        seen = _read_job(path)
    except OSError:
        seen = None
    if seen is None or seen.get("fun") != "state.high" or seen.get("pid") != pid:
        raise _ExecutorError(_FAILED)


def _mark_path():
    return os.path.join(_proc_dir(), "oduflow-{}".format(os.getpid()))


def _unmark():
    try:
        os.remove(_mark_path())
    except OSError:
        pass


def _run(request, high):
    """
    Call the fixed ``state.high`` and say what came back, without any of its
    content
    """
    _silence_state_events()
    _mark_as_state_run()
    # What is executed from here on can be found again by its request.
    os.environ["ODUFLOW_REQUEST"] = request
    try:
        returned = __salt__["state.high"](high, test=False, queue=False)
    except Exception as exc:  # pylint: disable=broad-except
        log.error("state.high raised %s", type(exc).__name__)
        return {"kind": "exception"}
    finally:
        os.environ.pop("ODUFLOW_REQUEST", None)
        # The answer says how it went; Salt's own verdict would say it to all.
        __context__["retcode"] = 0
    return _reduce(returned)


def _reduce(returned):
    if isinstance(returned, dict):
        if not returned:
            return {"kind": "empty"}
        if not all(isinstance(entry, dict) for entry in returned.values()):
            return {"kind": "queued" if "queued" in returned else "other"}
        return {
            "kind": "map",
            "results": [[str(key), _result(entry)] for key, entry in returned.items()],
        }
    if isinstance(returned, list):
        # Salt answers a list before it runs anything: for data that it doesn't
        # take, and where another state run is active. Which of the two is told
        # by looking, not by its words.
        return {"kind": "state_running" if _state_running() else "list"}
    if isinstance(returned, str):
        return {"kind": "string"}
    if returned is None:
        return {"kind": "null"}
    return {"kind": "other"}


def _result(entry):
    result = entry.get("result", "missing")
    if result is True:
        return "true"
    if result is False:
        return "false"
    if result is None:
        return "null"
    return "other"


def _pairs(pairs):
    if len(pairs) == 1 and pairs[0][0] == _MAP_MARK:
        return {key: value for key, value in pairs[0][1]}
    return dict(pairs)


class _Lease:
    """
    The right to run on this minion: an exclusive flock on one file, held by
    this process and by nothing that it executes, freed by the kernel if this
    process dies
    """

    def __init__(self, path):
        self.path = path
        self.handle = None
        self.request = None

    def take(self, request, wait_s):
        if self.handle is not None:
            return self.held_for(request)
        handle = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        until = time.monotonic() + min(wait_s, _MAX_LEASE_WAIT_S)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as exc:
                if exc.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(handle)
                    raise
            if time.monotonic() >= until:
                os.close(handle)
                return False
            time.sleep(_LEASE_POLL_S)
        # Padded, over what is there: on a full disk there is no other room.
        name = json.dumps({"version": 1, "request": str(request)})
        os.pwrite(handle, name.encode("utf-8").ljust(_LEASE_SIZE), 0)
        self.handle, self.request = handle, request
        return True

    def held_for(self, request):
        return self.handle is not None and self.request == request

    def free(self):
        if self.handle is None:
            return
        try:
            os.pwrite(self.handle, b" " * _LEASE_SIZE, 0)
        except OSError:
            pass
        os.close(self.handle)
        self.handle = self.request = None


class _Executor:
    """
    One executor process, in a session of its own, with a short environment. It
    writes its log to nowhere: a log could hold what was sealed.
    """

    def __init__(self, kind):
        path = os.path.join(_option("lib_dir"), "minion-executor")
        try:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                [path, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
                close_fds=True,
                start_new_session=True,
            )
        except OSError:
            raise _ExecutorError(_MISSING) from None
        self.heard = bytearray()

    def say(self, words):
        data = json.dumps(words).encode("ascii") + b"\n"
        try:
            view = memoryview(data)
            while view:
                view = view[self.process.stdin.write(view) :]
        except OSError:
            raise _ExecutorError(_FAILED) from None

    def hear(self):
        """
        The next line. An executor that ends or says something else is one that
        failed; one that says nothing for long is killed.
        """
        until = time.monotonic() + _PATIENCE_S
        pipe = self.process.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN | select.POLLHUP | select.POLLERR)
        searched = 0
        while True:
            end = self.heard.find(b"\n", searched)
            if end >= 0:
                break
            searched = len(self.heard)
            left = until - time.monotonic()
            if left <= 0:
                raise _ExecutorError(_SILENT)
            if not poll.poll(left * 1000):
                continue
            part = os.read(pipe, 65536)
            if not part or len(self.heard) > _MAX_LINE:
                raise _ExecutorError(_FAILED)
            self.heard += part
        line = bytes(self.heard[:end])
        del self.heard[: end + 1]
        asked = json.loads(line, object_pairs_hook=_pairs)
        if not isinstance(asked, dict):
            raise _ExecutorError(_FAILED)
        return asked

    def end(self):
        """
        Close our side, and kill what doesn't go by itself
        """
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
