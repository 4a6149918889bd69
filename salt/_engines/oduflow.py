"""
Start masterd from a Salt master
================================

For sites that don't use the systemd unit. The engine starts ``masterd serve``
as the user ``oduflow`` and starts it again when it ends. It needs a master
whose engines run as root (no ``user:`` in the master's file) and refuses
otherwise: masterd never runs as root or as the master's own user. Where the
master runs as ``salt``, as in Salt's packages, use the systemd unit.

.. code-block:: yaml

    engines:
      - oduflow:
          program: /usr/bin/masterd
          config: /etc/oduflow/masterd.yaml
"""

import grp
import logging
import os
import pwd
import subprocess
import time

log = logging.getLogger(__name__)

__virtualname__ = "oduflow"

_USER = "oduflow"
_FIRST_PAUSE, _LONGEST_PAUSE = 1, 60  # seconds before masterd is started again
_RAN_WELL = 60  # seconds after which the next pause is short again
_END = 20  # seconds for masterd to end by itself; it needs 10


def __virtual__():
    if os.name != "posix":
        return (False, "masterd runs on Linux only")
    return __virtualname__


def start(program="/usr/bin/masterd", config="/etc/oduflow/masterd.yaml", user=_USER):
    """
    Run masterd until the master ends

    CLI Example: none; an engine is configured, see above.
    """
    who = _account(user)
    if who is None:
        return
    argv = [program, "serve", "--config", config]
    pause = _FIRST_PAUSE
    while True:
        began = time.monotonic()
        status = _run(argv, who)
        if time.monotonic() - began >= _RAN_WELL:
            pause = _FIRST_PAUSE
        log.error("masterd ended with status %s; it is started again in %s s", status, pause)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _account(user):
    """
    The passwd entry to run as, or None with the reason in the log
    """
    if os.geteuid() != 0:
        log.error("masterd isn't started: this master's engines don't run as root; use the systemd unit")
        return None
    try:
        who = pwd.getpwnam(user)
    except (KeyError, TypeError):
        log.error("masterd isn't started: there is no user %s", user)
        return None
    if who.pw_uid == 0 or user == __opts__.get("user"):
        log.error("masterd isn't started: it doesn't run as root or as the master's own user")
        return None
    return who


def _run(argv, who):
    """
    Run it once; its exit status, or None where it couldn't be started
    """
    groups = [g.gr_gid for g in grp.getgrall() if who.pw_name in g.gr_mem]
    try:
        # An environment and descriptors of its own: nothing of the master's gets in.
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            argv,
            user=who.pw_uid,
            group=who.pw_gid,
            extra_groups=groups,
            cwd="/",
            umask=0o077,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/"},
            close_fds=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        log.error("masterd can't be started: %s", exc)
        return None
    try:
        return process.wait()
    finally:
        # Also when Salt ends this process, which arrives as SystemExit.
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
