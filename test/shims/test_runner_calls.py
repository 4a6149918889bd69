"""salt/_runners/oduflow.py over masterd's real handler, without Salt.

What Salt itself does with the module is in runner_on_salt.py, which
test_runner_on_salt.py runs on every Salt that is installed.
"""

import collections
import importlib.util
import json
import os
import pathlib
import socket
import sys
import threading
import types
import uuid

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "test" / "openapi"))

from fake_masterd import masterd  # noqa: E402,F401

INSTANCE = "9a3c6f6e-2f0e-4f43-8d1b-d1a7f0a1b2c3"
SOURCE = "a:\n  test.nop: []\n"
WORD = "hidden-word-5a1c"


def fake_salt(monkeypatch, fire=None):
    """As much of Salt as the module imports, the same in all three lines."""
    event = types.ModuleType("salt.utils.event")

    class NamespacedEvent:
        fired = []

        def fire_event(self, data, tag):
            NamespacedEvent.fired.append((tag, json.loads(json.dumps(data))))

    if fire is not None:
        NamespacedEvent.fire_event = fire
    event.NamespacedEvent = NamespacedEvent
    for name in ("salt", "salt.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "salt.utils.event", event)
    sys.modules["salt"].utils = sys.modules["salt.utils"]
    sys.modules["salt.utils"].event = event
    return NamespacedEvent


def load(path, **dunders):
    spec = importlib.util.spec_from_file_location("oduflow_runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__dict__.update(dunders)
    return module


@pytest.fixture
def runner(monkeypatch, masterd):
    fake_salt(monkeypatch)
    module = load(
        REPO / "salt/_runners/oduflow.py",
        __opts__={"oduflow.socket": masterd.socket},
        __context__={},
    )
    assert module.__virtual__() == "oduflow"
    return module


def fields(**more):
    given = {"request": str(uuid.uuid4()), "target": "web1", "instance": INSTANCE, "source": SOURCE, "revision": 7}
    given.update(more)
    return given


def test_start_and_status(runner):
    given = fields(request=str(uuid.uuid4()).upper(), again=False, requester="anna", previous=None)
    answer = runner.custom_start(**given)
    assert (answer["status"], answer["request"], answer["retcode"]) == ("queued", given["request"].lower(), 0)
    assert "data" not in answer and len(answer) == 20
    assert runner.custom_status(request=given["request"], wait_s=0)["status"] == "running"
    assert runner.custom_status(request=given["request"])["status"] == "succeeded"


@pytest.mark.parametrize("target, retcode", [("fail1", 1), ("lost1", 3), ("busy1", 1), ("web1", 0)])
def test_exit_statuses_of_receipts(runner, target, retcode):
    given = fields(target=target)
    runner.custom_start(**given)
    for _ in range(2):
        answer = runner.custom_status(request=given["request"])
    assert answer["retcode"] == retcode
    assert runner.__context__["retcode"] == retcode


@pytest.mark.parametrize(
    "change, code, retcode",
    [
        ({"target": "web*"}, "bad_field", 2),
        ({"request": "x"}, "bad_field", 2),
        ({"source": "{{"}, "jinja", 2),
        ({"digest": "0" * 64}, "digest_mismatch", 4),
        ({"accept_until": "2020-01-01T00:00:00Z"}, "accept_until_passed", 4),
        ({"target": "down-" + uuid.uuid4().hex}, "deaf", 7),
        ({"source": "\ud800"}, "bad_request", 2),
    ],
)
def test_refusals_come_with_code_and_exit_status(runner, change, code, retcode):
    answer = runner.custom_start(**fields(**change))
    assert (answer["error"]["code"], answer["retcode"]) == (code, retcode)
    assert set(answer["error"]) == {"code", "message", "hint", "line", "column"}
    assert "data" not in answer


def test_unknown_request(runner):
    answer = runner.custom_status(request=str(uuid.uuid4()))
    assert (answer["error"]["code"], answer["retcode"]) == ("unknown_request", 5)


def test_validate_is_alike_to_http(runner):
    answer = runner.state_validate(source=SOURCE)
    assert answer["ok"] is True and answer["retcode"] == 0
    answer = runner.state_validate(source="{{")
    assert answer["ok"] is False and answer["retcode"] == 2 and answer["errors"][0]["code"] == "jinja"


class Odd:
    def __str__(self):
        raise RuntimeError(WORD)

    __repr__ = __str__


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((), {}),
        (("web1",), {}),
        ((Odd(),), {}),
        ((), fields(request=5)),
        ((), fields(request=1e300)),
        ((), fields(request=None)),
        ((), fields(target=True)),
        ((), fields(target=["web1"])),
        ((), fields(target={"a": WORD})),
        ((), fields(target=b"web1")),
        ((), fields(source=["a"])),
        ((), fields(source={"a": {"test.nop": []}})),
        ((), fields(source=Odd())),
        ((), fields(revision="seven")),
        ((), fields(revision="07.0")),
        ((), fields(revision=True)),
        ((), fields(revision=1.5)),
        ((), fields(revision=float("nan"))),
        ((), fields(revision=float("inf"))),
        ((), fields(revision=-1)),
        ((), fields(revision=10**400)),
        ((), fields(again="yes")),
        ((), fields(again=1)),
        ((), fields(digest=int("1" * 64))),
        ((), fields(fun="cmd.run")),
        ((), fields(source_path="/etc/passwd")),
        ((), {"request": Odd()}),
        ((), {5: 5}),
        ((), {Odd(): 1}),
    ],
)
def test_no_input_makes_an_exception(runner, args, kwargs):
    # Salt turns a TypeError into a success with a usage text (anchors 0.5).
    for function in (runner.custom_start, runner.custom_status, runner.state_validate):
        answer = function(*args, **{k: v for k, v in kwargs.items() if isinstance(k, str)})
        odd = [k for k in kwargs if not isinstance(k, str)]
        if odd:
            answer = runner._call("custom_start", runner._START, args, kwargs)
        assert answer["retcode"] != 0 and answer["error"]["code"] in (
            "bad_field", "unknown_field", "internal", "bad_request", "unknown_request",
        )
        assert WORD not in json.dumps(answer)


