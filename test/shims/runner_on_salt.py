"""What a Salt makes of salt/_runners/oduflow.py. Run it with that Salt's Python:

    PYTHON runner_on_salt.py SOCKET

Needs masterd or its stand-in on SOCKET and no Salt daemon: the runner goes
through Salt's own loader and salt/client/mixins.py, and what would go on the
event bus, into the job cache and into `proc` is caught at Salt's own doors.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile
import uuid

import salt.config
import salt.runner
import salt.utils.event
import salt.utils.job
import salt.version

REPO = pathlib.Path(__file__).resolve().parents[2]
WORD = "hidden-word-5a1c"
SOURCE = "a:\n  test.nop:\n    - name: " + WORD + "\n"
INSTANCE = "9a3c6f6e-2f0e-4f43-8d1b-d1a7f0a1b2c3"


def main(socket, root):
    config = os.path.join(root, "master")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(
            {
                "root_dir": root,
                "runner_dirs": [str(REPO / "salt/_runners")],
                "oduflow.socket": socket,
                "log_level": "quiet",
                "id": "master",
            },
            file,
        )
    opts = salt.config.master_config(config)
    os.makedirs(os.path.join(opts["cachedir"], "proc"), exist_ok=True)
    os.makedirs(opts["sock_dir"], exist_ok=True)

    fired, stored, proc, logged = [], [], [], []

    def fire(self, data, tag, *args, **kwargs):
        fired.append((tag, json.dumps(data, default=repr)))
        for path in pathlib.Path(opts["cachedir"], "proc").iterdir():
            proc.append(path.read_bytes())
        return True

    salt.utils.event.SaltEvent.fire_event = fire
    salt.utils.job.store_job = lambda opts, load, **kwargs: stored.append(json.dumps(load, default=repr))

    class Keep(logging.Handler):
        def emit(self, record):
            logged.append(record.getMessage())

    logging.getLogger().addHandler(Keep())
    logging.getLogger().setLevel(1)

    # proc is written between the first event and the call: look at it from inside.
    import http.client

    request_ = http.client.HTTPConnection.request

    def looking(self, *args, **kwargs):
        for path in pathlib.Path(opts["cachedir"], "proc").iterdir():
            proc.append(path.read_bytes())
        return request_(self, *args, **kwargs)

    http.client.HTTPConnection.request = looking

    client = salt.runner.RunnerClient(opts)
    request = str(uuid.uuid4())
    fields = {"request": request, "target": "web1", "instance": INSTANCE, "source": SOURCE, "revision": 7}

    def low(fun, **kwarg):
        """As a call arrives from salt-api in the master (master.py runner)."""
        jid = "20261130180000%06d" % len(fired)
        given = {
            "kwarg": kwarg, "arg": [], "__jid__": jid, "__user__": "odoo", "__tag__": "salt/run/" + jid,
        }
        return client.low("oduflow." + fun, given, print_event=False, full_return=True)

    ret = low("custom_start", **fields)
    assert ret["return"]["status"] == "queued" and ret["success"] is True, ret
    assert ret["fun_args"] == [{"request": request}], ret
    ret = low("custom_start", **dict(fields, revision=8))
    assert ret["return"]["error"]["code"] == "request_conflict" and ret["success"] is False, ret
    assert ret["return"]["retcode"] == 4, ret
    ret = low("custom_status", request=request)
    assert ret["return"]["status"] == "running" and ret["success"] is True, ret
    ret = low("custom_start", **dict(fields, sorce=SOURCE))
    assert ret["return"]["error"]["code"] == "unknown_field", ret
    ret = low("custom_start", **dict(fields, request=[SOURCE]))
    assert ret["return"]["error"]["code"] == "bad_field" and ret["fun_args"] == [], ret
    ret = low("state_validate", source=SOURCE + "{{")
    assert ret["return"]["ok"] is False and ret["success"] is False, ret

    # As `salt-run` calls, with arguments as it parses them.
    ret = client.cmd("oduflow.custom_start", ["request=" + request, "source=" + SOURCE], print_event=False, full_return=True)
    assert ret["return"]["error"]["code"] == "bad_field", ret
    ret = client.cmd("oduflow.custom_status", ["request=" + request, "wait_s=1"], print_event=False)
    assert ret["status"] == "succeeded" and ret["retcode"] == 0, ret
    for text, value in (("target=web1", "web1"), ("accept_until=2026-11-30T18:00:00Z", "2026-11-30T18:00:00Z"), ("again=True", True)):
        name = text.split("=")[0]
        ret = client.cmd("oduflow.custom_start", ["request=" + request, text], print_event=False)
        # The text arrived with its right type: the complaint is about the next field.
        assert name not in ret["error"]["message"], (value, ret)
    ret = client.cmd("oduflow.custom_start", ["request=" + request, "target=123"], print_event=False)
    assert "target isn't a text" in ret["error"]["message"], ret

    # A TypeError that escapes would come back as a usage text with success.
    ret = client.cmd("oduflow.custom_start", ["x", "y", "z=1"], print_event=False)
    assert ret["error"]["code"] == "bad_field", ret

    docs = client.get_docs("oduflow")
    assert set(docs) == {"oduflow.custom_start", "oduflow.custom_status", "oduflow.state_validate"}, docs
    assert all("CLI Example" in text for text in docs.values())

    assert len(fired) >= 20 and len(stored) >= 10, (len(fired), len(stored))
    assert len(proc) >= 5 or salt.version.__saltstack_version__.major < 3008, len(proc)
    for name, kept in (("event", fired), ("job cache", stored), ("proc", proc), ("log", logged)):
        for item in kept:
            assert WORD not in str(item), (name, item)
    assert any(request in data for _, data in fired)
    client.destroy()
    print("ok", salt.version.__version__, len(fired), "events", len(stored), "stored", len(proc), "proc files")


with tempfile.TemporaryDirectory(prefix="oduflow-runner-") as scratch:
    main(sys.argv[1], scratch)
