"""docs/examples/oduflow_client.py against the real handler (A19, A20)."""

import datetime
import http.client
import inspect
import json
import pathlib
import ssl
import subprocess
import sys
import threading
import uuid

import oduflow_client
import pytest
from oduflow_client import Client, OduflowError, Unreachable

INSTANCE = "9a3c6f6e-2f0e-4f43-8d1b-d1a7f0a1b2c3"
SOURCE = "a:\n  test.nop: []\n"


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(masterd, pauses):
    return Client(masterd.url, masterd.tokens["custom"], ca_file=masterd.ca, sleep=pauses.append)


def start(client, request, **more):
    fields = {"target": "web1", "instance": INSTANCE, "source": SOURCE, "revision": 7}
    fields.update(more)
    return client.custom_start(request=request, **fields)


class Losing:
    """Does the work, then loses the answer: the case that counts."""

    def __init__(self):
        self.losses = 0
        self.bodies = []


@pytest.fixture
def losing(monkeypatch):
    here = Losing()
    request, getresponse = http.client.HTTPSConnection.request, http.client.HTTPSConnection.getresponse

    def counted(self, method, url, body=None, headers=None):
        here.bodies.append(body)
        request(self, method, url, body=body, headers=headers)

    def lost(self):
        response = getresponse(self)
        if here.losses > 0:
            here.losses -= 1
            response.read()
            raise ConnectionResetError("lost on the way")
        return response

    monkeypatch.setattr(http.client.HTTPSConnection, "request", counted)
    monkeypatch.setattr(http.client.HTTPSConnection, "getresponse", lost)
    return here


def test_start_then_wait(client, pauses):
    request = str(uuid.uuid4())
    answer = start(client, request)
    assert (answer["status"], answer["request"], answer["execution"]) == ("queued", request, request)
    seen = []
    answer = client.wait(request, on_answer=lambda a: seen.append(a["status"]))
    assert answer["status"] == "succeeded"
    assert answer["counts"] == {"declared": 3, "passed": 3, "failed": 0, "not_run": 0}
    assert seen == ["running", "succeeded"]
    assert pauses == [1]  # poll_after_s, and no pause after the last


def test_a_lost_answer_is_asked_for_with_the_same_uuid_and_body(client, losing, pauses):
    request = str(uuid.uuid4())
    losing.losses = 3
    answer = start(client, request)
    assert answer["request"] == request and answer["status"] == "queued"
    assert len(losing.bodies) == 4 and len(set(losing.bodies)) == 1
    assert len(pauses) == 3 and 0 < pauses[0] <= 1 < pauses[2] <= 4


def test_answers_that_stay_lost_are_unreachable_and_can_be_asked_for_later(client, losing):
    request = str(uuid.uuid4())
    losing.losses = 5
    with pytest.raises(Unreachable):
        start(client, request)
    assert len(losing.bodies) == 5
    assert start(client, request)["request"] == request


def test_503_is_repeated_after_retry_after(client, pauses):
    answer = start(client, str(uuid.uuid4()), target="down-" + uuid.uuid4().hex[:8])
    assert answer["status"] == "queued"
    assert pauses == [5, 5]


def test_the_caller_chooses_the_uuid():
    # The rule: committed before the call. A client that made one would break it.
    assert inspect.signature(Client.custom_start).parameters["request"].default is inspect.Parameter.empty
    assert "uuid4(" not in inspect.getsource(Client)
    assert not hasattr(oduflow_client, "uuid")


def test_a_uuid_object_and_a_datetime_are_taken(client):
    request = uuid.uuid4()
    late = datetime.datetime.now(datetime.timezone(datetime.timedelta(hours=2))) + datetime.timedelta(hours=1)
    assert start(client, request, accept_until=late, requester="anna@example.com")["request"] == str(request)
    with pytest.raises(ValueError):
        start(client, request, accept_until=datetime.datetime(2026, 11, 30))
    with pytest.raises(OduflowError) as info:
        start(client, uuid.uuid4(), accept_until=late - datetime.timedelta(days=1))
    assert info.value.code == "accept_until_passed"