def test_types_that_yaml_made_of_texts_are_named(runner):
    answer = runner.custom_start(**fields(target=123))
    assert answer["error"]["message"].startswith("target isn't a text")
    assert "quotes" in answer["error"]["hint"]


def test_salt_s_own_arguments_are_not_fields(runner):
    assert runner.custom_start(**fields(__pub_user="odoo", __pub_jid="1"))["status"] == "queued"


def test_unreachable(runner, tmp_path):
    runner.__opts__["oduflow.socket"] = str(tmp_path / "none")
    answer = runner.custom_start(**fields(source=WORD))
    assert (answer["error"]["code"], answer["retcode"]) == ("unreachable", 7)
    assert WORD not in json.dumps(answer)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"nonsense " + WORD.encode() + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",  # no Oduflow-Exit
        b"HTTP/1.1 200 OK\r\nOduflow-Exit: 0\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nOduflow-Exit: x\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nOduflow-Exit: 0\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nOduflow-Exit: 0\r\nContent-Length: 11\r\n\r\n{\"data\": 1}",
    ],
)
def test_what_is_not_masterd_is_no_answer(runner, tmp_path, sent, caplog):
    path = str(tmp_path / "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def answer():
        conn = server.accept()[0]
        conn.recv(65536)
        conn.sendall(sent)
        conn.close()

    thread = threading.Thread(target=answer)
    thread.start()
    runner.__opts__["oduflow.socket"] = path
    got = runner.custom_status(request=str(uuid.uuid4()))
    thread.join()
    server.close()
    assert (got["error"]["code"], got["retcode"]) == ("unreachable", 7)
    assert WORD not in caplog.text


def test_a_silent_masterd_is_not_waited_for_for_ever(runner, tmp_path, monkeypatch):
    path = str(tmp_path / "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    monkeypatch.setattr(runner, "_TIMEOUT", 0.1)
    runner.__opts__["oduflow.socket"] = path
    assert runner.custom_status(request=str(uuid.uuid4()))["error"]["code"] == "unreachable"
    server.close()


def test_from_the_command_line_the_source_comes_from_a_file(runner, tmp_path, monkeypatch):
    runner.__opts__["fun"] = "oduflow.custom_start"
    path = tmp_path / "state.yaml"
    path.write_text(SOURCE)
    given = fields(source_path=str(path))
    assert runner.custom_start(**given)["error"]["message"].startswith("source= on a command line")
    del given["source"]
    assert runner.custom_start(**given)["status"] == "queued"
    with open(path, "rb") as file:
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=file))
        assert runner.state_validate(source_path="-")["ok"]
    path.write_bytes(b"\xff")
    assert runner.state_validate(source_path=str(path))["error"]["code"] == "source_encoding"
    path.write_bytes(b"x" * (1 << 20) + b"x")
    assert runner.state_validate(source_path=str(path))["error"]["code"] == "too_large"
    for bad in (str(tmp_path), str(tmp_path / "none"), "a\0b", 5, None):
        assert runner.state_validate(source_path=bad)["error"]["code"] == "bad_field"


