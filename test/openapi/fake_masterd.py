"""masterd's API with nothing behind it (test/openapi/server), as a pytest fixture."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]


class FakeMasterd:
    def __init__(self):
        # Not pytest's tmp_path: a socket's path has to be short.
        self.dir = tempfile.mkdtemp(prefix="oduflow-fake-")
        binary = os.environ.get("ODUFLOW_FAKE_MASTERD")
        if not binary:
            binary = os.path.join(self.dir, "server")
            subprocess.run(["go", "build", "-o", binary, "./test/openapi/server"], cwd=REPO, check=True)
        self.process = subprocess.Popen([binary, "-dir", self.dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server didn't start")
        self.__dict__.update(json.loads(line))

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(30)
        self.process.stdout.close()

    def close(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def read_log(self):
        return pathlib.Path(self.log).read_text()


@pytest.fixture(scope="session")
def masterd():
    fake = FakeMasterd()
    yield fake
    fake.close()
