package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// Exit statuses of `masterd validate`. They are its contract with CI.
const (
	validateFine    = 0 // every file was accepted
	validateRefused = 1 // at least one was refused
	validateUsage   = 2 // a usage error, a file that can't be read, or output that can't be written
)

const validateHelp = `Usage: masterd validate [options] FILE...

Checks states as masterd does before it takes them. Nothing is executed, and no
daemon, network or Salt is needed. "-" reads standard input.

It says nothing about a client: whether a module, an argument, a package or a
path exists there only shows in a run.

Options:
  --json        one JSON object a file: file, ok, digest, states, errors, warnings
  --canonical   print the canonical form of each file that is accepted
  --high        print the high data that state.high gets for it
  --quiet       print nothing about a file that is accepted without warnings
  --help        this text

With one file, --canonical and --high print exactly the bytes, without a line
end; with several, one line a file. What there is to say goes to standard error
then. Output is coloured on a terminal unless NO_COLOR is set. Warnings (text
that looks like a secret, a requisite that points at nothing in the file) refuse
nothing.

Exit status: 0 all files are fine, 1 some are refused, 2 a usage error, a file
that can't be read, or output that can't be written.

Examples:
  masterd validate states/*.sls
  masterd validate --json states/web.sls | jq -r '.errors[].message'
  masterd validate --canonical web.sls | sha256sum      # the digest
  git show HEAD:states/web.sls | masterd validate -
`

// validateOptions are the flags of `masterd validate`.
type validateOptions struct {
	json, canonical, high, quiet bool
	several                      bool
	stdout, stderr               io.Writer
}

// runValidate is `masterd validate`. It gives the exit status.
func runValidate(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	o := validateOptions{stdout: out, stderr: stderr}
	f := flag.NewFlagSet("validate", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.canonical, "canonical", false, "")
	f.BoolVar(&o.high, "high", false, "")
	f.BoolVar(&o.quiet, "quiet", false, "")
	files, err := parseInterspersed(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, validateHelp)
		return validateFine
	case err != nil:
		return validateMisuse(stderr, err.Error())
	case len(files) == 0:
		return validateMisuse(stderr, "no file is named; - reads standard input")
	case btoi(o.json)+btoi(o.canonical)+btoi(o.high) > 1:
		return validateMisuse(stderr, "--json, --canonical and --high exclude each other")
	}
	if first := slices.Index(files, "-"); first >= 0 && slices.Contains(files[first+1:], "-") {
		return validateMisuse(stderr, "standard input can be read once")
	}
	o.several = len(files) > 1
	status := validateFine
	for _, name := range files {
		status = max(status, o.file(name, stdin))
	}
	if out.err != nil {
		fmt.Fprintf(stderr, "masterd validate: standard output can't be written: %s\n", reasonOf(out.err))
		return validateUsage
	}
	return status
}

// output remembers that it couldn't be written: a CI must not take what it
// never got to read for a success.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// parseInterspersed takes options before, between and behind the files, up to
// a "--".
func parseInterspersed(f *flag.FlagSet, args []string) (files []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		rest := f.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(files, rest...), nil
		}
		if len(rest) == 0 {
			return files, nil
		}
		files = append(files, rest[0])
		args = rest[1:]
	}
}

func validateMisuse(stderr io.Writer, message string) int {
	fmt.Fprintf(stderr, "masterd validate: %s\nmasterd validate --help says more\n", message)
	return validateUsage
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// file judges one file and gives the exit status that it alone would cause.
func (o *validateOptions) file(name string, stdin io.Reader) int {
	source, err := readSource(name, stdin)
	if err != nil {
		fmt.Fprintf(o.stderr, "masterd validate: %s: %s\n", printable(name), reasonOf(err))
		if o.json {
			o.object(name, nil, []*problem.Error{problem.New(problem.Usage, "the file can't be read: %s", reasonOf(err))})
		}
		return validateUsage
	}
	if name == "-" {
		name = "<stdin>"
	}
	doc, refused := state.Parse(source)
	status := validateFine
	if doc == nil {
		status = validateRefused
	}
	switch {
	case o.json:
		o.object(name, doc, refused)
	case o.canonical || o.high:
		o.report(o.stderr, name, source, doc, refused, true)
		if doc != nil {
			if err := o.form(doc); err != nil {
				fmt.Fprintf(o.stderr, "masterd validate: %s: %s\n", printable(name), problem.Outer(err).Message)
				return validateUsage
			}
		}
	default:
		o.report(o.stdout, name, source, doc, refused, o.quiet)
	}
	return status
}

// readSource reads no more than can be a source, so that a wrong file costs
// nothing.
func readSource(name string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // reading the named file is what the command is for
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		in = f
	}
	return io.ReadAll(io.LimitReader(in, state.MaxSourceBytes+1))
}

