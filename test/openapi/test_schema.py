"""docs/openapi.yaml is true to the API: schemathesis calls the real handler by it."""

import pathlib
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def run(tmp_path, url, *more):
    config = tmp_path / "schemathesis.toml"
    config.write_text((REPO / "test/openapi/schemathesis.toml").read_text())
    st = pathlib.Path(sys.executable).parent / "st"
    assert st.exists() or shutil.which("st"), "schemathesis isn't installed; use test/openapi/run.sh"
    done = subprocess.run(
        [str(st), "--config-file", str(config), "run", str(REPO / "docs/openapi.yaml"), "--url", url, *more],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    print(done.stdout)
    return done


def test_over_tls(masterd, tmp_path):
    done = run(
        tmp_path,
        masterd.url,
        "--exclude-tag=operator",
        "--tls-verify=" + masterd.ca,
        "--header=Authorization: Bearer " + masterd.tokens["custom"],
    )
    assert done.returncode == 0
    assert "4 selected" in done.stdout


def test_operators_over_the_socket(masterd, tmp_path):
    done = run(tmp_path, masterd.socket_url, "--include-tag=operator")
    assert done.returncode == 0
    assert "4 selected" in done.stdout
