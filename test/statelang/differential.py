"""
The differential run: generated scalars and documents through Salt's own
loader and through internal/state. For each of them there are two outcomes, the
same value (compared as canonical bytes, order and types included) or a
refusal. Anything else is printed and fails the run.

It runs inside a Salt virtual environment:

    VENV/bin/python differential.py --answer PATH --count 200000 --seed 1
"""

import argparse
import collections
import glob
import json
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import canonical  # noqa: E402
import salt.renderers.yaml as salt_yaml  # noqa: E402
import salt.version  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
salt_yaml.__opts__ = {}

WORDS = (
    "yes Yes YES yES no No NO y n Y N true True TRUE tRue false False FALSE on On ON oN off Off OFF null Null NULL nULL ~ ~~ "
    "none None nil inf .inf +.inf -.Inf .INF .nan .NaN .NAN -.nan nan << = == <<x =x - -- --- ... ? ?x : :x x: .. . , a,b "
    "0 00 000 0644 644 0o644 0O7 0899 08 09 010 -010 +010 -0 +0 -00 0_ 0__ 0_7 0_07 0_010 0_0 _0 1_ 1__0 1_000 +1_0 "
    "0b1 0b_ 0b1_0 -0b1 +0b0 0B1 0x1F 0x_ 0x_f -0xf 0X1 0xg 0b2 1:30 1:60 1:5 1:05 01:30 -1:30 +1:30 1:30:45 12:30:45.5 0:30 "
    "0:30. 1:30. 1:3_0 1_0:30 1:30:99 190:20:30.15 1e3 1E3 1.e3 1e+3 1.0e3 1.0e+3 1.0E-3 1.e+3 .5 .5e+1 -.5 +.5 5. -5. 1_0.5 1._5 "
    "1_.5 ._5 1.5_0 1.5.2 1.0e+400 1.0e-400 1.7976931348623157e+308 4.9e-324 2.2250738585072014e-308 0.1 100.0 1e16 10000000000000000.0 "
    "123456789012345680.0 0.0001 0.00001 -0.0 9007199254740993 9223372036854775807 9223372036854775808 18446744073709551615 "
    "18446744073709551616 -9223372036854775808 -9223372036854775809 123456789012345678901234567890 0xffffffffffffffff 0x10000000000000000 "
    "0777777777777777777777 2001-01-01 2001-1-1 2001-12-14t21:59:43.10-05:00 2001-01-01T00:00:00Z 20:03:20 685_230.15 "
    "0b1010_0111 0x_0A_74_AE 02472256 190:20:30 @x `x %x %x% x% !x & &x * *x | > |- >+ |2 'x' \"x\" [x] {x} a#b a:b a:-b http://x:80/y?z "
    "C:\\x $HOME ${x} ${#x} $((1+1)) 100% 50%% ~/x ./x /etc/x *.log ?x -x -1x +x 1.2.3.4 ::1 fe80::1 10.0.0.0/8 1,000 1. 0. 00.5 "
    "\"\\x41\\u00e9\\U0001F600\\t\\n\" \"\\/\" \"\\'\" \"\\e\" \"\\N\" \"\\_\" \"\\L\" \"\\0\" \"\\ud800\" \"\\z\" 'it''s' 'a\\nb' \"a b\" "
    "é ü ñ 中文 😀 a\u00a0b \u00a0 x\u00a0: \ufeff a\u2028b \u0085 \x7f \x01 \ud7ff \ue000 \ufffd"
).split(" ")

NUMBER = "0123456789012345678900__..::++--eExXbBoafF"
SPECIAL = list("-?:,[]{}#&*!|>'\"%@`=<~ \t\n\\/$_.^()+;") + ["\u00a0", "é", "😀", "\u2028", "\u0085", "\ufeff", "\r", "\r\n", "\x00", "\x1b"]
TOKENS = (
    ["- ", "-", "? ", "?", ": ", ":", ":\n", "\n", "\n", "  ", "    ", "      ", "        ", " ", "\t", "'", '"', "''", '\\"', "|", ">", "|-", ">+", "|2", ">2-", "|0",
     "| # c", "#", " # c", "\n# c\n", "&a ", "&a", "*a", "!t ", "! ", "!!str ", "[", "]", "{", "}", ",", ", ", "a", "b", "b: ", "c: 1", "{a: 1}", "[a, b]",
     "'q'", '"q"', "'q r'", "\n\n", "x y", "%", "@", "`", "\\", "\\x41", "\\n", "\\\n", "é", "\u00a0", "---", "...", "--- ", "\n---\n", "\n...\n", "<<", "<<: ", "=", "~", "1", "true",
     ".", "k:v", "k :v", "k : v", "a,b", "?b", "-b", "::", "-\n", "- - ", "- a: ", "- ? ", "a: |\n", "a: >\n", "\r\n", "\r", "\"a\\\n  b\"", "'a\n  b'", "\"a\n\n  b\"", "a\n  b"]
)


