package state_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/state"
)

// worst gives 64 KiB of the worst there is, by what it is the worst of.
func worst() map[string]string {
	n := state.MaxSourceBytes
	rep := func(s string) string { return strings.Repeat(s, n/len(s)) }
	return map[string]string{
		"[": rep("["), "{": rep("{"), "- ": rep("- "), "? ": rep("? "), "[[]": rep("["), "a: [": "a: " + rep("[")[:n-4],
		"&a ": rep("&a "), "&a [": rep("&a ["), "*a ": rep("[*a,"), "comments": rep("# c\n"), "comments2": "a:\n" + strings.Repeat("  # c\n", n/7) + " b.c: []\n",
		"blank": "a:\n" + strings.Repeat("\n", n-20) + "  b.c: []\n", "spaces": "a: " + strings.Repeat(" ", n-10) + "b", "plainlines": "a: " + strings.Repeat("x\n ", n/3-3),
		"quotedlines": "a: '" + strings.Repeat("x\n\n ", n/4-3) + "'", "dq": `a: "` + strings.Repeat(`\x41`, n/4-3) + `"`, "keys": rep("a: 1\n"), "flowkeys": "a: {b.c: [{d: {" + strings.Repeat("a: 1,", n/5-5) + "}}]}",
		"uniqkeys": func() string {
			var b strings.Builder
			b.WriteString("a: {b.c: [{d: {")
			for i := 0; b.Len() < n-20; i++ {
				fmt.Fprintf(&b, "%x,", i)
			}
			b.WriteString("}}]}")
			return b.String()
		}(),
		"nest": func() string {
			var b strings.Builder
			for i := 0; b.Len()+i+4 < n; i++ {
				b.WriteString(strings.Repeat(" ", i))
				b.WriteString("a:\n")
			}
			return b.String()
		}(),
		"block": "a: |\n" + strings.Repeat("  x\n", n/4-3), "blocks": rep("- |\n  x\n"), "jinja": rep("{{x}}"), "jinja2": rep("{{"), "jinja3": rep("{%"), "jinja4": rep("{#")[:n-2] + "#}", "errs": "a:\n  b.c:\n" + strings.Repeat("  - x\n", n/6-3),
		"args": "a:\n  b.c:\n" + strings.Repeat("  - x:\n", n/7-3), "tags": "a: [" + strings.Repeat("!x 1,", n/5-3) + "]", "excl": "a: [" + strings.Repeat("! 1,", n/4-3) + "]",
		"uni": "a: [" + strings.Repeat("é,", n/3-3) + "]", "uni2": rep("é"), "names": "a: {b.c: [{names: [" + strings.Repeat("1,", n/2-20) + "]}]}",
		"names2": "a: {b.c: [{names: [" + strings.Repeat("a,", n/2-20) + "]}]}", "ctl": rep("\x01"), "bad": rep("\xff"), "sep": rep("\u2028"), "cr": rep("\r"), "docs": rep("---\n"), "colon": rep(": "), "colons": rep(":"), "q": rep("?"), "flowseqpair": "[" + strings.Repeat("a: b,", n/5-1) + "]",
		"nestednames": "a: {b.c: [" + strings.Repeat("{names: [{x: []}]},", n/20) + "]}", "ids": rep("a:\n  b.c: []\n"), "headcomment": strings.Repeat("#\n\n", n/3), "itemcomments": "a:\n  b.c:\n" + strings.Repeat("  # c\n  - x: 1\n", n/16-3), "linecomments": "a:\n  b.c:\n" + strings.Repeat("  - x: 1 # c\n", n/14-3),
		"tabcomments": "a:\n# c\n" + strings.Repeat("\t#\n", n/3-5), "tabcomments2": "a:\n" + strings.Repeat("-\t#\n", n/4-2), "tabcomments3": strings.Repeat("- \t# c\n", n/7), "tabblanks": "a: # c\n" + strings.Repeat("\t", n-20), "slash": "a: \"" + strings.Repeat(`\/`, n/2-4) + "\"", "tabs": rep("\t"), "funcs": "a: {" + strings.Repeat("b.c: [],", n/8-2) + "}", "flowcomment": "[" + strings.Repeat("a, #\n", n/6) + "]", "flownest32": strings.Repeat(strings.Repeat("[", 30)+strings.Repeat("]", 30)+"\n", n/61), "longnum": "a: {b.c: [{x: " + strings.Repeat("1", n-30) + "}]}", "longsexa": "a: {b.c: [{x: 1" + strings.Repeat(":1", n/2-30) + "}]}",
		"unterminated": "a: '" + rep("x")[:n-10], "unterminated2": "a: \"" + rep("x\n")[:n-10], "qkeys": rep("? a\n"), "emptyq": rep("?\n"), "dash": rep("-\n"), "dashq": rep("- ? "), "anchors uniq": func() string {
			var b strings.Builder
			for i := 0; b.Len() < n-20; i++ {
				fmt.Fprintf(&b, "- &a%d x\n", i)
			}
			return b.String()
		}(),
		"modules": each("a: {", "%x.b: [],", 5500, "}"), "manyargs": each("a: {b.c: [", "%x: 1,", 5200, "]}"), "argsofname": each("a: {b.c: [{names: [{x: [", "%x: 1,", 5200, "]}]}]}"),
		"manyids": each("", "%x: {b.c: []}\n", 4000, ""), "jinjaindented": strings.Repeat(" ", n/2) + strings.Repeat("{{}}", n/8), "faultattheend": "a: {b.c: [v: [" + strings.Repeat("é?a,", n/6) + "]]}}",
		"floats": "a: {b.c: [{x: [" + strings.Repeat("1.0e+300,", n/9-4) + "]}]}", "intkeys": func() string {
			var b strings.Builder
			b.WriteString("a: {b.c: [{d: {")
			for i := 0; b.Len() < n-20; i++ {
				fmt.Fprintf(&b, "%d.0: ,", i)
			}
			b.WriteString("}}]}")
			return b.String()
		}(),
		"dictnames": "a: {b.c: [{names: [" + strings.Repeat("{a: []},", n/8-20) + "]}]}", "nulls": "a: {b.c: [{x: [" + strings.Repeat("~,", n/2-20) + "]}]}",
		"secrets": "a: {b.c: [{password: [" + strings.Repeat("ghp_,", n/5-20) + "]}]}", "reqs": "a: {b.c: [{require: [" + strings.Repeat("b: c,", n/5-20) + "]}]}", "reqs2": "a: {b.c: [{require: [" + strings.Repeat("[b: c*],", n/8-20) + "]}]}", "reqs3": "a: {b.c: [{names: [" + strings.Repeat("x,", n/6) + "]},{require: [" + strings.Repeat("{b: '*c*'},", n/20) + "]}]}",
	}
}