def test_refusals_are_not_repeated(client, losing, pauses):
    request = str(uuid.uuid4())
    start(client, request)
    with pytest.raises(OduflowError) as info:
        start(client, request, revision=8)
    assert (info.value.status, info.value.code) == (409, "request_conflict")
    with pytest.raises(OduflowError) as info:
        start(client, str(uuid.uuid4()), source="a: {{ x }}\n")
    assert (info.value.status, info.value.code, info.value.line, info.value.column) == (422, "jinja", 1, 4)
    assert info.value.errors[0]["code"] == "jinja"
    with pytest.raises(OduflowError) as info:
        start(client, str(uuid.uuid4()), target="web*")
    assert (info.value.status, info.value.code) == (400, "bad_field") and "target" in info.value.message
    with pytest.raises(OduflowError) as info:
        client.custom_status(uuid.uuid4())
    assert (info.value.status, info.value.code) == (404, "unknown_request")
    assert len(losing.bodies) == 5 and not pauses


@pytest.mark.parametrize("target, status, code", [("fail1", "failed", "state_failed"), ("lost1", "uncertain", "no_answer"), ("busy1", "failed", "target_busy")])
def test_other_ends(client, target, status, code):
    request = str(uuid.uuid4())
    start(client, request, target=target)
    answer = client.wait(request)
    assert (answer["status"], answer["code"]) == (status, code)
    if code == "target_busy":
        assert answer["preflight"] == {"passed": 0, "total": 1}
        assert set(answer["blocked_by"]) == {"request", "profile", "since"}


def test_polls_have_a_budget(client, pauses):
    request = str(uuid.uuid4())
    start(client, request, target="slow1")
    assert client.wait(request, polls=4)["status"] == "running"
    assert pauses == [1, 1, 1]


def test_validate_and_health(client):
    answer = client.state_validate(SOURCE)
    assert answer["ok"] and len(answer["digest"]) == 64
    answer = client.state_validate("{{")
    assert not answer["ok"] and answer["errors"][0]["code"] == "jinja"
    assert client.health()["ok"] is True


def test_scopes(masterd, pauses):
    narrow = Client(masterd.url, masterd.tokens["validate"], ca_file=masterd.ca, sleep=pauses.append)
    assert narrow.state_validate(SOURCE)["ok"]
    with pytest.raises(OduflowError) as info:
        start(narrow, str(uuid.uuid4()))
    assert (info.value.status, info.value.code) == (403, "forbidden")
    wrong = Client(masterd.url, "odf_000000000000_" + "0" * 64, ca_file=masterd.ca, sleep=pauses.append)
    with pytest.raises(OduflowError) as info:
        start(wrong, str(uuid.uuid4()))
    assert (info.value.status, info.value.code) == (401, "unauthorized")
    assert not pauses


def test_a_body_of_ten_megabytes(client):
    with pytest.raises(OduflowError) as info:
        client.state_validate("x" * (10 << 20))
    assert (info.value.status, info.value.code) == (413, "too_large")


def test_the_certificate_is_verified(masterd, pauses):
    stranger = Client(masterd.url, masterd.tokens["custom"], sleep=pauses.append)
    with pytest.raises(Unreachable) as info:
        start(stranger, str(uuid.uuid4()))
    assert isinstance(info.value.__cause__, ssl.SSLCertVerificationError)
    elsewhere = Client(masterd.url.replace("127.0.0.1", "localhost"), masterd.tokens["custom"], ca_file=masterd.ca, sleep=pauses.append)
    with pytest.raises(Unreachable):
        start(elsewhere, str(uuid.uuid4()))
    assert not pauses  # no use in trying again
    for url in ("http://127.0.0.1:1", "127.0.0.1:1", "https://", "https://h/path"):
        with pytest.raises(ValueError):
            Client(url, "t")


def test_what_is_not_masterd_is_no_answer(masterd, pauses, tmp_path):
    # A TLS server with the right certificate that says 200 to everything.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here = pathlib.Path(masterd.ca)
    context.load_cert_chain(here, here.with_suffix(".key"))

    import http.server

    class Yes(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"status": "succeeded"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Yes)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        odd = Client("https://127.0.0.1:%d" % server.server_port, "t", ca_file=masterd.ca, sleep=pauses.append)
        with pytest.raises(Unreachable):
            start(odd, str(uuid.uuid4()))
        assert len(pauses) == 4
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_no_dependencies():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import oduflow_client"
    path = pathlib.Path(oduflow_client.__file__).parent
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(path)], check=True)


def test_the_token_and_the_source_are_in_no_log(masterd, client):
    word = "word-" + uuid.uuid4().hex
    start(client, str(uuid.uuid4()), source="# " + word + "\n" + SOURCE)
    log = masterd.read_log()
    assert "custom_start" in log
    assert word not in log
    for token in masterd.tokens.values():
        assert token not in log and token.rsplit("_", 1)[1] not in log
