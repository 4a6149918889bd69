package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/state"
)

const (
	goodState    = "a:\n  test.nop: []\n"
	badState     = "a:\n  test.nop:\n    - größe: {x: 1, x: 2}\n"
	warningState = "a:\n  test.nop:\n    - password: hunter22\n    - require:\n      - pkg: nowhere\n"
)

// writeStates puts files into a folder and gives their paths in order.
func writeStates(t *testing.T, sources ...string) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, 0, len(sources))
	for i, s := range sources {
		p := filepath.Join(dir, string(rune('a'+i))+".sls")
		if err := os.WriteFile(p, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func validateWith(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = runValidate(args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

// A1: exit statuses are documented: 0 all fine, 1 some refused, 2 usage or
// unreadable.
func TestValidateExitStatus(t *testing.T) {
	p := writeStates(t, goodState, badState, warningState)
	missing := filepath.Join(t.TempDir(), "missing.sls")
	for _, c := range []struct {
		name  string
		stdin string
		args  []string
		want  int
	}{
		{"one fine", "", p[:1], 0},
		{"warnings refuse nothing", "", p[2:], 0},
		{"one refused", "", p[1:2], 1},
		{"one of several refused", "", p, 1},
		{"unreadable", "", []string{missing}, 2},
		{"unreadable beside refused", "", []string{p[1], missing, p[0]}, 2},
		{"a folder", "", []string{t.TempDir()}, 2},
		{"no file", "", nil, 2},
		{"unknown option", "", []string{"--nope", p[0]}, 2},
		{"two forms", "", []string{"--json", "--high", p[0]}, 2},
		{"standard input", goodState, []string{"-"}, 0},
		{"standard input refused", badState, []string{"-"}, 1},
		{"standard input twice", goodState, []string{"-", "-"}, 2},
		{"options behind files", "", []string{p[0], "--json"}, 0},
		{"a file that looks like an option", "", []string{"--", "--json"}, 2},
		{"help", "", []string{"--help"}, 0},
		{"forms of a refused file", "", []string{"--canonical", p[1]}, 1},
	} {
		if got, _, stderr := validateWith(c.stdin, c.args...); got != c.want {
			t.Errorf("%s: exit status %d, want %d (%s)", c.name, got, c.want, stderr)
		}
	}
}

// full is an output without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// What nobody could read is no success.
func TestValidateOutputLost(t *testing.T) {
	p := writeStates(t, goodState)
	for _, args := range [][]string{p, {"--json", p[0]}, {"--canonical", p[0]}, {"--high", p[0]}} {
		var stderr bytes.Buffer
		if got := runValidate(args, nil, full{}, &stderr); got != 2 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%v: exit status %d (%s)", args, got, stderr.String())
		}
	}
	// A usage error comes before anything is read or printed.
	if _, out, _ := validateWith(goodState, "-", p[0], "-"); out != "" {
		t.Errorf("printed %q", out)
	}
}

// A1: people get an excerpt with a caret below the right character and a hint.
func TestValidateExcerpt(t *testing.T) {
	p := writeStates(t, badState)
	_, out, _ := validateWith("", p[0])
	want := p[0] + `:3:21: error: this key stands in the mapping already [duplicate_key]
 3 |     - größe: {x: 1, x: 2}
   |                     ^
   hint: keep one of them
`
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	// Nothing in a source may reach the terminal as a control sequence.
	_, out, _ = validateWith("a: \x1b[31m\u202e\n", "-")
	if strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("control characters in %q", out)
	}
	// A long line is cut around its column, wide characters count twice.
	_, out, _ = validateWith("a:\n  test.nop:\n    - x: ["+strings.Repeat("1, ", 200)+".nan, 2]\n", "-")
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, " | ") && len(line) > 130 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	if _, caret := excerpt([]byte("✅: x"), 4); caret != strings.Repeat(" ", 4) {
		t.Errorf("a wide symbol: %q", caret)
	}
	text, caret := excerpt([]byte("日本: x"), 5)
	if text != "日本: x" || caret != strings.Repeat(" ", 6) {
		t.Errorf("wide characters: %q %q", text, caret)
	}
}

// A1, A6: an accepted file says its digest, and that nothing is known about
// the client; so does the help, with examples.
func TestValidateSaysWhatItDoesNotKnow(t *testing.T) {
	_, out, _ := validateWith(goodState, "-")
	d, _ := state.Parse([]byte(goodState))
	if !strings.Contains(out, d.Digest()) || !strings.Contains(out, "nothing is known about the client") {
		t.Error(out)
	}
	if _, out, _ = validateWith(goodState, "--quiet", "-"); out != "" {
		t.Errorf("quiet printed %q", out)
	}
	_, help, _ := validateWith("", "--help")
	for _, word := range []string{"--json", "--canonical", "--high", "NO_COLOR", "Exit status", "Examples:", "says nothing about a client"} {
		if !strings.Contains(help, word) {
			t.Errorf("the help lacks %q", word)
		}
	}
}

// A1: one JSON object a file, with the same fields as state_validate.
func TestValidateJSON(t *testing.T) {
	p := writeStates(t, goodState, badState, warningState)
	missing := filepath.Join(t.TempDir(), "missing.sls")
	_, out, _ := validateWith("", append([]string{"--json", missing}, p...)...)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	type object struct {
		File             string
		OK               bool
		Digest           *string
		States           int
		Errors, Warnings []struct {
			Code, Message string
			Hint          *string
			Line, Column  *int
		}
	}
	objects := make([]object, 4)
	for i, line := range lines {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&objects[i]); err != nil {
			t.Fatal(err)
		}
	}
	if o := objects[0]; o.OK || o.Digest != nil || o.Errors[0].Code != "usage" {
		t.Errorf("unreadable: %+v", o)
	}
	if o := objects[1]; !o.OK || o.File != p[0] || o.States != 1 || len(*o.Digest) != 64 || o.Errors == nil || o.Warnings == nil {
		t.Errorf("fine: %+v", o)
	}
	if o := objects[2]; o.OK || o.Digest != nil || o.Errors[0].Code != "duplicate_key" || *o.Errors[0].Line != 3 || *o.Errors[0].Column != 21 {
		t.Errorf("refused: %+v", o)
	}
	if o := objects[3]; !o.OK || len(o.Warnings) != 2 || o.Warnings[0].Code != "looks_secret" || o.Warnings[1].Code != "dangling_requisite" {
		t.Errorf("warnings: %+v", o)
	}
}