class Generator:
    """
    Makes sources. Each kind is a method; the seed decides everything.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seeds = []
        for path in sorted(glob.glob(os.path.join(HERE, "sls", "*.sls"))):
            with open(path, encoding="utf-8") as handle:
                self.seeds.append(handle.read())
        cases = os.path.join(HERE, "..", "..", "internal", "state", "testdata", "state-language.jsonl")
        with open(cases, encoding="utf-8") as lines:
            self.seeds.extend(case["source"] for case in map(json.loads, lines) if len(case["source"]) < 1500)

    def scalar(self):
        pick = self.random.random()
        if pick < 0.25:
            return self.random.choice(WORDS)
        if pick < 0.6:
            return "".join(self.random.choice(NUMBER) for _ in range(self.random.randint(1, 7)))
        if pick < 0.7:
            word = list(self.random.choice(WORDS))
            word.insert(self.random.randint(0, len(word)), self.random.choice(SPECIAL + list(NUMBER)))
            return "".join(word)
        alphabet = SPECIAL + list("abcxyz019")
        return "".join(self.random.choice(alphabet) for _ in range(self.random.randint(1, 8)))

    def scalar_document(self):
        text = self.scalar()
        form = self.random.choice(
            ["- v: %s", "- v: %s # c", "- v: [%s]", "- v: [%s, 1]", "- v: {%s: 1}", "- v: {k: %s}", "- v: {k: %s, l: 1}", "- v: {%s}",
             "- v:\n      - %s\n      - x", "- v:\n        %s: 1\n        z: 2", "- v:\n        %s", "- %s: 1", "- v: '%s'", '- v: "%s"',
             "- v: |\n        %s\n        x", "- v: >-\n        %s\n\n        x", "- v:\n        ? %s\n        : 1", "- v: a %s", "- v: a\n        %s",
             "- v: [a %s b]", "- v: {1: a, 1.0: b, %s: c}", "- v: {true: a, x: b, %s: c}", "- v: {? %s : c}", "- v: 'a\n        %s'", "- v: \"a\n        %s\""]
        )
        return "a:\n  test.nop:\n    " + form.replace("%s", text, 1) + "\n"

    def id_document(self):
        text = self.scalar()
        form = self.random.choice(["%s:\n  test.nop: []\n", "a:\n  %s: []\n", "a:\n  test.nop: %s\n", "%s\n", "a: %s\n", "a:\n  test.nop: []\n%s: {}\n",
                                   "%s\na:\n  test.nop: []\n", "a:\n  test.nop: []\n%s\n", "? %s\n: test.nop: []\n", "{%s: {test.nop: []}}", "'%s':\n  test.nop: []\n"])
        return form.replace("%s", text, 1)

    def soup_document(self):
        soup = "".join(self.random.choice(TOKENS) for _ in range(self.random.randint(1, 9)))
        if self.random.random() < 0.6:
            soup = soup.replace("\n", "\n        ")
        return "a:\n  test.nop:\n    - v: " + soup + "\n" + self.random.choice(["", "    - w: 1\n", "b:\n  test.nop: []\n"])

    def comment_document(self):
        """
        Comments, tabs and blanks between indicators: what libraries disagree on.
        """
        pieces = ["\n", "\n  ", "\n    ", "\n        ", "\n\n", "\n\t", "-", "- ", "-\t", "?", "? ", "?\t", ":", ": ", ":\t", "a:", "a: ", "a:\t", "b", "#", "# c", " # c", "\t# c", " \t# c", "#c",
                  "\t", " ", "  ", "'q'", '"q"', "|", "|\n", ">", ">\n", "[", "]", "{", "}", ",", ", ", "x y", "---", "\n---", "\n...", "\n# c\n", "\n  # c\n"]
        soup = "".join(self.random.choice(pieces) for _ in range(self.random.randint(2, 12)))
        head = self.random.choice(["a:\n  test.nop:\n    - v: ", "a:\n  test.nop:\n    - v:", "a:\n  test.nop:\n    -", "a:\n  test.nop:", "a:", "", "a:\n  test.nop:\n    - v:\n        ", "a:\n  test.nop:\n    - v: ["])
        return head + soup + self.random.choice(["", "\n", "\n    - w: 1\n", "\nb:\n  test.nop: []\n", "]\n"])

    def mutated_document(self):
        text = self.random.choice(self.seeds)
        for _ in range(self.random.randint(1, 3)):
            where = self.random.randint(0, len(text))
            what = self.random.random()
            if what < 0.45:
                text = text[:where] + self.random.choice(SPECIAL + TOKENS) + text[where:]
            elif what < 0.65:
                text = text[:where] + text[where + self.random.randint(1, 3):]
            elif what < 0.75:
                text = text[:where] + self.random.choice(SPECIAL) + text[where + 1:]
            else:
                lines = text.split("\n")
                at = self.random.randrange(len(lines))
                change = self.random.random()
                if change < 0.3:
                    lines[at] = " " * self.random.randint(1, 3) + lines[at]
                elif change < 0.5:
                    lines[at] = lines[at][1:]
                elif change < 0.65:
                    lines.insert(at, self.random.choice(lines))
                elif change < 0.8:
                    lines[at] = lines[at] + self.random.choice([" ", "\t", " # c", "#c", ":", " :", ",", " |", " >"])
                elif change < 0.9:
                    del lines[at]
                else:
                    lines[at] = lines[at].replace("  ", "\t", 1)
                text = "\n".join(lines)
        return text

    def tree(self, depth):
        pick = self.random.random()
        if depth > 4 or pick < 0.5:
            return self.random.choice(
                [None, True, False, 0, 1, -1, 42, 2**53 + 1, 2**63 - 1, 0.5, -0.0, 1e16, 1e-5, 1.5e300, 3.0, "", "a", "yes", "1", "0644", "~", "a b", " a ", "a: b", "a #b", "- a", "é",
                 "x\ny", "x\n", "\n", "tab\there", "it's", '"', "\\", "{a}", "[a]", "%a", "@a", "!a", "&a", "*a", "|", ">", "#a", "null", "1e3", "2001-01-01", "x\r\ny", "a\u00a0b", "😀"]
            )
        if pick < 0.75:
            return [self.tree(depth + 1) for _ in range(self.random.randint(0, 3))]
        keys = [self.tree(9) for _ in range(self.random.randint(0, 3))]
        return {key: self.tree(depth + 1) for key in keys}

    def dumped_document(self):
        import yaml

        value = self.tree(0)
        style = self.random.choice([None, "'", '"', "|", ">"])
        text = yaml.safe_dump(
            {"a": {"test.nop": [{"v": value}]}},
            default_style=style if style and self.random.random() < 0.4 else None,
            default_flow_style=self.random.choice([True, False, None]),
            indent=self.random.choice([1, 2, 4, 7]),
            width=self.random.choice([5, 20, 80]),
            allow_unicode=self.random.random() < 0.5,
            explicit_start=self.random.random() < 0.1,
            sort_keys=False,
        )
        return text.replace("!!int ", "").replace("!!float ", "").replace("!!null ", "").replace("!!bool ", "").replace("!!str ", "")

    KINDS = (
        ("scalars", scalar_document, 36),
        ("ids", id_document, 10),
        ("soup", soup_document, 20),
        ("comments", comment_document, 10),
        ("mutated", mutated_document, 14),
        ("dumped", dumped_document, 10),
    )

    def source(self):
        kind, make, _ = self.random.choices(self.KINDS, weights=[k[2] for k in self.KINDS])[0]
        return kind, make(self)


def salt_value(source):
    """
    What Salt's own renderer makes of a source: (True, states) or (False, why).
    """
    try:
        return True, salt_yaml.render(source)
    except Exception as exc:  # pylint: disable=broad-except
        return False, f"{type(exc).__name__}: {exc}"


def ask(answer, sources):
    """
    Put a batch through the Go program.
    """
    frames = b"".join(struct.pack(">I", len(raw)) + raw for raw in sources)
    done = subprocess.run([answer], input=frames, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode("utf-8").split("\n") if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer", required=True, help="the program built from ./answer")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="how many differences to print")
    parser.add_argument("--refused", default="", help="print sources that Salt reads and we refuse with this code")
    options = parser.parse_args()

    generator = Generator(options.seed)
    start = time.time()
    total = same = both = wrong = 0
    refused = collections.Counter()
    kinds = collections.Counter()
    shown = collections.Counter()
    while total < options.count:
        batch = [generator.source() for _ in range(min(5000, options.count - total))]
        raw = [source.encode("utf-8", "surrogatepass") for _, source in batch]
        answers = ask(options.answer, raw)
        if len(answers) != len(batch):
            print(f"{len(batch)} sources, {len(answers)} answers")
            return 1
        for (kind, source), ours in zip(batch, answers):
            total += 1
            kinds[kind] += 1
            ok, states = salt_value(source)
            if not ours["ok"]:
                if ok:
                    refused[ours["code"]] += 1
                    if options.refused == ours["code"] and shown["refused"] < options.show:
                        shown["refused"] += 1
                        print(f"REFUSED {ours['code']} line {ours['line']} {ours['message']}\n  source {source!r}\n  salt   {states!r}")
                else:
                    both += 1
                continue
            if ok:
                try:
                    theirs = canonical.canonical(states).decode("utf-8")
                except TypeError as exc:
                    theirs = str(exc)
            else:
                theirs = f"refused: {states}"
            if theirs == ours["canonical"] and canonical.digest(states) == ours["digest"]:
                same += 1
                continue
            wrong += 1
            if shown["wrong"] < options.show:
                shown["wrong"] += 1
                print(f"DIFFERENT ({kind})\n  source {source!r}\n  ours   {ours['canonical']}\n  salt   {theirs}")
    spent = time.time() - start
    print(f"Salt {salt.version.__version__}, seed {options.seed}: {total} sources in {spent:.0f} s ({dict(kinds)})")
    print(f"  same value {same}, refused by both {both}, refused by us alone {sum(refused.values())} {dict(refused.most_common())}")
    print(f"  third outcomes: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
