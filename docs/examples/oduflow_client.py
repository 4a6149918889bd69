"""
A client for masterd over HTTPS, for Odoo and others. Python 3.8 or later, no
dependencies; copy it into your module.

The one rule: choose the request's UUID, COMMIT it to your own database, and
only then call. This client never makes a UUID for you, and it repeats a call
whose answer was lost with the same UUID and the same body, which starts nothing
twice. If your process dies in between, call again with the UUID that you
committed.

    client = Client("https://master.example.com:8443", token, ca_file="/etc/oduflow/ca.pem")

    run.request = str(uuid.uuid4())
    env.cr.commit()                                  # before the call, always
    answer = client.custom_start(
        request=run.request, target="web1", instance=server.uuid,
        source=state.source, revision=state.revision, requester=user.login)
    answer = client.wait(run.request)                # or poll from your own queue

`answer` is the dict of docs/openapi.yaml: status, code, counts and times.
"""

import http.client
import json
import random
import ssl
import time
import urllib.parse

FINAL = ("succeeded", "failed")

# Answers after which the same call may succeed: the call may have been taken.
_REPEAT = (500, 502, 503, 504)
_MAX_ANSWER = 4 << 20
_MAX_BODY = 1 << 20  # masterd's limit; what is larger would be cut off while it is sent


class OduflowError(Exception):
    """masterd refused the call, with a stable code. Nothing was stored, but
    where code is "internal"."""

    def __init__(self, status, error, errors=()):
        self.status = status
        self.code = error.get("code") or "internal"
        self.message = error.get("message") or ""
        self.hint = error.get("hint")
        self.line = error.get("line")
        self.column = error.get("column")
        self.errors = list(errors) or [error]  # of a source: up to 20
        text = "{}: {}".format(self.code, self.message)
        super().__init__("{} ({})".format(text, self.hint) if self.hint else text)


class Unreachable(OduflowError):
    """No answer. A start may or may not be bound: repeat it with the same
    UUID, now or tomorrow."""

    def __init__(self, message):
        super().__init__(None, {"code": "unreachable", "message": message})


class Client:
    """Safe to share between threads: each call has a connection of its own."""

    def __init__(self, url, token, ca_file=None, timeout=20, attempts=5, sleep=time.sleep):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/"):
            raise ValueError("url is https://HOST[:PORT] and nothing more")
        if attempts < 1:
            raise ValueError("attempts is at least 1")
        self._host, self._port = parts.hostname, parts.port or 443
        self._token = token
        self._timeout = timeout
        self._attempts = attempts
        self._sleep = sleep
        # The certificate and the host name are always verified.
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    def custom_start(
        self,
        *,
        request,
        target,
        instance,
        source,
        revision,
        digest=None,
        previous=None,
        again=False,
        requester=None,
        accept_until=None
    ):
        """Bind `request` and start it once. Have it committed before.

        accept_until is a datetime with a time zone, or text after RFC 3339.
        """
        if hasattr(accept_until, "isoformat"):
            if accept_until.utcoffset() is None:
                raise ValueError("accept_until has no time zone")
            accept_until = accept_until.isoformat()
        fields = {
            "request": str(request),
            "target": target,
            "instance": str(instance),
            "source": source,
            "revision": revision,
            "digest": digest,
            "previous": str(previous) if previous else None,
            "again": True if again else None,
            "requester": requester,
            "accept_until": accept_until,
        }
        return self._call("custom_start", {k: v for k, v in fields.items() if v is not None})

    def custom_status(self, request, wait_s=0):
        """What became of a request. wait_s (at most 30) waits for a change."""
        return self._call("custom_status", {"request": str(request), "wait_s": wait_s}, wait_s)

    def state_validate(self, source):
        """{"ok", "digest", "states", "errors", "warnings"}; executes nothing."""
        return self._call("state_validate", {"source": source})

    def health(self):
        """{"ok": ...} and more; also where masterd takes no starts."""
        status, _, answer = self._once("GET", "/v1/health", None, self._timeout)
        if "ok" not in answer:
            raise _refusal(status, answer)
        return answer

    def wait(self, request, polls=250, on_answer=None):
        """Poll until the request is final, uncertain, or `polls` are used up,
        and give the last answer.

        "uncertain" is no failure: nobody knows. Don't start anything in its
        place; go on asking for this request later.
        """
        answer = None
        for left in range(polls - 1, -1, -1):
            answer = self.custom_status(request)
            if on_answer:
                on_answer(answer)
            if answer["status"] in FINAL or answer["status"] == "uncertain" or not left:
                break
            self._sleep(max(1, answer["poll_after_s"]))
        return answer

    def _call(self, entry, fields, wait_s=0):
        # One body for all attempts: a repeated call is the same call.
        body = json.dumps(fields).encode("ascii")
        if len(body) > _MAX_BODY:
            raise OduflowError(413, {"code": "too_large", "message": "the call has more than 1 MiB"})
        for attempt in range(1, self._attempts + 1):
            pause = min(30, 2 ** (attempt - 1)) * random.uniform(0.5, 1)
            try:
                status, headers, answer = self._once("POST", "/v1/" + entry, body, self._timeout + wait_s)
            except (OSError, http.client.HTTPException, ValueError) as exc:
                if isinstance(exc, ssl.SSLCertVerificationError) or attempt == self._attempts:
                    raise Unreachable("{}: no answer from masterd ({})".format(entry, type(exc).__name__)) from exc
                self._sleep(pause)
                continue
            if status == 200:
                return answer
            if status not in _REPEAT or attempt == self._attempts:
                raise _refusal(status, answer)
            if status == 503 and "Retry-After" not in headers:
                raise _refusal(status, answer)  # only an operator can help
            try:
                pause = max(pause, min(60, int(headers["Retry-After"])))
            except (KeyError, TypeError, ValueError):
                pass
            self._sleep(pause)
        raise AssertionError("unreachable")

    def _once(self, method, path, body, timeout):
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        headers = {"Authorization": "Bearer " + self._token, "Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            try:
                connection.request(method, path, body=body, headers=headers)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                pass  # refused before it was read to its end; the answer says why
            response = connection.getresponse()
            raw = response.read(_MAX_ANSWER + 1)
            if response.length:
                raise ValueError("the answer was cut off")
            answer = json.loads(raw.decode("utf-8"))
            if not isinstance(answer, dict) or response.getheader("Oduflow-Exit") is None:
                raise ValueError("what answered isn't masterd")
            return response.status, dict(response.headers), answer
        finally:
            connection.close()


def _refusal(status, answer):
    error = answer.get("error")
    if not isinstance(error, dict):
        error = {"code": "internal", "message": "masterd answered with status {}".format(status)}
    return OduflowError(status, error, answer.get("errors") or ())
