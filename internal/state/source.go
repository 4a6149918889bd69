package state

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// text is a source that passed the checks of this file: valid UTF-8 without
// BOM, with "\n" as its only line break and Jinja blanked out.
type text struct {
	bytes []byte
	lines []int // where each line begins
}

// line gives one line, counted from 1, without its line break.
func (t *text) line(n int) []byte {
	if n < 1 || n > len(t.lines) {
		return nil
	}
	end := len(t.bytes)
	if n < len(t.lines) {
		end = t.lines[n] - 1
	}
	return t.bytes[t.lines[n-1]:end]
}

// readSource checks a source as far as that needs no YAML. It gives nil when
// nothing further can be said about it.
func readSource(source []byte, r *refusals) *text {
	if len(source) > MaxSourceBytes {
		r.add(position{1, 1}, problem.SourceTooLarge, "split it into several definitions",
			"the source has more than %d bytes", MaxSourceBytes)
		return nil
	}
	t := &text{bytes: normalize(source)}
	t.lines = lineStarts(t.bytes)
	if !checkCharacters(t, r) {
		return nil
	}
	if bytes.HasPrefix(t.bytes, []byte("#!")) {
		r.add(position{1, 1}, problem.RendererDirective, "remove the line: a source is always plain YAML",
			"a renderer directive isn't taken")
	}
	blankJinja(t, r)
	if !checkDocuments(t, r) {
		return nil
	}
	return t
}

// normalize gives a copy without BOM and with "\n" for every line break; YAML
// does the same inside every scalar.
func normalize(source []byte) []byte {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	out := make([]byte, 0, len(source)+1)
	for {
		i := bytes.IndexByte(source, '\r')
		if i < 0 {
			return append(out, source...)
		}
		out = append(out, source[:i]...)
		out = append(out, '\n')
		source = source[i+1:]
		if len(source) > 0 && source[0] == '\n' {
			source = source[1:]
		}
	}
}

// columnOf gives the column of byte i of a line.
func columnOf(l []byte, i int) int { return utf8.RuneCount(l[:i]) + 1 }

