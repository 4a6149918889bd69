"""Publishes what it reads on stdin, one JSON list a line: [number, fun, arg, ...].

Each one runs at once, beside the others. What the minion returned comes back as
[number, return], null where nobody did within the time. A client of its own for
each keeps them apart; one process for all keeps them fast.
"""

import json
import sys
import threading

import salt.client

conf, minion, wait = sys.argv[1], sys.argv[2], int(sys.argv[3])
turn = threading.Lock()


def publish(number, fun, *arg):
    try:
        client = salt.client.LocalClient(conf)
        returned = client.cmd(minion, fun, list(arg), timeout=wait)
        answer = returned.get(minion) if isinstance(returned, dict) else None
    except Exception as exc:  # pylint: disable=broad-except
        answer = "publisher: " + type(exc).__name__
    with turn:
        print(json.dumps([number, answer]), flush=True)


for line in sys.stdin:
    threading.Thread(target=publish, args=json.loads(line), daemon=True).start()