def test_from_afar_no_file_of_the_master_is_read(runner, tmp_path):
    path = tmp_path / "state.yaml"
    path.write_text(SOURCE)
    answer = runner.state_validate(source_path=str(path))
    assert answer["error"]["code"] == "unknown_field"


# What Salt announces of a call


def announce(event, fun, args, kwargs, jid="20261130180000000000"):
    """What salt/client/mixins.py does before and after it calls a runner."""
    data = {"fun": fun, "jid": jid, "fun_args": list(args) + ([kwargs] if kwargs else [])}
    event().fire_event(data, "new")
    return data


def test_announcements_carry_the_request_alone(monkeypatch):
    event = fake_salt(monkeypatch)
    module = load(REPO / "salt/_runners/oduflow.py", __opts__={})
    assert module.__virtual__() == "oduflow"
    request = str(uuid.uuid4())
    for args, kwargs, left in [
        ((), fields(request=request, source=WORD), [{"request": request}]),
        ((), {"request": request, "sorce": WORD}, [{"request": request}]),
        ((WORD,), {"request": request}, [{"request": request}]),
        ((WORD,), {}, []),
        ((), {"request": WORD, "source": WORD}, []),
        ((), {"request": {"a": WORD}}, []),
        ((), {"request": request + "\n" + WORD}, []),
        ((), {}, []),
    ]:
        for fun in ("custom_start", "custom_status", "state_validate", "anything"):
            given = dict(kwargs)
            data = announce(event, "runner.oduflow." + fun, args, given)
            assert data["fun_args"] == left  # so neither proc nor the job cache has more
            assert given == kwargs  # the function still gets it all
    assert WORD not in json.dumps(event.fired)


def test_other_runners_are_left_alone(monkeypatch):
    event = fake_salt(monkeypatch)
    module = load(REPO / "salt/_runners/oduflow.py", __opts__={})
    module.__virtual__()
    data = announce(event, "runner.state.orchestrate", ("x",), {"source": "y"})
    assert data["fun_args"] == ["x", {"source": "y"}]
    event().fire_event("text", "new")
    event().fire_event({"fun_args": [1]}, "progress")
    assert event.fired[-1] == ("progress", {"fun_args": [1]})


def test_wrapped_once_however_often_it_is_loaded(monkeypatch):
    event = fake_salt(monkeypatch)
    for _ in range(5):
        assert load(REPO / "salt/_runners/oduflow.py", __opts__={}).__virtual__() == "oduflow"
    assert event.fire_event.__wrapped__.__qualname__.endswith("NamespacedEvent.fire_event")
    assert not hasattr(event.fire_event.__wrapped__, "__wrapped__")


@pytest.mark.parametrize("fire", [lambda self, data: None, lambda self, tag, data: None, 5, None])
def test_a_salt_that_cannot_be_made_to_hide_it_gets_no_runner(monkeypatch, fire):
    event = fake_salt(monkeypatch, fire or (lambda self, data, tag: None))
    if fire is None:
        del sys.modules["salt.utils.event"].NamespacedEvent
    else:
        event.fire_event = fire
    loaded = load(REPO / "salt/_runners/oduflow.py", __opts__={}).__virtual__()
    assert loaded[0] is False and "event bus" in loaded[1]


def test_a_call_that_was_announced_in_full_is_refused(runner):
    runner.__jid__ = "20261130180000000009"  # Salt ran us, and our wrapper didn't see it
    answer = runner.custom_start(**fields())
    assert answer["error"]["code"] == "internal" and answer["retcode"] == 1
    event = sys.modules["salt.utils.event"].NamespacedEvent
    announce(event, "runner.oduflow.custom_start", (), {}, jid="20261130180000000009")
    assert runner.custom_start(**fields())["status"] == "queued"


def test_nothing_of_a_call_is_logged(runner, caplog):
    caplog.set_level(0)
    runner.custom_start(**fields(source=WORD))
    runner.custom_start(**fields(source=WORD, sorce=WORD))
    runner.custom_start(**fields(request={"a": WORD}))
    runner.__opts__ = None  # a defect
    answer = runner.custom_start(**fields(source=WORD))
    assert answer["error"]["code"] == "internal"
    assert WORD not in caplog.text and "AttributeError" in caplog.text
    assert WORD not in json.dumps(answer)


def test_a_form_of_salt_api_carries_only_text(runner):
    # A26: salt-api hands over every field of a form as text.
    answer = runner.custom_start(**fields(revision="7", again="false"))
    assert answer["retcode"] == 0 and answer["revision"] == 7
