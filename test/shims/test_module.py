"""salt/_modules/oduflow.py with a stub for the executor, without Salt.

On real Salt, with the real executor and plugin, it is driven by
test/minionside.
"""

import fcntl
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import types

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
REQUEST = "0b1c5d5e-6a3c-4a8e-9b7f-1d2e3f4a5b6c"
WORD = "hidden-word-77aa"

STUB = """\
#!{python}
import fcntl, json, os, sys
def say(**words):
    sys.stdout.write(json.dumps(words) + "\\n")
    sys.stdout.flush()
def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return json.loads(line)
def note(name, value):
    with open(os.path.join({notes!r}, name), "w") as handle:
        json.dump(value, handle)
first = hear()
note("first", first)
note("environ", dict(os.environ))
note("argv", sys.argv)
note("session", os.getsid(0) == os.getpid())
"""


class Minion:
    """A minion's folders, the module loaded into it, and what Salt would be."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.notes = root / "notes"
        for name in ("state", "lib", "etc", "cache/proc", "notes"):
            (root / name).mkdir(parents=True)
        self.processes = []
        self.ran = []
        self.returned = {}
        self.opts = {
            "id": "web1",
            "pki_dir": str(root / "pki"),
            "cachedir": str(root / "cache"),
            "oduflow.state_dir": str(root / "state"),
            "oduflow.lib_dir": str(root / "lib"),
            "oduflow.etc_dir": str(root / "etc"),
            "state_events": True,
        }
        self.high_opts = dict(self.opts)
        self.module = self.load(monkeypatch)

    def load(self, monkeypatch):
        for name in ("salt", "salt.utils", "salt.utils.jid", "salt.utils.platform", "salt.utils.state", "salt.payload"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        salt = sys.modules["salt"]
        salt.utils, salt.payload = sys.modules["salt.utils"], sys.modules["salt.payload"]
        salt.utils.platform, salt.utils.state = sys.modules["salt.utils.platform"], sys.modules["salt.utils.state"]
        salt.utils.jid = sys.modules["salt.utils.jid"]
        salt.utils.jid.gen_jid = lambda opts: "20261130000000000000"
        salt.utils.platform.is_linux = lambda: True
        salt.utils.platform.is_proxy = lambda: False
        salt.payload.loads = lambda raw: json.loads(raw)
        salt.payload.dumps = lambda data: json.dumps(data).encode()
        spec = importlib.util.spec_from_file_location("oduflow_module", REPO / "salt/_modules/oduflow.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        # Salt's loader gives state.high a copy of the options of its own.
        space = {"__opts__": self.high_opts, "minion": self, "os": os}
        exec(
            "def high(data, test=None, queue=None):\n"
            "    return minion.state_high(data, test, queue, dict(__opts__), dict(os.environ))\n",
            space,
        )
        module.__opts__ = self.opts
        module.__pillar__ = {}
        module.__context__ = {"retcode": 2}
        module.__salt__ = {"state.high": space["high"]}
        return module

    def state_high(self, data, test, queue, opts, environ):
        self.ran.append({"data": data, "test": test, "queue": queue, "opts": opts, "environ": environ})
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned() if callable(self.returned) else self.returned

    def job(self, name, fun, pid=None, word="salt-minion"):
        """Another job of this minion, that lives unless it gets a pid."""
        if pid is None:
            self.processes.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", word]))
            pid = self.processes[-1].pid
        path = self.root / "cache/proc" / name
        path.write_text(json.dumps({"jid": name, "pid": pid, "fun": fun, "arg": []}))
        return path

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def stub(self, script):
        path = self.root / "lib" / "minion-executor"
        head = STUB.format(python=sys.executable, notes=str(self.notes))
        path.write_text(head + textwrap.dedent(script))
        path.chmod(0o755)

    def note(self, name):
        return json.loads((self.notes / name).read_text())

    def start(self):
        return self.module.start("sealed")

    def held(self):
        with open(self.root / "state" / "lease", "r+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@pytest.fixture
def minion(tmp_path, monkeypatch):
    monkeypatch.setenv("HOST_SECRET", WORD)
    minion = Minion(tmp_path, monkeypatch)
    yield minion
    minion.end()


RUN = """
say(do="lease", request=%r, wait_s=1)
assert hear() == {"lease": "held"}
with open(%r) as handle:
    note("lease", json.load(handle))
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        note("held", False)
    except BlockingIOError:
        note("held", True)
