package state_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// accept parses a source that has to be taken.
func accept(t testing.TB, source string) *state.Document {
	t.Helper()
	d, errs := state.Parse([]byte(source))
	if len(errs) > 0 {
		t.Fatalf("%q: %v", source, errs[0])
	}
	return d
}

// states gives the canonical form without its envelope.
func states(d *state.Document) string {
	return strings.TrimSuffix(strings.TrimPrefix(string(d.Canonical()), `{"version":1,"states":`), "}")
}

// A1, A4: each plain scalar has the value that Salt's loader gives it. The
// differential run under test/statelang is the proof; these are its corners.
func TestScalars(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "00": "0", "000": "0", "-0": "0", "+0": "0", "-00": "0", "0644": "644", "00644": "644", "+0644": "420", "-010": "-8", "010": "10",
		"0899": `"0899"`, "08": `"08"`, "0o644": `"0o644"`, "0O7": `"0O7"`, "0_7": "7", "0_07": "7", "0_010": "8", "+0_": "0", "_1": `"_1"`, "1_": "1", "1_000": "1000",
		"0b101": "5", "-0b1": "-1", "0B1": `"0B1"`, "0b2": `"0b2"`, "0x1F": "31", "0x_f": "15", "-0xf": "-15", "0X1": `"0X1"`, "0xg": `"0xg"`,
		"1:30": "90", "12:30:45": "45045", "1:60": `"1:60"`, "01:30": `"01:30"`, "-1:30": "-90", "1_0:30": "630", "1:30:99": `"1:30:99"`,
		"1:30.5": "90.5", "0:30.": "30.0", "-1:30.5": "-90.5", "190:20:30.15": "685230.15",
		"1.0": "1.0", "5.": "5.0", ".5": "0.5", "-.5": `"-.5"`, "+.5": `"+.5"`, "1e3": `"1e3"`, "1.0e3": `"1.0e3"`, "1.0e+3": "1000.0", "1.E-3": "0.001", "1_0.5_0": "10.5", "-0.0": "-0.0",
		"1.5.2": `"1.5.2"`, "0.1": "0.1", "1.0e+16": "1e+16", "1.0e-5": "1e-05", "123456789012345680.0": "1.2345678901234568e+17", "9999999999999998.0": "9999999999999998.0",
		"1.0e-400": "0.0", "4.9e-324": "5e-324", "1.7976931348623157e+308": "1.7976931348623157e+308",
		"9007199254740993": "9007199254740993", "18446744073709551615": "18446744073709551615", "-9223372036854775808": "-9223372036854775808",
		"~": "null", "null": "null", "Null": "null", "NULL": "null", "nULL": `"nULL"`, "none": `"none"`, "": "null",
		"yes": "true", "Yes": "true", "YES": "true", "yEs": `"yEs"`, "on": "true", "True": "true", "no": "false", "off": "false", "FALSE": "false", "y": `"y"`, "N": `"N"`,
		"2001-01-01": `"2001-01-01"`, "2001-12-14t21:59:43.10-05:00": `"2001-12-14t21:59:43.10-05:00"`, "1.2.3.4": `"1.2.3.4"`, "::1": `"::1"`, "10.0.0.0/8": `"10.0.0.0/8"`,
		"\t# c\n      - 1": "[1]", "|\n        all:\n        \tx # c\n        \t# c\n        \t\n        b": `"all:\n\tx # c\n\t# c\n\t\nb\n"`, "x\t# c": `"x"`, "'a -\t# b'": `"a -\t# b"`, "[ # c\n      a ]": `["a"]`,
		"'0644'": `"0644"`, `"yes"`: `"yes"`, "'~'": `"~"`, "|\n        0644": `"0644\n"`, ">-\n        1\n        2": `"1 2"`,
		"a#b": `"a#b"`, "a # b": `"a"`, "C:\\x": `"C:\\x"`, "a: b"[:1]: `"a"`, "-x": `"-x"`, "?x": `"?x"`, "[a?b, c? d]": `["a?b","c? d"]`, "http://x/y?z=1": `"http://x/y?z=1"`, "[http://x/y?z]": `["http://x/y?z"]`,
		`"\/x\\/y"`: `"/x\\/y"`, `'\/'`: `"\\/"`, `\/`: `"\\/"`, `"\x41\u00e9\U0001F600"`: `"Aé😀"`, `"a\
      b"`: `"ab"`, `"\t\r\n"`: `"\t\r\n"`, `"\_"`: "\"\u00a0\"", "a\u00a0b": "\"a\u00a0b\"", "v:\u00a0w": "\"v:\u00a0w\"", "=x": `"=x"`, "{=: 1}": `{"=":1}`,
		"{1: a, b: c}": `{"\u0000map":[[1,"a"],["b","c"]]}`, "{1.0: a}": `{"\u0000map":[[1.0,"a"]]}`, "{~: a}": `{"\u0000map":[[null,"a"]]}`, "{no: a}": `{"\u0000map":[[false,"a"]]}`, "{'1': a}": `{"1":"a"}`, "{}": "{}", "[]": "[]",
	} {
		if got := states(accept(t, in(text))); got != `{"a":{"test.nop":[{"v":`+want+`}]}}` {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// A9: the digest doesn't change with what Salt doesn't see.
func TestDigestIgnores(t *testing.T) {
	want := accept(t, "a:\n  file.managed:\n    - name: /x\n    - mode: 0644\n    - list: [1, two]\n    - run: off\n").Digest()
	for name, source := range map[string]string{
		"comments":      "# c\na: # c\n  file.managed:\n    # c\n    - name: /x # c\n    - mode: 0644\n    - list: [1, two]\n    - run: off\n# c\n",
		"blanks":        "\n\na:\n\n    file.managed:\n      -   name:   /x\n      - mode: 0644\n\n      - list: [ 1,two ]\n      - run: off\n\n\n",
		"quoting":       "'a':\n  \"file.managed\":\n    - 'name': '/x'\n    - mode: 0644\n    - list: [1, \"two\"]\n    - 'run': off\n",
		"flow":          `{a: {file.managed: [{name: /x}, {mode: 0644}, {list: [1, two]}, {run: off}]}}`,
		"block":         "a:\n  file.managed:\n  - name: /x\n  - mode: 0644\n  - list:\n    - 1\n    - two\n  - run: off\n",
		"CRLF":          "a:\r\n  file.managed:\r\n    - name: /x\r\n    - mode: 0644\r\n    - list: [1, two]\r\n    - run: off\r\n",
		"CR":            "a:\r  file.managed:\r    - name: /x\r    - mode: 0644\r    - list: [1, two]\r    - run: off\r",
		"BOM":           "\ufeffa:\n  file.managed:\n    - name: /x\n    - mode: 0644\n    - list: [1, two]\n    - run: off\n",
		"markers":       "---\na:\n  file.managed:\n    - name: /x\n    - mode: 0644\n    - list: [1, two]\n    - run: off\n...\n",
		"number forms":  "a:\n  file.managed:\n    - name: /x\n    - mode: 0x284\n    - list: [0b1, two]\n    - run: No\n",
		"explicit keys": "? a\n: ? file.managed\n  : - name: /x\n    - mode: 644\n    - list: [1, two]\n    - run: false\n",
		"block scalar":  "a:\n  file.managed:\n    - name: |-\n        /x\n    - mode: 644\n    - list: [1, two]\n    - run: false\n",
		"escapes":       "a:\n  file.managed:\n    - name: \"\\x2f\\u0078\"\n    - mode: 644\n    - list: [1, two]\n    - run: false\n",
		"no last break": "a:\n  file.managed:\n    - name: /x\n    - mode: 644\n    - list: [1, two]\n    - run: false",
	} {
		if accept(t, source).Digest() != want {
			t.Errorf("%s: another digest: %s", name, accept(t, source).Canonical())
		}
	}
}

// A9: the digest changes with anything that Salt would see, order included.
func TestDigestSees(t *testing.T) {
	seen := map[string]string{}
	for _, source := range []string{
		"a:\n  b.c:\n    - x: 1\n    - y: 2\n",
		"a:\n  b.c:\n    - y: 2\n    - x: 1\n",
		"a:\n  b.c:\n    - x: '1'\n    - y: 2\n",
		"a:\n  b.c:\n    - x: 1.0\n    - y: 2\n",
		"a:\n  b.c:\n    - x: true\n    - y: 2\n",
		"a:\n  b.c:\n    - x: 1\n",
		"a:\n  b.c:\n    - x: [1]\n    - y: 2\n",
		"a:\n  b.c:\n    - x: 1\n    - y:\n",
		"a:\n  b.c:\n    - x: 1\n    - y: ''\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {k: 1, l: 2}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {l: 2, k: 1}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {1: a}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {'1': a}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {1.0: a}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: {true: a}\n",
		"a:\n  b.c:\n    - x: 1\n    - y: [[1, a]]\n",
		"A:\n  b.c:\n    - x: 1\n    - y: 2\n",
		"a:\n  b.d:\n    - x: 1\n    - y: 2\n",
		"a:\n  b.c:\n    - x: 1\n    - y: 2\nz:\n  b.c: []\n",
		"z:\n  b.c: []\na:\n  b.c:\n    - x: 1\n    - y: 2\n",
		"a:\n  b.c: []\n  d.e: []\n",
		"a:\n  d.e: []\n  b.c: []\n",
		"a:\n  b.c:\n    - x: |\n        1\n    - y: 2\n",
		"a:\n  b.c:\n    - x: é\n",
		"a:\n  b.c:\n    - x: e\u0301\n",
		"a:\n  b.c:\n    - x: 0.0\n",
		"a:\n  b.c:\n    - x: -0.0\n",
	} {
		digest := accept(t, source).Digest()
		if other, twice := seen[digest]; twice {
			t.Errorf("one digest for\n%s\nand\n%s", source, other)
		}
		if len(digest) != 64 || strings.ToLower(digest) != digest {
			t.Errorf("digest %q", digest)
		}
		seen[digest] = source
	}
}

// A9: the vectors that any other implementation has to pass as well; see
// docs/canonical-form.md.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "canonical-vectors.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	n := 0
	for d.More() {
		var v struct{ Name, Source, Canonical, Digest string }
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		n++
		got := accept(t, v.Source)
		if string(got.Canonical()) != v.Canonical || got.Digest() != v.Digest {
			t.Errorf("%s:\n got %s %s\nwant %s %s", v.Name, got.Canonical(), got.Digest(), v.Canonical, v.Digest)
		}
		again, err := state.Decode([]byte(v.Canonical))
		if err != nil || again.Digest() != v.Digest {
			t.Errorf("%s: decode: %v", v.Name, err)
		}
	}
	if n < 20 {
		t.Errorf("only %d vectors", n)
	}
}

// A14: the conversion is structural: functions are split, arguments are kept
// as they are and in their order, an order is given where the author gave
// none, as Salt's own compiler numbers.
func TestHigh(t *testing.T) {
	for source, want := range map[string]string{
		"a:\n  test.nop: []\n": `{"a":{"test":["nop",{"order":10000}],"__sls__":"oduflow","__env__":"base"}}`,
		"z:\n  a.b:\n    - x: 0644\n  c.d:\n    - order: 5\n  e.f: []\n":   `{"z":{"a":[{"x":644},"b",{"order":10000}],"c":[{"order":5},"d"],"e":["f",{"order":10001}],"__sls__":"oduflow","__env__":"base"}}`,
		"b:\n  a.b: []\na:\n  a.b:\n    - order: last\n    - names: [x]\n": `{"b":{"a":["b",{"order":10000}],"__sls__":"oduflow","__env__":"base"},"a":{"a":[{"order":"last"},{"names":["x"]},"b"],"__sls__":"oduflow","__env__":"base"}}`,
		in("[1, 1.0, '1', true, ~, {1: x, yes: {}}]"):                      `{"a":{"test":[{"v":[1,1.0,"1",true,null,{"\u0000map":[[1,"x"],["yes",{}]]}]},"nop",{"order":10000}],"__sls__":"oduflow","__env__":"base"}}`,
	} {
		if strings.Contains(want, `["yes",{}]`) {
			source = strings.Replace(source, "yes:", "'yes':", 1)
		}
		d := accept(t, source)
		high, err := d.High()
		if err != nil {
			t.Fatal(err)
		}
		got, err := high.MarshalJSON()
		if err != nil || string(got) != want {
			t.Errorf("%q:\n got %s\nwant %s", source, got, want)
		}
		if !json.Valid(got) {
			t.Errorf("%q: not JSON", source)
		}
	}
}

// A13, A14: what a run has to bring is known beforehand, `names` included.
func TestExpected(t *testing.T) {
	d := accept(t, `one:
  pkg.installed: []
two:
  file.managed:
    - name: "/etc/x y\n"
  service.running:
    - names: [a, b, a, {c: [{enable: true}]}]
three:
  cmd.run:
    - names: []
    - name: other
four:
  cmd.run:
    - name: ignored
    - names: [taken]
`)
	want := []string{
		"pkg_|-one_|-one_|-installed", "file_|-two_|-/etc/x y\n_|-managed",
		"service_|-two_|-a_|-running", "service_|-two_|-b_|-running", "service_|-two_|-c_|-running",
		"cmd_|-three_|-other_|-run", "cmd_|-four_|-taken_|-run",
	}
	var got []string
	for _, k := range d.Expected() {
		got = append(got, k.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || d.Declared() != len(want) {
		t.Errorf("got %q (%d), want %q", got, d.Declared(), want)
	}
}

// A7: what looks like a secret is warned of, and taken.
func TestSecretWarnings(t *testing.T) {
	key := "-----BEGIN OPENSSH PRIVATE KEY-----"
	for _, arg := range []string{
		"password: hunter22", "PASSWORD: hunter22", "db_password: hunter22", "db-password: 'hunter22'", "rootpassword: hunter22", "authToken: abcdef12", "api_key: abcdef12", "secret: s3cr3t!",
		"env: [{DB_PASSWORD: hunter22}]", "x: {y: {client_secret: abcd1234}}", "passphrase: [one two three]", "password: 12345678", "contents: |\n        " + key + "\n        abc",
		"x: AKIAIOSFODNN7EXAMPLE", "x: 'token ghp_abcdefghijklmnopqrstuvwxyz0123456789'", "x: glpat-abcdefghij0123456789", "x: 'postgres://odoo:hunter22@db/x'", "x: AGE-SECRET-KEY-1ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
	} {
		d := accept(t, "a:\n  test.nop:\n    - "+arg+"\n")
		w := d.Warnings()
		if len(w) != 1 || w[0].Code != problem.LooksSecret || w[0].Line < 3 || w[0].Hint == "" {
			t.Errorf("%q: %v", arg, w)
		}
	}
	for _, arg := range []string{
		"password: /root/password", "password: ~", "password: true", "password: ''", "password: $PASS", "password_file: x12345", "tokens: 5", "mapping: hunter22", "pin: ~", "shopping: hunter22", "secretary: hunter22",
		"x: 'https://x.org/a@b:c'", "x: 'git@github.com:o/r'", "contents: '-----BEGIN CERTIFICATE-----'", "x: AKIA", "x: 'see ghp_ tokens'", "password: sdb://vault/x", "x: 'http://user@host/'", "empty_password: True",
	} {
		if w := accept(t, "a:\n  test.nop:\n    - "+arg+"\n").Warnings(); len(w) > 0 {
			t.Errorf("%q: %v", arg, w[0])
		}
	}
}

// A requisite that points at nothing in the document is warned of.
func TestDanglingWarnings(t *testing.T) {
	doc := "a:\n  pkg.installed:\n    - %s\nb c:\n  file.managed:\n    - name: /etc/x.conf\nd:\n  service.running:\n    - names: [one, {two: []}]\n"
	for arg, want := range map[string]int{
		"require: [file: b c]": 0, "require: [file: /etc/x.conf]": 0, "require: ['b c']": 0, "require: [id: d]": 0, "require: [service: two]": 0, "require: [file: '/etc/*']": 0, "require: [file: '[a-c] ?']": 0,
		"require: [file: '[!b] c']": 1, "require: [pkg: b c]": 1, "require: [file: x]": 1, "require: [x]": 1, "require_in: [file: '/etc/*']": 1, "watch_in: [service: d, service: e]": 1, "require_in: {file: nope}": 1,
		"onchanges: [file: '*.conf', file: '*.cnf']": 1, "listen: [service: one]": 0, "prereq: [file: 'b*']": 1, "prereq: [file: b c]": 0, "require: [file: '[']": 1, "require: ['*']": 0,
		// One of names is a state that runs, but nothing that another can reach into.
		"require: [two]": 0, "require_in: [d]": 0, "require_in: [one]": 1, "require_in: [two]": 1, "use: [service: one]": 1, "use: [service: d]": 0, "listen: [two]": 0, "listen_in: [service: two]": 0,
		"names: [x, {y: [require: [pkg: nope]]}]": 1, "names: [x, {y: [{require: [file: b c]}, {listen: [nope]}]}]": 1,
	} {
		w := accept(t, fmt.Sprintf(doc, arg)).Warnings()
		if len(w) != want || want > 0 && (w[0].Code != problem.DanglingRequisite || w[0].Line != 3) {
			t.Errorf("%s: %v", arg, w)
		}
	}
}

// A pattern in a requisite doesn't match itself in Salt if it has brackets.
func TestBracketsInRequisites(t *testing.T) {
	for source, want := range map[string]int{
		"'x[1]':\n  b.c: []\na:\n  b.c:\n    - require: [b: 'x[1]']\n":     1,
		"'x[1]':\n  b.c: []\na:\n  b.c:\n    - require: [b: 'x[[]1]']\n":   0,
		"'x[1]':\n  b.c: []\na:\n  b.c:\n    - require_in: [b: 'x[1]']\n":  0,
		"'x * y?':\n  b.c: []\na:\n  b.c:\n    - require: [b: 'x * y?']\n": 0,
	} {
		if w := accept(t, source).Warnings(); len(w) != want {
			t.Errorf("%q: %v", source, w)
		}
	}
}

// The messages of refusals never hold text of the source: they travel further
// than sources may (A3, B3).
func TestMessagesHoldNoSource(t *testing.T) {
	const hidden = "xyzzy"
	for _, source := range []string{
		hidden + ": {{ " + hidden + " }}\n", "a: " + hidden + "\n", hidden + ":\n  " + hidden + ": []\n", "a:\n  b.c:\n    - " + hidden + "\n", in("*" + hidden), in("&" + hidden + " 1"), in("!" + hidden + " 1"),
		in("'" + hidden), in(`"\` + hidden + `"`), hidden + ":\n  a.b: []\n" + hidden + ":\n  a.b: []\n", "a:\n  b.c:\n    - require: [" + hidden + ".x: y]\n", "%" + hidden + "\n", "#!" + hidden + "\n", "__" + hidden + ":\n  a.b: []\n",
		"a:\n  b.c:\n    - __" + hidden + ": 1\n", in("{" + hidden + ": 1, " + hidden + ": 2}"), "a:\n  b.c:\n    - password: " + hidden + "-and-more\n    - require: [pkg: " + hidden + "]\n",
	} {
		d, errs := state.Parse([]byte(source))
		if d != nil {
			errs = d.Warnings()
		}
		if len(errs) == 0 {
			t.Errorf("%q: nothing to say", source)
		}
		for _, e := range errs {
			if strings.Contains(e.Error()+e.Hint, hidden) {
				t.Errorf("%q: %v (%s)", source, e, e.Hint)
			}
		}
	}
}
