"""
A second, independent implementation of docs/canonical-form.md, with nothing
but Python's standard library. It shares no code with internal/state.

    python3 canonical.py VECTORS.jsonl     checks the test vectors
"""

import hashlib
import json
import sys

VERSION = 1


def _text(text):
    out = ['"']
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif char == "\r":
            out.append("\\r")
        elif char == "\t":
            out.append("\\t")
        else:
            out.append(char)
    out.append('"')
    return "".join(out)


def encode(value):
    """
    One value in canonical form. A mapping is written in its own order.
    """
    # bool before int: True is an int in Python.
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(encode(item) for item in value) + "]"
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return "{" + ",".join(_text(k) + ":" + encode(v) for k, v in value.items()) + "}"
        pairs = ("[" + encode(k) + "," + encode(v) + "]" for k, v in value.items())
        return '{"\\u0000map":[' + ",".join(pairs) + "]}"
    raise TypeError(f"no canonical form for {type(value).__name__}")


def canonical(states):
    """
    The canonical form of what a YAML loader made of a source.
    """
    return ('{"version":%d,"states":%s}' % (VERSION, encode(states))).encode("utf-8")


def digest(states):
    """
    The semantic digest: 64 lower-case hexadecimal digits.
    """
    return hashlib.sha256(canonical(states)).hexdigest()


def _pairs(pairs):
    if len(pairs) == 1 and pairs[0][0] == "\0map":
        return {key: value for key, value in pairs[0][1]}
    return dict(pairs)


def decode(text):
    """
    The way back from the JSON of a canonical form or of high data.
    """
    return json.loads(text, object_pairs_hook=_pairs)


def check(path):
    """
    Check a file of vectors; gives the number that are wrong.
    """
    wrong = total = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            vector = json.loads(line)
            total += 1
            # The states of a vector are written so that any JSON reader keeps
            # their types; see docs/canonical-form.md.
            states = decode(json.dumps(vector["states"]))
            got = canonical(states)
            again = canonical(decode(got.decode("utf-8"))["states"])
            if got.decode("utf-8") != vector["canonical"] or digest(states) != vector["digest"] or again != got:
                wrong += 1
                print(f"vector {vector['name']}: got {got.decode('utf-8')} {digest(states)}")
    print(f"{total} vectors, {wrong} wrong")
    return wrong if total else 1


if __name__ == "__main__":
    sys.exit(1 if check(sys.argv[1]) else 0)