say(do="facts")
note("facts", hear())
sys.stdout.write('{"do": "run", "request": "%s", "high": %s}\\n')
sys.stdout.flush()
note("result", hear())
say(do="return", text="odf1.answer")
"""


def run_script(minion, high='{"a": {"test": ["nop"]}}'):
    return RUN % (REQUEST, str(minion.root / "state" / "lease"), REQUEST, high.replace("\\", "\\\\"))


def test_a_question_and_its_answer(minion):
    minion.stub('say(do="return", text="odf1.answer")')
    for kind in ("prepare", "start", "evidence", "settle", "update"):
        assert getattr(minion.module, kind)("sealed-" + WORD) == "odf1.answer"
        assert minion.note("argv")[1:] == [kind]
        first = minion.note("first")
        assert first["v"] == 1 and first["message"] == "sealed-" + WORD
        assert first["facts"] == {
            "id": "web1", "pki_dir": str(minion.root / "pki"), "state_dir": str(minion.root / "state"),
            "lib_dir": str(minion.root / "lib"), "etc_dir": str(minion.root / "etc"), "run_dir": "", "uid": os.geteuid(),
            "allow_unprivileged": False, "multiprocessing": True, "proxy": False, "resources": False,
            "pillar_errors": False, "state_running": False,
        }


def test_the_executor_gets_no_environment_and_a_session_of_its_own(minion):
    minion.stub('say(do="return", text="odf1.answer")')
    minion.module.prepare("sealed")
    environ = minion.note("environ")
    assert set(environ) - {"LC_CTYPE"} == {"PATH", "LANG"}, environ
    assert minion.note("session") is True
    assert WORD not in json.dumps([environ, minion.note("argv")])


@pytest.mark.parametrize(
    "change, fact",
    [
        ({"multiprocessing": False}, ("multiprocessing", False)),
        ({"multiprocessing": False, "__cli": "salt-call"}, ("multiprocessing", True)),
        ({"proxy": {"proxytype": "x"}}, ("proxy", True)),
        ({"proxyid": "p"}, ("proxy", True)),
        ({"resources": {"x": ["y"]}}, ("resources", True)),
        ({"oduflow.allow_unprivileged": True}, ("allow_unprivileged", True)),
        ({"oduflow.allow_unprivileged": "yes"}, ("allow_unprivileged", False)),
    ],
)
def test_facts(minion, change, fact):
    minion.opts.update(change)
    minion.stub('say(do="return", text="odf1.answer")')
    minion.module.prepare("sealed")
    assert minion.note("first")["facts"][fact[0]] is fact[1]


def test_options_never_come_from_pillar(minion):
    minion.module.__pillar__ = {"oduflow.state_dir": "/pillar", "oduflow": {"state_dir": "/pillar"}, "_errors": ["x"]}
    minion.stub('say(do="return", text="odf1.answer")')
    minion.module.prepare("sealed")
    facts = minion.note("first")["facts"]
    assert facts["state_dir"] == str(minion.root / "state") and facts["pillar_errors"] is True
    assert "/pillar" not in json.dumps(facts)


def test_a_state_run_is_seen(minion):
    minion.stub('say(do="return", text="odf1.answer")')
    for name, fun, pid, word, seen in [
        ("a", "state.apply", None, "salt-minion", True),
        ("b", ["test.ping", "state.sls"], None, "salt-minion", True),  # a compound call
        ("c", "test.ping", None, "salt-minion", False),
        ("d", "state.apply", 2**22 + 1, "", False),  # gone
        ("e", "state.apply", None, "something else", False),  # its pid has another process now
        ("f", "state.apply", os.getpid(), "", False),  # this job
        ("g", "state.apply", "x", "", False),
    ]:
        path = minion.job(name, fun, pid, word)
        minion.module.prepare("sealed")
        assert minion.note("first")["facts"]["state_running"] is seen, name
        path.unlink()
    queue = minion.root / "cache" / "state_queue"
    queue.mkdir()
    (queue / "20261130000000000000").write_text("1")  # a flag of one that waits in memory
    minion.module.prepare("sealed")
    assert minion.note("first")["facts"]["state_running"] is False
    for name in ("queued_1_2.p", "running_1_2.p"):
        (queue / name).write_text("")
        minion.module.prepare("sealed")
        assert minion.note("first")["facts"]["state_running"] is True
        (queue / name).unlink()
    (queue / "running_1_3.p").write_text("")  # left behind by a crash
    minion.module._TAKEN_S = -1
    minion.module.prepare("sealed")
    assert minion.note("first")["facts"]["state_running"] is False


def test_a_dead_job_that_init_has_not_waited_for_runs_nothing(minion):
    with subprocess.Popen(["sleep", "60"]) as job:
        job.kill()
        os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)  # dead, and still there
        minion.job("oduflow-1", "state.high", job.pid)
        minion.stub('say(do="return", text="odf1.answer")')
        minion.module.prepare("sealed")
    assert minion.note("first")["facts"]["state_running"] is False


def test_a_state_run_whose_file_is_being_written_is_seen(minion):
    path = minion.job("a", "state.apply")
    whole = path.read_text()
    path.write_text("")
    timer = threading.Timer(0.3, lambda: path.write_text(whole))
    timer.start()
    minion.stub('say(do="return", text="odf1.answer")')
    minion.module.prepare("sealed")
    timer.join()
    assert minion.note("first")["facts"]["state_running"] is True
    path.write_text("{half")  # left behind by a crash: neither waited for for long nor removed
    minion.module._HALF_WRITTEN_S = 0.1
    minion.module.prepare("sealed")
    assert minion.note("first")["facts"]["state_running"] is False and path.exists()


def test_a_run(minion):
    mine = {"jid": "1", "pid": os.getpid(), "fun": "oduflow.start", "arg": ["sealed"]}
    (minion.root / "cache/proc/1").write_text(json.dumps(mine))
    other = {"jid": "2", "pid": 1, "fun": "oduflow.start"}
    (minion.root / "cache/proc/2").write_text(json.dumps(other))
    (minion.root / "cache/proc/3").write_text("{half")
    seen = {}
    mark = minion.root / "cache/proc" / "oduflow-{}".format(os.getpid())

    def returned():
        # The minion writes the job's own file again, as it may at any time.
        (minion.root / "cache/proc/1").write_text(json.dumps(mine))
        seen["proc"] = json.loads(mark.read_text())
        seen["held"] = minion.held()
        # What is executed doesn't hold the lease and carries the request.
        seen["child"] = subprocess.run(
            [sys.executable, "-c", "import os; print(os.environ['ODUFLOW_REQUEST'], [os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)])"],
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout
        return {
            "test_|-a_|-a_|-nop": {"result": True, "comment": WORD, "changes": {WORD: WORD}},
            "test_|-b_|-b_|-nop": {"result": False},
            "test_|-c_|-c_|-nop": {"result": None},
            "test_|-d_|-d_|-nop": {"result": 1},
            "test_|-e_|-e_|-nop": {},
        }

    minion.returned = returned
    minion.stub(run_script(minion))
    assert minion.start() == "odf1.answer"
    assert minion.note("held") is True
    assert minion.note("lease") == {"version": 1, "request": REQUEST}
    result = minion.note("result")
    assert result == {
        "kind": "map",
        "results": [
            ["test_|-a_|-a_|-nop", "true"], ["test_|-b_|-b_|-nop", "false"], ["test_|-c_|-c_|-nop", "null"],
            ["test_|-d_|-d_|-nop", "other"], ["test_|-e_|-e_|-nop", "other"],
        ],
    }
    (ran,) = minion.ran
    assert ran["data"] == {"a": {"test": ["nop"]}}
    assert ran["test"] is False and ran["queue"] is False
    assert ran["opts"]["state_events"] is False
    assert seen["proc"] == dict(mine, fun="state.high", arg=[])
    assert not mark.exists()
    assert json.loads((minion.root / "cache/proc/2").read_text()) == other
    assert seen["held"] is True and seen["child"].startswith(REQUEST) and "lease" not in seen["child"]
    assert minion.held() is False
    assert "ODUFLOW_REQUEST" not in os.environ
    assert minion.module.__context__["retcode"] == 0


def test_values_arrive_as_they_are(minion):
    high = (
        '{"z": {"m": [{"i": 9007199254740993}, {"f": 1.0}, {"g": 1e+22}, {"neg": -9223372036854775808},'
        ' {"map": {"\\u0000map": [[1, "a"], [true, {"\\u0000map": [[2.5, null]]}], [null, []]]}},'
        ' {"t": "\\u00e4"}, "fun"]}, "a": {}}'
    )
    minion.stub(run_script(minion, high))
    minion.start()
    data = minion.ran[0]["data"]
    assert list(data) == ["z", "a"]
    arguments = {k: v for item in data["z"]["m"][:-1] for k, v in item.items()}
    assert arguments["i"] == 9007199254740993 and type(arguments["i"]) is int
    assert arguments["f"] == 1.0 and type(arguments["f"]) is float
    assert arguments["g"] == 1e22 and arguments["neg"] == -(2**63) and arguments["t"] == "ä"
    assert repr(arguments["map"]) == "{1: {2.5: None}, None: []}" or arguments["map"] == {1: {2.5: None}, None: []}


@pytest.mark.parametrize(
    "returned, kind",
    [
        ({}, "empty"),
        ([WORD], "list"),
        ([], "list"),
        (WORD, "string"),
        (None, "null"),
        (True, "other"),
        ({"result": True, "comment": WORD, "queued": True, "changes": {}}, "queued"),
        ({"a": {"result": True}, "b": WORD}, "other"),
        (RuntimeError(WORD), "exception"),
    ],
)
def test_returns_without_content(minion, returned, kind):
    minion.returned = returned
    minion.stub(run_script(minion))
    assert minion.start() == "odf1.answer"
    assert minion.note("result") == {"kind": kind}


def test_a_list_beside_another_state_run(minion):
    def returned():
        minion.job("a", "state.apply")
        return ["The function is running"]

    minion.returned = returned
    minion.stub(run_script(minion))
    minion.start()
    assert minion.note("result") == {"kind": "state_running"}


def test_what_cant_be_marked_isnt_run(minion):
    minion.stub('say(do="facts"); hear(); note("on", 1)')
    proc = minion.root / "cache/proc"
    proc.rmdir()
    proc.write_text("")
    assert minion.start() == "oduflow: unavailable executor_failed"
    assert not (minion.notes / "on").exists() and minion.ran == []


def test_a_busy_lease(minion):
    minion.stub(
        """
        say(do="lease", request="x", wait_s=0.2)
        note("lease", hear())
        say(do="return", text="odf1.answer")
        """
    )
    with open(minion.root / "state" / "lease", "w") as handle:
        handle.write("somebody")
        handle.flush()
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert minion.start() == "odf1.answer"
    assert minion.note("lease") == {"lease": "busy"}
    assert (minion.root / "state" / "lease").read_text() == "somebody"


def test_nothing_runs_without_the_lease(minion):
    minion.stub('say(do="run", request=%r, high={}); hear()' % REQUEST)
    assert minion.start() == "oduflow: unavailable executor_failed"
    minion.stub(
        """
        say(do="lease", request="another", wait_s=1)
        hear()
        say(do="run", request=%r, high={})
        hear()
        """
        % REQUEST
    )
    assert minion.start() == "oduflow: unavailable executor_failed"
    assert minion.ran == []


@pytest.mark.parametrize("kind", ["prepare", "evidence", "settle", "update"])
@pytest.mark.parametrize("do", ["run", "lease", "facts"])
def test_only_a_start_may_run(minion, kind, do):
    minion.stub("say(do=%r, request=%r, high={}, wait_s=1); hear()" % (do, REQUEST))
    assert getattr(minion.module, kind)("sealed") == "oduflow: unavailable executor_failed"
    assert minion.ran == []


def test_state_events_that_cannot_be_silenced(minion):
    minion.module.__salt__["state.high"] = minion.state_high  # no options of its own to reach
    minion.stub(run_script(minion))
    assert minion.start() == "oduflow: unavailable executor_failed"
    assert minion.ran == []


@pytest.mark.parametrize(
    "script",
    [
        "sys.exit(0)",
        "os.kill(os.getpid(), 9)",
        'print("Traceback: %s")' % WORD,
        "print('[]')",
        "print('{}')",
        'say(do="dance")',
        'say(do="return")',
        'say(do="return", text=12)',
        'say(do="return", text="x" * 5000)',
        'say(do="lease")',
        'say(do="lease", request="x", wait_s="%s")' % WORD,
        'sys.stdout.write("x" * 100000)',
    ],
)
def test_an_executor_that_fails(minion, script):
    minion.stub(script)
    assert minion.start() == "oduflow: unavailable executor_failed"
    assert minion.ran == []
    if (minion.root / "state" / "lease").exists():
        assert minion.held() is False


def test_an_executor_that_is_silent_is_killed(minion):
    minion.module._PATIENCE_S = 0.3
    minion.stub("note('pid', os.getpid())\nimport time; time.sleep(600)")
    assert minion.start() == "oduflow: unavailable executor_silent"
    pid = minion.note("pid")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_executor(minion):
    assert minion.start() == "oduflow: unavailable executor_missing"
    (minion.root / "lib" / "minion-executor").write_text("not a program")
    assert minion.start() == "oduflow: unavailable executor_missing"


@pytest.mark.parametrize("message", [None, 12, b"x", ["x"], {"a": 1}, "x" * (256 * 1024 + 1)])
def test_messages_that_are_none(minion, message):
    minion.stub('say(do="return", text="odf1.answer")')
    assert minion.start.__func__(minion) == "odf1.answer"
    assert minion.module.start(message) == "oduflow: rejected message_unreadable"


def test_no_exception_leaves(minion, caplog):
    def broken(*_):
        raise ValueError(WORD)

    minion.stub('say(do="return", text="odf1.answer")')
    minion.module._jobs = broken
    with caplog.at_level("DEBUG"):
        assert minion.module.prepare("sealed") == "oduflow: unavailable executor_failed"
    assert WORD not in caplog.text


def test_large_messages_pass_through(minion):
    minion.stub('say(do="return", text=str(len(first["message"])))')
    assert minion.module.prepare("x" * (256 * 1024)) == str(256 * 1024)


def test_loading(minion):
    assert minion.module.__virtual__() == "oduflow"
    minion.module.HAS_FCNTL = False
    loaded, reason = minion.module.__virtual__()
    assert loaded is False and reason
