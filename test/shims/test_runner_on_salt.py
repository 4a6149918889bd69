"""Runs runner_on_salt.py on every Salt that the lab has installed."""

import glob
import os
import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "test" / "openapi"))

from fake_masterd import masterd  # noqa: E402,F401


def pythons():
    """The lab's venvs (test/lab/venv.go), and none that is half built."""
    folders = [os.environ.get("ODUFLOW_SALT_VENVS"), "/var/tmp/oduflow-salt-venvs-%d" % os.getuid(), "/var/tmp/oduflow-salt-venvs-0"]
    found = {}
    for folder in filter(None, folders):
        for done in glob.glob(os.path.join(folder, "*", ".oduflow-complete")):
            venv = os.path.dirname(done)
            found.setdefault(os.path.basename(venv), os.path.join(venv, "bin", "python"))
    return found


VENVS = pythons()


@pytest.mark.skipif(not VENVS, reason="no Salt is installed; `make test-salt` installs it")
@pytest.mark.parametrize("name", sorted(VENVS))
def test_runner_on_salt(name, masterd):  # noqa: F811
    done = subprocess.run(
        [VENVS[name], str(REPO / "test/shims/runner_on_salt.py"), masterd.socket],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.splitlines()[-1].startswith("ok "), done.stdout
    print(done.stdout.splitlines()[-1])
