package state_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// A13: what a minion gets is taken only in exactly the form in which masterd
// wrote it, and only if it passes every check of the language again.
func TestDecodeRefuses(t *testing.T) {
	wrap := func(states string) string { return `{"version":1,"states":` + states + `}` }
	arg := func(v string) string { return wrap(`{"a":{"b.c":[{"v":` + v + `}]}}`) }
	if _, err := state.Decode([]byte(arg("1"))); err != nil {
		t.Fatal(err)
	}
	for name, canonical := range map[string]string{
		"nothing":                    "",
		"other version":              strings.Replace(arg("1"), ":1,", ":2,", 1),
		"no version":                 `{"states":{"a":{"b.c":[]}}}`,
		"fields in another order":    `{"states":{"a":{"b.c":[]}},"version":1}`,
		"a blank":                    wrap(`{"a": {"b.c":[]}}`),
		"a line end":                 arg("1") + "\n",
		"something behind":           arg("1") + "{}",
		"unclosed":                   wrap(`{"a":{"b.c":[]}`),
		"trailing comma":             wrap(`{"a":{"b.c":[],}}`),
		"long escape":                arg(`"\u0041"`),
		"escaped slash":              arg(`"\/"`),
		"raw line feed":              arg("\"a\nb\""),
		"control character":          arg("\"a\x01b\""),
		"NUL in text":                arg(`"\u0000"`),
		"invalid UTF-8":              arg("\"\xff\""),
		"plus":                       arg("+1"),
		"leading zero":               arg("01"),
		"minus zero":                 arg("-0"),
		"65 bits":                    arg("18446744073709551616"),
		"another exponent":           arg("1e3"),
		"no point":                   arg("1E+16"),
		"more digits than needed":    arg("0.10"),
		"overflow":                   arg("1e+999"),
		"NaN":                        arg("NaN"),
		"a bare word":                arg("nil"),
		"pairs without need":         arg(`{"\u0000map":[["a",1]]}`),
		"empty pairs":                arg(`{"\u0000map":[]}`),
		"pairs with a list as a key": arg(`{"\u0000map":[[[1],1]]}`),
		"pairs with a repeated key":  arg(`{"\u0000map":[[1,1],[1.0,1]]}`),
		"marker beside another key":  arg(`{"\u0000map":[[1,1]],"a":1}`),
		"repeated key":               arg(`{"a":1,"a":2}`),
		"too deep":                   arg(strings.Repeat("[", 29) + strings.Repeat("]", 29)),
		"hostile depth":              arg(strings.Repeat("[", 70000)),
		"no states":                  wrap(`{}`),
		"a list of states":           wrap(`[]`),
		"no functions":               wrap(`{"a":{}}`),
		"a short form":               wrap(`{"a":"b.c"}`),
		"undotted":                   wrap(`{"a":{"b":["c"]}}`),
		"two functions of a module":  wrap(`{"a":{"b.c":[],"b.d":[]}}`),
		"include":                    wrap(`{"include":{"b.c":[]}}`),
		"dunder":                     wrap(`{"__a":{"b.c":[]}}`),
		"separator":                  wrap(`{"a_|-":{"b.c":[]}}`),
		"reserved argument":          wrap(`{"a":{"b.c":[{"fun":1}]}}`),
		"repeated argument":          wrap(`{"a":{"b.c":[{"x":1},{"x":1}]}}`),
		"repeated ID":                wrap(`{"a":{"b.c":[]},"a":{"b.c":[]}}`),
		"dotted requisite":           wrap(`{"a":{"b.c":[{"require":[{"b.c":"a"}]}]}}`),
		"integer name":               wrap(`{"a":{"b.c":[{"name":5}]}}`),
		"integer in names":           wrap(`{"a":{"b.c":[{"names":[5]}]}}`),
		"too large":                  arg(`"` + strings.Repeat("a", state.MaxCanonicalBytes) + `"`),
	} {
		d, err := state.Decode([]byte(canonical))
		if err == nil || d != nil {
			t.Errorf("%s: taken", name)
		} else if c := problem.CodeOf(err); c == problem.Internal || !problem.Known(c) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b strings.Builder
	for i := range 101 {
		b.WriteString(`,"` + strings.Repeat("a", i+1) + `":{"b.c":[]}`)
	}
	if _, err := state.Decode([]byte(wrap("{" + b.String()[1:] + "}"))); problem.CodeOf(err) != problem.TooManyIDs {
		t.Errorf("101 IDs: %v", err)
	}
}

// A9, A13: one changed byte is another document or none, never the same
// digest.
func TestDecodeChangedBytes(t *testing.T) {
	d := accept(t, "größe:\n  file.managed:\n    - name: \"/x\\n\"\n    - v: [1, 2.5, ~, yes, {3: x, y: z}, '']\n    - names: [p, {q: [order: 3]}]\n    - require: [file: r]\n  pkg.installed: []\n")
	canonical := d.Canonical()
	r := rand.New(rand.NewPCG(7, 7))
	taken := 0
	for range 20000 {
		b := d.Canonical()
		switch i := r.IntN(len(b)); r.IntN(3) {
		case 0:
			b[i] = byte(r.IntN(256))
		case 1:
			b = append(b[:i], b[i+1:]...)
		default:
			b[i] = canonical[r.IntN(len(canonical))]
		}
		again, err := state.Decode(b)
		if err != nil {
			continue
		}
		taken++
		if string(b) == string(canonical) {
			continue
		}
		if again.Digest() == d.Digest() || string(again.Canonical()) != string(b) {
			t.Fatalf("taken: %s", b)
		}
	}
	if taken == 0 {
		t.Error("nothing was taken: the test is too weak")
	}
	// The document can't be changed through what it hands out.
	clear(d.Canonical())
	if string(d.Canonical()) != string(canonical) {
		t.Error("the canonical form was changed from outside")
	}
}