func lineStarts(b []byte) []int {
	lines := make([]int, 1, bytes.Count(b, []byte{'\n'})+1)
	for i, c := range b {
		if c == '\n' {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// checkCharacters refuses what no faithful text can hold. It is false if the
// rest can't be read.
func checkCharacters(t *text, r *refusals) bool {
	b := t.bytes
	ok := true
	p := position{1, 1}
	for i := 0; i < len(b); {
		c := b[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '\n':
				p = position{p.line + 1, 1}
				i++
				continue
			case c < ' ' && c != '\t' || c == 0x7f:
				r.add(p, problem.SourceEncoding, `write it as an escape in double quotes, if YAML has one: "\t", "\r", "\n"`,
					"a control character (U+%04X) isn't taken", c)
				ok = false
			}
			i++
			p.column++
			continue
		}
		u, size := utf8.DecodeRune(b[i:])
		switch {
		case u == utf8.RuneError && size == 1:
			r.add(p, problem.SourceEncoding, "save the source as UTF-8", "the source isn't valid UTF-8 here")
			return false
		case u <= 0x9f, u == 0xfeff, u == 0xfffe, u == 0xffff:
			r.add(p, problem.SourceEncoding, "remove it; most editors can show invisible characters",
				"an invisible character (U+%04X) isn't taken", u)
			ok = false
		case u == 0x2028, u == 0x2029:
			// YAML 1.1 takes them for line breaks, people and editors don't.
			r.add(p, problem.SourceEncoding, `write "\L" or "\P" in double quotes, or break the line`,
				"a Unicode line separator (U+%04X) isn't taken", u)
			ok = false
		}
		i += size
		p.column++
	}
	return ok
}

// jinjaTags are the words that begin a Jinja statement, those that Salt adds
// included.
var jinjaTags = map[string]bool{}

func init() {
	for _, w := range strings.Fields(`autoescape block break call continue do elif else endautoescape endblock
		endcall endfilter endfor endif endmacro endraw endset endtrans endwith extends filter for from if import
		import_json import_text import_yaml include load_json load_text load_yaml macro pluralize profile raw set
		trans with`) {
		jinjaTags[w] = true
	}
}

// blankJinja refuses Jinja and blanks it out, so that what follows can still
// be read. Jinja knows neither quotes nor comments of YAML, so all of the
// source counts. An opening that Jinja would find no end for is only a
// template where it is unmistakably meant as one: shell text such as `${#a[@]}`
// or `date +{%Y}` stays what it is.
func blankJinja(t *text, r *refusals) {
	b := t.bytes
	if !bytes.Contains(b, []byte("{{")) && !bytes.Contains(b, []byte("{%")) && !bytes.Contains(b, []byte("{#")) {
		return
	}
	last := map[byte]int{
		'{': bytes.LastIndex(b, []byte("}}")),
		'%': bytes.LastIndex(b, []byte("%}")),
		'#': bytes.LastIndex(b, []byte("#}")),
	}
	closers := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}
	names := map[byte]string{'{': "expression", '%': "statement", '#': "comment"}
	p := position{1, 1}
	muted := map[int32]bool{}
	hint, hinted := "", int32(0) // and the line that it is for
	for i := 0; i < len(b); {
		if b[i] == '\n' {
			p = position{p.line + 1, 1}
			i++
			continue
		}
		if b[i] != '{' || i+1 == len(b) || names[b[i+1]] == "" {
			_, size := utf8.DecodeRune(b[i:])
			i += size
			p.column++
			continue
		}
		c := b[i+1]
		closed := last[c] >= i+2
		if !closed && !meantAsJinja(c, b[i+2:]) {
			i++
			p.column++
			continue
		}
		if p.line != hinted {
			hint, hinted = jinjaHint(t.line(int(p.line))), p.line
		}
		r.add(p, problem.Jinja, hint,
			"Jinja isn't taken (a template's %s begins here)", names[c])
		end := len(b)
		if closed {
			end = i + 2 + bytes.Index(b[i+2:], []byte(closers[c])) + 2
		} else if n := bytes.IndexByte(b[i:], '\n'); n >= 0 {
			end = i + n
		}
		fill := byte('x')
		if c != '{' {
			fill = ' '
		}
		for ; i < end; i++ {
			muted[p.line] = true
			switch {
			case b[i] == '\n':
				p = position{p.line + 1, 1}
			case b[i] < utf8.RuneSelf:
				b[i] = fill
				p.column++
			default:
				// Keep the bytes of a longer character: columns count
				// characters, and everything here is muted anyway.
				if utf8.RuneStart(b[i]) {
					p.column++
				}
			}
		}
	}
	if len(muted) > 0 {
		r.mute = muted
	}
}

// jinjaHint says how to write a line without Jinja.
func jinjaHint(l []byte) string {
	if bytes.HasPrefix(bytes.TrimLeft(l, " \t"), []byte("#")) {
		return "templates aren't rendered, and Salt would render comments too: put a blank between the braces, or leave the line out"
	}
	return `templates aren't rendered: write the value itself; for the literal text, put it in double quotes and write \x7b for the brace`
}

// meantAsJinja judges an opening without an end.
func meantAsJinja(c byte, rest []byte) bool {
	if len(rest) > 0 && (rest[0] == '-' || rest[0] == '+') {
		rest = rest[1:]
	}
	trimmed := bytes.TrimLeft(rest, " \t")
	switch c {
	case '{':
		return len(trimmed) < len(rest)
	case '%':
		n := 0
		for n < len(trimmed) && (trimmed[n] == '_' || trimmed[n] >= 'a' && trimmed[n] <= 'z') {
			n++
		}
		return jinjaTags[string(trimmed[:n])]
	default:
		return false
	}
}

// checkDocuments refuses directives and a second document. Their markers are
// markers wherever they stand at the beginning of a line, so this needs no
// parser. It is false if there is nothing to parse.
func checkDocuments(t *text, r *refusals) bool {
	content, ended, started := false, false, false
	for n := 1; n <= len(t.lines); n++ {
		l := t.line(n)
		p := pos(n, 1)
		switch {
		case isMarker(l, "---"):
			if content || ended || started {
				r.add(p, problem.SeveralDocuments, "put every state into one document, without the line",
					"a second document begins here")
				return false
			}
			started = true
			if rest := bytes.TrimSpace(l[3:]); len(rest) > 0 && rest[0] != '#' {
				content = true
			}
		case isMarker(l, "..."):
			ended = true
			// Blanks, so that the parser sees the end of the document only.
		case !content && len(l) > 0 && l[0] == '%':
			r.add(p, problem.YAMLDirective, "remove the line", "a YAML directive isn't taken")
			return false
		default:
			rest := bytes.TrimLeft(l, " \t")
			if len(rest) == 0 || rest[0] == '#' {
				continue
			}
			if ended {
				r.add(p, problem.SeveralDocuments, "remove the line that ends the first one",
					"a second document begins here")
				return false
			}
			content = true
		}
	}
	if !content {
		if r.empty() {
			r.add(position{1, 1}, problem.SourceEmpty, "declare a state, for example `greeting: {test.nop: []}` in two or more lines",
				"the source declares no state")
		}
		return false
	}
	return true
}

func isMarker(l []byte, marker string) bool {
	return bytes.HasPrefix(l, []byte(marker)) && (len(l) == 3 || l[3] == ' ' || l[3] == '\t')
}
