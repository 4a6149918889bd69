"""salt/_engines/oduflow.py: as whom it starts masterd, when not, and how it ends."""

import importlib.util
import os
import pathlib
import pwd
import signal
import stat
import subprocess
import sys
import time

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to start something as another user")


def load(**opts):
    spec = importlib.util.spec_from_file_location("oduflow_engine", REPO / "salt/_engines/oduflow.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__opts__ = opts
    return module


class Enough(Exception):
    pass


@pytest.fixture
def script(tmp_path):
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and str(folder) not in ("/", "/tmp"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)

    def write(body):
        path = tmp_path / "masterd"
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)
        return str(path), out

    return write


@root_only
def test_it_runs_as_its_user_with_nothing_of_the_master_s(script, monkeypatch):
    engine = load()
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(Enough))
    monkeypatch.setenv("SECRET_OF_THE_MASTER", "x")
    program, out = script('{ id -u; id -G; env; echo "args $*"; umask; pwd; ls -l /proc/self/fd; } > "$(dirname $0)/out/said"')
    with pytest.raises(Enough):
        engine.start(program=program, config="/c.yaml", user="nobody")
    said = (out / "said").read_text()
    assert said.startswith("%d\n" % pwd.getpwnam("nobody").pw_uid)
    assert " 0" not in said.splitlines()[1] and said.splitlines()[1] != "0"
    assert "args serve --config /c.yaml" in said and "\n0077\n" in said
    assert "SECRET_OF_THE_MASTER" not in said


@root_only
def test_it_is_started_again_with_growing_pauses(script, monkeypatch):
    engine = load()
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 9:
            raise Enough

    monkeypatch.setattr(time, "sleep", sleep)
    program, out = script('echo x >> "$(dirname $0)/out/runs"; exit 3')
    with pytest.raises(Enough):
        engine.start(program=program, user="nobody")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (out / "runs").read_text() == "x\n" * 9


@root_only
def test_a_long_run_makes_the_pause_short_again(monkeypatch):
    engine = load()
    clock = iter([0, 1, 2, 3, 4, 100, 200, 201])
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            raise Enough

    monkeypatch.setattr(engine, "time", type("T", (), {"monotonic": lambda: next(clock), "sleep": sleep}))
    monkeypatch.setattr(engine, "_run", lambda argv, who: 1)
    with pytest.raises(Enough):
        engine.start(user="nobody")
    assert pauses == [1, 2, 1, 2]


@root_only
def test_a_program_that_is_not_there(monkeypatch, caplog):
    engine = load()
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(Enough))
    with pytest.raises(Enough):
        engine.start(program="/no/such/masterd", user="nobody")
    assert "can't be started" in caplog.text


@root_only
def test_refusals(monkeypatch, caplog):
    engine = load(user="nobody")
    monkeypatch.setattr(engine, "_run", lambda argv, who: pytest.fail("it was started"))
    assert engine.start(user="root") is None
    assert engine.start(user="nobody") is None  # the master's own user
    assert engine.start(user="no-such-user") is None
    assert engine.start(user=None) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert engine.start(user="daemon") is None
    assert caplog.text.count("isn't started") == 5


@root_only
def test_masterd_ends_with_the_engine(script):
    # As Salt does it: a process with a handler that turns SIGTERM into SystemExit.
    program, out = script('echo $$ > "$(dirname $0)/out/pid.new"; mv "$(dirname $0)/out/pid.new" "$(dirname $0)/out/pid"; exec sleep 600')
    code = (
        "import importlib.util, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))\n"
        "spec = importlib.util.spec_from_file_location('e', sys.argv[1])\n"
        "e = importlib.util.module_from_spec(spec); spec.loader.exec_module(e); e.__opts__ = {}\n"
        "e.start(program=sys.argv[2], user='nobody')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(REPO / "salt/_engines/oduflow.py"), program])
    deadline = time.monotonic() + 20
    while not (out / "pid").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    pid = int((out / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_without_root_it_refuses(monkeypatch, caplog):
    engine = load()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert engine.start() is None
    assert "don't run as root" in caplog.text