// each repeats a format with a number of its own each time.
func each(head, format string, count int, tail string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := range count {
		fmt.Fprintf(&b, format, 0xa000+i)
	}
	return b.String() + tail
}

// A6: the worst 64 KiB are answered, and well. How long each takes is measured
// by BenchmarkWorst, whose slowest has to stay under 20 ms; no test asserts a time.
func TestWorstIsAnswered(t *testing.T) {
	for name, source := range worst() {
		source = source[:min(len(source), state.MaxSourceBytes)]
		d, errs := state.Parse([]byte(source))
		if d == nil {
			if utf8.ValidString(source) && !strings.Contains(source, "\r") {
				wellFormed(t, source, errs)
			}
			continue
		}
		if _, err := state.Decode(d.Canonical()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A6: memory stays flat, whatever comes.
func TestWorstNeedsLittleMemory(t *testing.T) {
	for name, source := range worst() {
		source := []byte(source[:min(len(source), state.MaxSourceBytes)])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		state.Parse(source)
		runtime.ReadMemStats(&after)
		bytes := after.TotalAlloc - before.TotalAlloc
		if bytes > 16<<20 {
			t.Errorf("%s: %d MiB", name, bytes>>20)
		}
	}
}

func BenchmarkWorst(b *testing.B) {
	for name, source := range worst() {
		source := []byte(source[:min(len(source), state.MaxSourceBytes)])
		b.Run(strings.Map(func(r rune) rune {
			if r <= ' ' || r == '/' {
				return '_'
			}
			return r
		}, name), func(b *testing.B) {
			b.SetBytes(int64(len(source)))
			for b.Loop() {
				state.Parse(source)
			}
		})
	}
}
