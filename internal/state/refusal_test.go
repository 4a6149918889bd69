package state_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// in puts an argument's value into a document; it begins at line 3, column 10.
func in(v string) string { return "a:\n  test.nop:\n    - v: " + v + "\n" }

// A4, A5, A6 and the additions of design.md: what is refused, with its code
// and its place. Each line stands for a kind.
func TestRefusals(t *testing.T) {
	deep := func(n int) string { return in(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, c := range []struct {
		name, source string
		code         problem.Code
		line, column int
	}{
		{"renderer", "#!jinja|yaml\na:\n  b.c: []\n", problem.RendererDirective, 1, 1},
		{"renderer behind a BOM", "\ufeff#!yaml\na:\n  b.c: []\n", problem.RendererDirective, 1, 1},
		{"path renderer", "#!/bin/sh\na:\n  b.c: []\n", problem.RendererDirective, 1, 1},
		{"anchor", in("&x 1"), problem.Anchor, 3, 10},
		{"anchor on a mapping", "a: &x\n  b.c: []\n", problem.Anchor, 1, 4},
		{"anchor on a key", "&x a:\n  b.c: []\n", problem.Anchor, 1, 1},
		{"alias to nothing", in("*x"), problem.Alias, 3, 10},
		{"alias", "a:\n  b.c:\n  - x: &x 1\n  - y: *x\n", problem.Anchor, 3, 8},
		{"tag", in("!!str 5"), problem.Tag, 3, 10},
		{"own tag", in("!x 5"), problem.Tag, 3, 10},
		{"lone tag", in("! 5"), problem.Tag, 3, 10},
		{"tag on a key", "!!str a:\n  b.c: []\n", problem.Tag, 1, 1},
		{"binary", in("!!binary aGk="), problem.Tag, 3, 10},
		{"merge key", in("{<<: {x: 1}}"), problem.MergeKey, 3, 11},
		{"merge argument", "a:\n  b.c:\n    - <<: 1\n", problem.MergeKey, 3, 7},
		{"lone equals sign", in("="), problem.BadScalar, 3, 10},
		{"directive", "%YAML 1.1\n---\na:\n  b.c: []\n", problem.YAMLDirective, 1, 1},
		{"second document", "a:\n  b.c: []\n--- # two\nb:\n  b.c: []\n", problem.SeveralDocuments, 3, 1},
		{"behind the end", "a:\n  b.c: []\n...\nb:\n  b.c: []\n", problem.SeveralDocuments, 4, 1},
		{"flow behind flow", "{a: {b.c: []}}\n {b: {b.c: []}}\n", problem.YAMLSyntax, 2, 2},
		{"duplicate ID", "a:\n  b.c: []\n\"a\":\n  b.c: []\n", problem.DuplicateKey, 3, 1},
		{"duplicate function", "a:\n  b.c: []\n  b.c: []\n", problem.DuplicateFunction, 3, 3},
		{"duplicate key", in("{x: 1, 'x': 2}"), problem.DuplicateKey, 3, 17},
		{"1 and 1.0 are one key", in("{1: a, 1.0: b}"), problem.DuplicateKey, 3, 17},
		{"1 and true are one key", in("{true: a, 0x1: b}"), problem.DuplicateKey, 3, 20},
		{"0 and -0.0 are one key", in("{0: a, -0.0: b}"), problem.DuplicateKey, 3, 17},
		{"null twice", in("{~: a, null: b}"), problem.DuplicateKey, 3, 17},
		{"many keys, one twice", in("{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1, 7: 1, 7.0: 1}"), problem.DuplicateKey, 3, 77},
		{"list as a key", in("{[a]: 1}"), problem.BadKey, 3, 11},
		{"duplicate argument", "a:\n  b.c:\n  - x: 1\n  - x: 2\n", problem.DuplicateArgument, 4, 5},
		{"two functions of one module", "a:\n  b.c: []\n  d.e: []\n  b.f: []\n", problem.SeveralFunctions, 4, 3},
		{"include", "include:\n  - x\n", problem.ReservedID, 1, 1},
		{"extend", "a:\n  b.c: []\nextend: {}\n", problem.ReservedID, 3, 1},
		{"exclude", "exclude: []\n", problem.ReservedID, 1, 1},
		{"dunder ID", "__a:\n  b.c: []\n", problem.ReservedID, 1, 1},
		{"separator in an ID", "a_|-b:\n  b.c: []\n", problem.BadID, 1, 1},
		{"integer ID", "8080:\n  b.c: []\n", problem.BadID, 1, 1},
		{"boolean ID", "on:\n  b.c: []\n", problem.BadID, 1, 1},
		{"null ID", "~:\n  b.c: []\n", problem.BadID, 1, 1},
		{"empty ID", "'':\n  b.c: []\n", problem.BadID, 1, 1},
		{"ID of two lines", "\"a\\nb\":\n  b.c: []\n", problem.BadID, 1, 1},
		{"long ID", "? " + strings.Repeat("a", 1025) + "\n: b.c: []\n", problem.BadID, 1, 3},
		{"list as a document", "- a\n", problem.BadBody, 1, 1},
		{"text as a document", "a\n", problem.BadBody, 1, 1},
		{"null body", "a:\n", problem.BadBody, 1, 1},
		{"short form", "a: b.c\n", problem.BadBody, 1, 4},
		{"empty body", "a: {}\n", problem.BadBody, 1, 4},
		{"undotted function", "a:\n  pkg: [installed]\n", problem.BadFunction, 2, 3},
		{"two dots", "a:\n  b.c.d: []\n", problem.BadFunction, 2, 3},
		{"leading underscore", "a:\n  _b.c: []\n", problem.BadFunction, 2, 3},
		{"dunder function", "a:\n  __env__: base\n", problem.BadFunction, 2, 3},
		{"empty function", "a:\n  b.: []\n", problem.BadFunction, 2, 3},
		{"integer function", "a:\n  1: []\n", problem.BadFunction, 2, 3},
		{"null arguments", "a:\n  b.c:\n", problem.BadArgument, 2, 3},
		{"mapping of arguments", "a:\n  b.c:\n    x: 1\n", problem.BadArgument, 3, 5},
		{"text argument", "a:\n  b.c:\n    - x\n", problem.BadArgument, 3, 7},
		{"list argument", "a:\n  b.c:\n    - [x]\n", problem.BadArgument, 3, 7},
		{"two keys", "a:\n  b.c:\n    - x: 1\n      y: 2\n", problem.BadArgument, 3, 7},
		{"no key", "a:\n  b.c:\n    - {}\n", problem.BadArgument, 3, 7},
		{"integer argument name", "a:\n  b.c:\n    - 1: x\n", problem.BadKey, 3, 7},
		{"fun", "a:\n  b.c:\n    - fun: d\n", problem.ReservedArgument, 3, 7},
		{"state", "a:\n  b.c:\n    - state: d\n", problem.ReservedArgument, 3, 7},
		{"fire_event", "a:\n  b.c:\n    - fire_event: true\n", problem.ReservedArgument, 3, 7},
		{"dunder argument", "a:\n  b.c:\n    - __sls__: d\n", problem.ReservedArgument, 3, 7},
		{"prerequired", "a:\n  b.c:\n    - prerequired: [b: a]\n", problem.ReservedArgument, 3, 7},
		{"integer name", "a:\n  b.c:\n    - name: 5\n", problem.BadName, 3, 13},
		{"null name", "a:\n  b.c:\n    - name:\n", problem.BadName, 3, 7},
		{"separator in a name", "a:\n  b.c:\n    - name: x_|-y\n", problem.BadName, 3, 13},
		{"names as text", "a:\n  b.c:\n    - names: x\n", problem.BadName, 3, 14},
		{"integer in names", "a:\n  b.c:\n    - names: [x, 80]\n", problem.BadName, 3, 18},
		{"separator in names", "a:\n  b.c:\n    - names: [x, {y_|-: []}]\n", problem.BadName, 3, 19},
		{"two keys in names", "a:\n  b.c:\n    - names: [{x: [], y: []}]\n", problem.BadName, 3, 15},
		{"name with no arguments", "a:\n  b.c:\n    - names: [{x: }]\n", problem.BadName, 3, 16},
		{"name with arguments twice", "a:\n  b.c:\n    - names: [x, {x: []}]\n", problem.BadName, 3, 19},
		{"names inside names", "a:\n  b.c:\n    - names: [{x: [name: y]}]\n", problem.ReservedArgument, 3, 20},
		{"require_in inside names", "a:\n  b.c:\n    - names: [{x: [require_in: [b: a]]}]\n", problem.ReservedArgument, 3, 20},
		{"order as text", "a:\n  b.c:\n    - order: 5th\n", problem.BadArgument, 3, 14},
		{"order as a boolean", "a:\n  b.c:\n    - order: true\n", problem.BadArgument, 3, 14},
		{"nan", in(".nan"), problem.BadScalar, 3, 10},
		{"infinity", in("-.inf"), problem.BadScalar, 3, 10},
		{"overflow", in("1.0e+999"), problem.BadScalar, 3, 10},
		{"thirty digits", in(strings.Repeat("9", 30)), problem.BadScalar, 3, 10},
		{"65 bits", in("18446744073709551616"), problem.BadScalar, 3, 10},
		{"64 bits below zero", in("-9223372036854775809"), problem.BadScalar, 3, 10},
		{"crashes Salt's loader", in("0_"), problem.BadScalar, 3, 10},
		{"crashes it too", in("0x_"), problem.BadScalar, 3, 10},
		{"control character", in("a\x01b"), problem.SourceEncoding, 3, 11},
		{"escaped control character", in(`"a\eb"`), problem.BadScalar, 3, 10},
		{"escaped C1 character", in(`"a\x9bb"`), problem.BadScalar, 3, 10},
		{"NUL", "a\x00", problem.SourceEncoding, 1, 2},
		{"DEL", in("\x7f"), problem.SourceEncoding, 3, 10},
		{"NEL", in("a\u0085b"), problem.SourceEncoding, 3, 11},
		{"line separator", in("a\u2028b"), problem.SourceEncoding, 3, 11},
		{"BOM inside", in("\ufeffa"), problem.SourceEncoding, 3, 10},
		{"invalid UTF-8", in("ü\xff"), problem.SourceEncoding, 3, 11},
		{"UTF-16", "\xff\xfea\x00", problem.SourceEncoding, 1, 1},
		{"surrogate in UTF-8", in("\xed\xa0\x80"), problem.SourceEncoding, 3, 10},
		{"surrogate escape", in(`"\ud800"`), problem.YAMLSyntax, 3, 11},
		{"unknown escape", in(`"\z"`), problem.YAMLSyntax, 3, 11},
		{"escaped single quote", in(`"it\'s"`), problem.YAMLSyntax, 3, 10},
		{"colon before a bracket", in("[x:]"), problem.YAMLSyntax, 3, 11},
		{"question mark in front", in("[?x]"), problem.YAMLSyntax, 3, 11},
		{"question mark as an indicator", in("[? ]]"), problem.YAMLSyntax, 3, 11},
		{"tab before a comment", "a:\n  b.c:\n    # c\n\t# c\n    - x: 1\n", problem.YAMLSyntax, 4, 1},
		{"tab between dash and comment", "a:\n  b.c:\n    -\t# c\n      x: 1\n", problem.YAMLSyntax, 3, 6},
		{"tab indent", "a:\n\tb.c: []\n", problem.YAMLSyntax, 2, 1},
		{"asterisk and more", in("*.* @log"), problem.YAMLSyntax, 3, 10},
		{"asterisk and much more", in("*longer-than-that.* x"), problem.YAMLSyntax, 3, 10},
		{"shell behind a quote", in(`"test -f /x" && true`), problem.YAMLSyntax, 3, 23},
		{"one brace too many", "a: {b.c: []}}\nc:\n  d.e: []\n", problem.YAMLSyntax, 1, 13},
		{"one bracket too many", "a:\n  b.c: []]\n", problem.YAMLSyntax, 2, 10},
		{"a brace alone", "a:\n  b.c: []\n  }\nz:\n  b.c: []\n", problem.YAMLSyntax, 3, 3},
		{"a brace as text, a fault elsewhere", "a:\n  b.c:\n    - x: a\n        } ]\n   - y: b\n", problem.YAMLSyntax, 5, 4},
		{"too deep", deep(29), problem.TooDeep, 3, 38},
		{"far too deep", deep(5000), problem.TooDeep, 3, 42},
		{"too deep with dashes", "a:\n" + strings.Repeat("- ", 40) + "x\n", problem.TooDeep, 2, 65},
		{"empty", "", problem.SourceEmpty, 1, 1},
		{"blank", " \n\n", problem.SourceEmpty, 1, 1},
		{"comments only", "# a:\n#   b.c: []\n", problem.SourceEmpty, 1, 1},
		{"marker only", "---\n", problem.SourceEmpty, 1, 1},
		{"empty mapping", "{}\n", problem.SourceEmpty, 1, 1},
		{"too large", "a:\n  b.c: []\n#" + strings.Repeat(" ", state.MaxSourceBytes), problem.SourceTooLarge, 1, 1},
		{"too many values", in("[" + strings.Repeat("1,", 17000) + "]"), problem.TooManyValues, 0, 0},
	} {
		d, errs := state.Parse([]byte(c.source))
		if d != nil || len(errs) == 0 {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		e := errs[0]
		if e.Code != c.code || c.line > 0 && (e.Line != c.line || e.Column != c.column) {
			t.Errorf("%s: %v, want %s at line %d, column %d", c.name, e, c.code, c.line, c.column)
		}
		wellFormed(t, c.source, errs)
	}
}

// A5: Jinja wherever it would be taken for a template, quoted or not; and
// nothing that only looks a little like it.
func TestJinja(t *testing.T) {
	for _, s := range []string{
		in("{{ x }}"), in("'{{ x }}'"), in(`"{{ x }}"`), in("a{{x}}b"), in("|\n        {{ x }}"), in("'{{\n      x }}'"),
		in("1 # {{ x }}"), "# {{ x }}\n" + in("1"), "{% if x %}\n" + in("1") + "{% endif %}\n", in("'{%- set x = 1 -%}'"), in("x {# note #}"),
		"{{ x }}:\n  b.c: []\n", "a:\n  {{ x }}: []\n", "a:\n  b.c: {{ x }}\n", in("'{{ unclosed'"), in("'{% if unclosed'"), in("'{%- for unclosed'"),
		in("docker ps --format '{{.Names}}'"), in(`"awk '{{print}}'"`), in("'{#\n      long #}'"), in("'{{''x''}}'"),
	} {
		_, errs := state.Parse([]byte(s))
		if len(errs) == 0 || errs[0].Code != problem.Jinja {
			t.Errorf("%q: %v", s, errs)
		}
	}
	for _, s := range []string{
		in("'${x}'"), in("'${#x}'"), in("'${#array[@]}'"), in("'{ { x } }'"), in("'x }}'"), in("'%}'"), in("'#}'"), in("'{$x}'"), in("'$(( x ))'"),
		in("{a: {b: {c: 1}}}"), in("'date +{%Y}'"), in("curl -w '{%s}'"), in(`"\x7b{ x }}"`), in("'mkdir {{a,b},c}'"), in("'{%s}'"), in("'%{http_code}'"),
		in("'git stash@{#'"), in("'{'"), in("'a{'") + "    - w: '{b'\n", in("awk '{print $1}'"), in("'{!x!}'"), in("'[[ x ]]'"), in("'{*x*}'"), in("'<% x %>'"),
	} {
		if _, errs := state.Parse([]byte(s)); len(errs) > 0 {
			t.Errorf("%q: %v", s, errs[0])
		}
	}
	// It doesn't hide what else is wrong, and isn't blamed for what follows
	// from it.
	_, errs := state.Parse([]byte("a:\n  b.c:\n    - x: {{ y }}\n    - fun: z\n{% if 1 %}\nb:\n  b.c: d\n{% endif %}\n"))
	got := codes(errs)
	if want := "3 jinja, 4 reserved_argument, 5 jinja, 7 bad_argument, 8 jinja"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// An opening at the edge of the source.
	for _, s := range []string{"{", "{{", "{%", "{#", "a: '{", "a: \"{{", "é{{é}}é: 1"} {
		state.Parse([]byte(s))
	}
}

func codes(errs []*problem.Error) string {
	var out []string
	for _, e := range errs {
		out = append(out, fmt.Sprintf("%d %s", e.Line, e.Code))
	}
	return strings.Join(out, ", ")
}

// A5: requisites that Salt would ignore, or that only some versions
// understand, are refused; what all understand is taken.
func TestRequisites(t *testing.T) {
	doc := func(arg string) string {
		return "a:\n  test.nop:\n    - " + arg + "\nb:\n  test.nop: []\n"
	}
	for _, arg := range []string{
		"require: [test.nop: b]", "watch: [test.nop: b]", "onfail: [test.nop: b]", "listen: [test.nop: b]", "require_in: [test.nop: b]", "use: [test.nop: b]",
		"require: b", "require: {test: b}", "require:", "listen: {test: b}", "watch_in: b", "require: [{test: b, cmd: c}]", "require: [{}]", "require: [[test, b]]",
		"require: [test: 5]", "require: [test: ]", "require: [test: [b]]", "require: [5: b]", "require: [5]", "require: [~]", "require: [sls: x]", "require_in: [sls: x]",
		"require_in: [id: b]", "prereq: [id: b]", "listen: [id: b]", "use: [id: b]", "listen_in: [b]", "require_in: {test.nop: b}", "require_in: {}", "require_in: {test: 5}", "prereq_in: {test: b}",
		"names: [{x: [{require: [test.nop: b]}]}]", "names: [{x: [{use: [test: b]}]}]", "names: [{x: [{prereq: [test: b]}]}]",
	} {
		_, errs := state.Parse([]byte(doc(arg)))
		if len(errs) == 0 {
			t.Errorf("%s: accepted", arg)
			continue
		}
		if errs[0].Code != problem.BadRequisite && errs[0].Code != problem.ReservedArgument {
			t.Errorf("%s: %v", arg, errs[0])
		}
		wellFormed(t, doc(arg), errs)
	}
	for _, key := range []string{
		"require", "require_any", "watch", "watch_any", "onchanges", "onchanges_any", "onfail", "onfail_any", "onfail_all", "prereq",
		"require_in", "watch_in", "onchanges_in", "onfail_in", "prereq_in", "listen", "listen_in", "use", "use_in",
	} {
		forms := []string{key + ": [test: b]", key + ": []", key + ":\n      - test: b"}
		if !strings.Contains(key, "_in") && !strings.HasPrefix(key, "listen") && key != "use" {
			forms = append(forms, key+": [b]", key+": ['b*']")
			if key != "prereq" { // for Salt 3006 that would be a circle, as b stands behind
				forms = append(forms, key+": [id: b]")
			}
		}
		if key == "require_in" {
			forms = append(forms, key+": {test: b}", key+": [b]")
		}
		for _, arg := range forms {
			d, errs := state.Parse([]byte(doc(arg)))
			if len(errs) > 0 {
				t.Errorf("%s: %v", arg, errs[0])
			} else if w := d.Warnings(); len(w) > 0 && !strings.Contains(arg, "*") {
				t.Errorf("%s: %v", arg, w[0])
			}
		}
	}
}

// A1: as many as 20 at once, in source order, whichever step finds them.
func TestRefusalsAtOnce(t *testing.T) {
	var b strings.Builder
	b.WriteString("a:\n  b.c:\n")
	for range 30 {
		b.WriteString("    - fun: x\n    - x: {1: a, 1: b}\n    - y: '{{ z }}'\n    - text\n")
	}
	_, errs := state.Parse([]byte(b.String()))
	if len(errs) != state.MaxErrors {
		t.Fatalf("%d errors", len(errs))
	}
	if got, want := codes(errs[:4]), "3 reserved_argument, 4 duplicate_key, 5 jinja, 6 bad_argument"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wellFormed(t, b.String(), errs)
}

// A refusal that leaves something unread makes no others up about it.
func TestRefusalsStayOne(t *testing.T) {
	for _, source := range []string{
		in("{*x : 1, *y : 2}"),
		in("[&x 1, {*x : 1, ~: 2, *x : 3}]"),
	} {
		_, errs := state.Parse([]byte(source))
		for _, e := range errs {
			if e.Code == problem.DuplicateKey {
				t.Errorf("%q: %v", source, e)
			}
		}
	}
	var ids strings.Builder
	for i := range 4050 {
		fmt.Fprintf(&ids, "%x: {d.e: []}\n", 0xa000+i)
	}
	if _, errs := state.Parse([]byte(ids.String())); len(errs) != 1 || errs[0].Code != problem.TooManyValues {
		t.Errorf("too many values: %v", codes(errs))
	}
}

// The hint that comes with a refusal works where it is followed.
func TestHintsForTheirPlace(t *testing.T) {
	for source, want := range map[string]string{
		"# see {{ x }}\na:\n  b.c: []\n":          "blank between the braces",
		in("{{ x }}"):                             `\x7b`,
		"a\n  b.c:\n    - x: 1\n":                 "end the line above with a colon",
		"a:\n  b.c\n    - x: 1\n":                 "end the line above with a colon",
		in("{1: a, true: b}"):                     "1, 1.0 and true",
		"a:\n  b.c:\n    - x: 1\n    - y: a: b\n": "quote a text",
	} {
		_, errs := state.Parse([]byte(source))
		if len(errs) != 1 || !strings.Contains(errs[0].Hint, want) {
			t.Errorf("%q: %v, want a hint with %q", source, errs, want)
		}
		if len(errs) == 1 && want == "quote a text" && strings.Contains(errs[0].Hint, "above") {
			t.Errorf("%q: %s", source, errs[0].Hint)
		}
	}
}

// A6: the limits themselves are taken.
func TestLimits(t *testing.T) {
	ids := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "s%d:\n  b.c: []\n", i)
		}
		return b.String()
	}
	for _, c := range []struct {
		name, source string
		ok           bool
	}{
		{"100 IDs", ids(100), true},
		{"101 IDs", ids(101), false},
		// document, ID, list of arguments, argument: the value is the fifth
		{"32 deep", in(strings.Repeat("[", 28) + strings.Repeat("]", 28)), true},
		{"33 deep", in(strings.Repeat("[", 29) + strings.Repeat("]", 29)), false},
		{"64 KiB", "a:\n  b.c: []\n" + strings.Repeat("#", state.MaxSourceBytes-13), true},
		{"64 KiB and a byte", "a:\n  b.c: []\n" + strings.Repeat("#", state.MaxSourceBytes-12), false},
		{"an ID of 1,024 characters", "? " + strings.Repeat("ü", 1024) + "\n: b.c: []\n", true},
		{"2^64-1", in("18446744073709551615"), true},
		{"-2^63", in("-9223372036854775808"), true},
		{"9,900 values", in("[" + strings.Repeat("1,", 9900) + "]"), true},
	} {
		d, errs := state.Parse([]byte(c.source))
		if c.ok != (d != nil) {
			t.Errorf("%s: %v", c.name, errs)
		}
	}
	_, errs := state.Parse([]byte(ids(150)))
	if got := codes(errs); got != "201 too_many_ids" {
		t.Errorf("150 IDs: %s", got)
	}
}

// wellFormed checks what every list of refusals promises.
func wellFormed(t testing.TB, source string, errs []*problem.Error) {
	t.Helper()
	if len(errs) > state.MaxErrors {
		t.Errorf("%d errors for %.60q", len(errs), source)
	}
	if !slices.IsSortedFunc(errs, func(a, b *problem.Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	}) {
		t.Errorf("not in source order for %.60q: %s", source, codes(errs))
	}
	source = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(source, "\ufeff"), "\r\n", "\n"), "\r", "\n")
	lines := bytes.Split([]byte(source), []byte("\n"))
	for _, e := range errs {
		if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len([]rune(string(lines[e.Line-1])))+1 {
			t.Errorf("%.60q: outside the source: %v", source, e)
		}
		if e.Hint == "" || e.Message == "" || !problem.Known(e.Code) {
			t.Errorf("%.60q: incomplete: %+v", source, e)
		}
	}
}