// reasonOf says why without repeating the name.
func reasonOf(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// form prints the canonical form or the high data.
func (o *validateOptions) form(doc *state.Document) error {
	out := doc.Canonical()
	if o.high {
		high, err := doc.High()
		if err != nil {
			return err
		}
		if out, err = high.MarshalJSON(); err != nil {
			return err
		}
	}
	if o.several {
		out = append(out, '\n')
	}
	_, _ = o.stdout.Write(out) // runValidate tells
	return nil
}

// validateObject is one line of --json: what state_validate answers, and the
// file.
type validateObject struct {
	File     string            `json:"file"`
	OK       bool              `json:"ok"`
	Digest   *string           `json:"digest"`
	States   int               `json:"states"`
	Errors   []validateFinding `json:"errors"`
	Warnings []validateFinding `json:"warnings"`
}

type validateFinding struct {
	Code    problem.Code `json:"code"`
	Message string       `json:"message"`
	Hint    *string      `json:"hint"`
	Line    *int         `json:"line"`
	Column  *int         `json:"column"`
}

func (o *validateOptions) object(name string, doc *state.Document, refused []*problem.Error) {
	v := validateObject{File: name, Errors: findings(refused), Warnings: []validateFinding{}}
	if doc != nil {
		digest := doc.Digest()
		v.OK, v.Digest, v.States, v.Warnings = true, &digest, doc.Declared(), findings(doc.Warnings())
	}
	e := json.NewEncoder(o.stdout)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // runValidate tells
}

func findings(list []*problem.Error) []validateFinding {
	out := make([]validateFinding, 0, len(list))
	for _, e := range list {
		f := validateFinding{Code: e.Code, Message: e.Message}
		if e.Hint != "" {
			f.Hint = &e.Hint
		}
		if e.Line > 0 {
			f.Line, f.Column = &e.Line, &e.Column
		}
		out = append(out, f)
	}
	return out
}

// report tells people about one file.
func (o *validateOptions) report(w io.Writer, name string, source []byte, doc *state.Document, refused []*problem.Error, quiet bool) {
	p := painter{w: w, on: colourful(w), name: printable(name)}
	lines := sourceLines(source)
	for _, e := range refused {
		p.finding("error", red, e, lines)
	}
	if doc == nil {
		return
	}
	for _, e := range doc.Warnings() {
		p.finding("warning", yellow, e, lines)
	}
	if quiet {
		return
	}
	results := "results"
	if doc.Declared() == 1 {
		results = "result"
	}
	fmt.Fprintf(w, "%s: %s, %d %s, digest %s (nothing is known about the client)\n",
		p.name, p.paint(green, "ok"), doc.Declared(), results, doc.Digest())
}

// sourceLines splits a source as the state language counts its lines.
func sourceLines(source []byte) [][]byte {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	return bytes.Split(bytes.ReplaceAll(source, []byte("\r"), []byte("\n")), []byte("\n"))
}

const (
	bold   = "1"
	red    = "1;31"
	yellow = "1;33"
	green  = "32"
	blue   = "34"
	cyan   = "36"
)

// painter writes findings, in colour where that is wanted.
type painter struct {
	w    io.Writer
	on   bool
	name string
}

func (p painter) paint(colour, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// colourful says whether w is a terminal whose user didn't object.
func colourful(w io.Writer) bool {
	if o, wrapped := w.(*output); wrapped {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p painter) finding(severity, colour string, e *problem.Error, lines [][]byte) {
	fmt.Fprintf(p.w, "%s %s %s %s\n",
		p.paint(bold, fmt.Sprintf("%s:%d:%d:", p.name, e.Line, e.Column)), p.paint(colour, severity+":"), e.Message,
		p.paint(cyan, "["+string(e.Code)+"]"))
	if e.Line >= 1 && e.Line <= len(lines) {
		number := strconv.Itoa(e.Line)
		text, caret := excerpt(lines[e.Line-1], e.Column)
		fmt.Fprintf(p.w, " %s %s\n", p.paint(blue, number+" |"), text)
		fmt.Fprintf(p.w, " %s %s\n", p.paint(blue, strings.Repeat(" ", len(number))+" |"), caret+p.paint(colour, "^"))
	}
	if e.Hint != "" {
		fmt.Fprintf(p.w, "   %s %s\n", p.paint(cyan, "hint:"), e.Hint)
	}
}

// excerpt gives the part of a line around a column that fits a terminal, and
// the blanks that put a caret below that column. Nothing in it can move the
// cursor.
func excerpt(line []byte, column int) (text, caret string) {
	const width, lead = 100, 40
	var t, c strings.Builder
	from := 1
	if column > width-lead {
		from = column - lead
		t.WriteString("...")
		c.WriteString("   ")
	}
	n := 0
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		line = line[size:]
		if n++; n < from {
			continue
		}
		if n >= from+width {
			t.WriteString("...")
			break
		}
		if r == '\t' {
			r = ' '
		} else if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		t.WriteRune(r)
		if n < column {
			if isWide(r) {
				c.WriteString("  ")
			} else if !unicode.Is(unicode.Mn, r) {
				c.WriteByte(' ')
			}
		}
	}
	return t.String(), c.String()
}

// wideSymbols are the wide characters among the narrow ones below U+2E80.
const wideSymbols = "⌚⌛⏩⏪⏫⏬⏰⏳◽◾☔☕♈♉♊♋♌♍♎♏♐♑♒♓♿⚓⚡⚪⚫⚽⚾⛄⛅⛎⛔⛪⛲⛳⛵⛺⛽✅✊✋✨❌❎❓❔❕❗➕➖➗➰➿⬛⬜⭐⭕"

// isWide says whether terminals give a character two columns.
func isWide(r rune) bool {
	return strings.ContainsRune(wideSymbols, r) || r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000)
}

// printable makes a file name safe to show.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, name)
}