// A9, A14: the canonical form comes out exactly, so that its SHA-256 is the
// digest; the high data is what state.high gets.
func TestValidateForms(t *testing.T) {
	p := writeStates(t, goodState, warningState)
	d, _ := state.Parse([]byte(goodState))
	_, out, errs := validateWith("", "--canonical", p[0])
	sum := sha256.Sum256([]byte(out))
	if hex.EncodeToString(sum[:]) != d.Digest() || errs != "" {
		t.Errorf("%q %q", out, errs)
	}
	_, out, errs = validateWith("", "--high", p[0], p[1])
	if lines := strings.Split(out, "\n"); len(lines) != 3 || lines[0] != `{"a":{"test":["nop",{"order":10000}],"__sls__":"oduflow","__env__":"base"}}` {
		t.Errorf("%q", out)
	}
	if !strings.Contains(errs, "looks_secret") {
		t.Errorf("warnings belong to standard error: %q", errs)
	}
}

// A terminal that NO_COLOR speaks for gets none, and a buffer never does.
func TestValidateColour(t *testing.T) {
	if colourful(&bytes.Buffer{}) {
		t.Error("a buffer is no terminal")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if colourful(null) {
		t.Error("/dev/null is no terminal")
	}
	p := painter{on: true}
	if p.paint(red, "x") != "\x1b[1;31mx\x1b[0m" {
		t.Error("no colour")
	}
}
