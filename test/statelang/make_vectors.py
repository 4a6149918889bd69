"""
Makes internal/state/testdata/canonical-vectors.jsonl with Salt's own loader
and canonical.py, so that the vectors owe nothing to internal/state:

    VENV/bin/python make_vectors.py > ../../internal/state/testdata/canonical-vectors.jsonl
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import canonical  # noqa: E402
import salt.renderers.yaml as salt_yaml  # noqa: E402

salt_yaml.__opts__ = {}

ARGUMENT = "a:\n  test.nop:\n    - v: "

VECTORS = [
    ("smallest", "a:\n  test.nop: []\n"),
    ("order of IDs, functions and arguments", "z:\n  b.c:\n    - y: 1\n    - x: 2\n  a.b: []\na:\n  test.nop: []\n"),
    ("octal loses its zeros", ARGUMENT + "0644\n"),
    ("signed octal", ARGUMENT + "[+0644, -010]\n"),
    ("octal behind an underscore", ARGUMENT + "[0_7, 0_010]\n"),
    ("bases", ARGUMENT + "[0x1F, 0b101, -0x1f, 1_000]\n"),
    ("sexagesimal", ARGUMENT + "[1:30, 12:30:45, 1:30.5, -1:30]\n"),
    ("64 bits", ARGUMENT + "[18446744073709551615, -9223372036854775808, 9007199254740993]\n"),
    ("booleans and null", ARGUMENT + "[yes, No, ON, off, true, FALSE, ~, null, ]\n"),
    ("text that looks like something", ARGUMENT + "[1e3, 0o644, 0899, 2001-01-01, y, n, nUll, .e3, '1', \"~\"]\n"),
    ("floats", ARGUMENT + "[1.0, 5., .5, 0.1, -0.0, 1.0e+3, 1_0.5, 100.0]\n"),
    ("float exponents", ARGUMENT + "[1.0e+15, 1.0e+16, 0.0001, 0.00001, 1.5e+300, 4.9e-324, 1.7976931348623157e+308, 123456789012345680.0]\n"),
    ("escapes in strings", ARGUMENT + "\"q\\\" b\\\\ s/ t\\t n\\n r\\r u\\u00e9 \\u2028 \\U0001F600\"\n"),
    ("text beyond ASCII", "größe:\n  file.managed:\n    - name: /srv/日本/é\n"),
    ("block scalars", ARGUMENT + "|\n        one\n          two\n\n    - w: >-\n        a\n        b\n\n        c\n"),
    ("empty collections and text", ARGUMENT + "[[], {}, '', {a: }]\n"),
    ("nested mapping", ARGUMENT + "{b: {d: 1, c: [x, {y: z}]}, a: 2}\n"),
    ("integer key", ARGUMENT + "{1: a}\n"),
    ("keys of all types", ARGUMENT + "{a: 1, 2: b, 3.5: c, yes: d, ~: e, '2': f}\n"),
    ("float key", ARGUMENT + "{1.0: {2: [x]}}\n"),
    ("names", "a:\n  file.directory:\n    - names:\n      - /x\n      - /y:\n        - mode: '0700'\n      - /x\n"),
    ("requisites", "a:\n  cmd.run:\n    - require:\n      - file: b\n      - c\n    - onlyif:\n      - fun: test.true\n"),
    ("flow style", "{a: {test.nop: [{name: b}]}}"),
    ("line ends and BOM", "\ufeffa:\r\n  test.nop:\r\n    - v: |\r\n        x\r\n        y\r\n"),
    ("equals sign as a key", ARGUMENT + "{=: 1}\n"),
]


def main():
    for name, source in VECTORS:
        states = salt_yaml.render(source)
        print(json.dumps({
            "name": name,
            "source": source,
            "states": json.loads(canonical.encode(states)),
            "canonical": canonical.canonical(states).decode("utf-8"),
            "digest": canonical.digest(states),
        }, ensure_ascii=False))


if __name__ == "__main__":
    main()
