package state

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// fault is where and how a text stops being YAML, as the library tells it.
type fault struct {
	problem string // one of libyaml's fixed texts, which its ports share
	line    int    // where the construct began that went wrong, or 0
	offset  int    // how far the library had read: at most four bytes too far
}

// advice is what an author gets to read for one of libyaml's texts. near are
// the characters that the text is about; the last of them before the fault's
// offset is where the refusal points.
type advice struct {
	message, hint string
	near          string
	opened        bool // it is about the quote or bracket that was opened last
	line          bool // it is about a line rather than a word in it
	code          problem.Code
}

const (
	quoteIt     = "put the text in quotes"
	indentAlike = "indent the lines of one level alike, with spaces"
	closeIt     = "close it, and separate the items with commas"
	escapeIt    = "write the backslash twice, or use single quotes"
)

var advices = map[string]advice{
	"mapping values are not allowed in this context": {
		message: "a colon with a blank behind it can't stand here", near: ":",
		hint: "quote a text that contains a colon and a blank; " + indentAlike,
	},
	"mapping keys are not allowed in this context":                 {message: "a question mark can't stand here", hint: quoteIt, near: "?"},
	"block sequence entries are not allowed in this context":       {message: "a list item can't stand here", hint: "put the list below its key, one item a line", near: "-"},
	"found character that cannot start any token":                  {message: "a text can't begin with this character", hint: quoteIt, near: "%@`"},
	"found a tab character where an indentation space is expected": {message: "a tab can't indent", hint: "indent with spaces", near: "\t"},
	"found a tab character that violates indentation":              {message: "a tab can't indent", hint: "indent with spaces", near: "\t"},
	"did not find expected '-' indicator":                          {message: "this line doesn't fit the list above it", hint: indentAlike, line: true},
	"did not find expected key":                                    {message: "this doesn't fit the mapping it stands in", hint: indentAlike + "; a quoted text ends with its quote", line: true},
	"could not find expected ':'":                                  {message: "a key without a colon stands before this", hint: "write `key: value`; " + indentAlike},
	"found unexpected end of stream":                               {message: "this quote isn't closed", hint: "close it; a quote inside is written twice, or with a backslash in double quotes", opened: true},
	"found unexpected document indicator":                          {message: "a line with three dashes or dots can't stand inside quotes", hint: "indent it"},
	"did not find expected ',' or ']'":                             {message: "this list in brackets isn't closed, or lacks a comma", hint: closeIt, opened: true},
	"did not find expected ',' or '}'":                             {message: "this mapping in braces isn't closed, or lacks a comma", hint: closeIt, opened: true},
	"did not find expected node content":                           {message: "a value is missing here", hint: "write the value; quote a text that begins with a special character"},
	"did not find expected <document start>":                       {message: "this stands behind the end of the document", hint: indentAlike + ", beginning with the first one", line: true},
	"found unknown escape character":                               {message: "YAML doesn't know this escape", hint: escapeIt, near: `\`},
	"did not find expected hexdecimal number":                      {message: "YAML can't read this escape", hint: escapeIt, near: `\`},
	"found invalid Unicode character escape code":                  {message: "no character has this number", hint: escapeIt, near: `\`},
	"did not find expected comment or line break":                  {message: "nothing but a comment can stand behind | or > in its line", hint: "begin the text in the next line, or quote it", near: "|>"},
	"found an indentation indicator equal to 0":                    {message: "a block text can't be indented by 0", hint: "leave the 0 out", near: "0"},
	"did not find expected alphabetic or numeric character":        {message: "a text can't begin with this character", hint: quoteIt, near: "*&"},
}

// explain turns a fault into a refusal.
func explain(t *text, s *shape, f fault, r *refusals) {
	a, known := advices[f.problem]
	if !known {
		a = advice{message: "this isn't valid YAML", hint: "check quotes, colons and indentation"}
		if strings.Contains(f.problem, "tag") || strings.Contains(f.problem, "URI") || strings.Contains(f.problem, "'!'") {
			a = advice{message: "a tag isn't taken", hint: "remove it; quote a text that begins with an exclamation mark", near: "!", code: problem.Tag}
		}
	}
	if a.code == "" {
		a.code = problem.YAMLSyntax
	}
	p := t.position(f.offset - 1)
	if stray := s.stray(t); stray != (position{}) && !stray.before(pos(int(p.line)-2, 1)) && !p.before(stray) && (a.line || !known) {
		r.add(stray, problem.YAMLSyntax, "remove it, or quote the text that it belongs to", "this bracket closes nothing")
		return
	}
	last := s.lastOpen(t)
	if f.problem == "did not find expected node content" && f.offset >= len(t.bytes) && last != (position{}) {
		a = advice{message: "this bracket isn't closed", hint: closeIt, opened: true, code: a.code}
	}
	switch {
	case a.opened && f.offset >= len(t.bytes) && last != position{}:
		p = last
	case a.opened && f.line < int(p.line):
		// Of a parser's fault the library gives the line before.
		p = firstIn(t, f.line+1)
		if i := bytes.LastIndexAny(t.line(int(p.line)), "[{"); i >= 0 {
			p = pos(int(p.line), columnOf(t.line(int(p.line)), i))
		}
	case known && a.near == "%@`":
		if at := t.nearest(f.offset, "\t%@`"); at >= 0 {
			p = t.position(at)
			if t.bytes[at] == '\t' {
				a = advices["found a tab character that violates indentation"]
				a.code = problem.YAMLSyntax
			}
		}
	case a.near == "*&":
		p = t.position(t.nameAt(f.offset))
	case a.near != "":
		if at := t.nearest(f.offset, a.near); at >= 0 {
			p = t.position(at)
		}
	default:
		p = t.tokenAt(f.offset)
		if a.line && !bytes.ContainsAny(t.line(int(p.line)), "\"'") {
			p = firstIn(t, int(p.line))
		}
	}
	if a.near == ":" && t.lacksColon(int(p.line)) {
		a.hint = "end the line above with a colon if it is a key; " + a.hint
	}
	r.add(p, a.code, a.hint, "%s", a.message)
}

// lacksColon says whether the line above may be a key without its colon.
func (t *text) lacksColon(line int) bool {
	above, l := t.line(line-1), t.line(line)
	indent := len(above) - len(bytes.TrimLeft(above, " "))
	above, _, _ = bytes.Cut(above, []byte(" #"))
	above = bytes.TrimSpace(above)
	return len(above) > 0 && len(l)-len(bytes.TrimLeft(l, " ")) > indent && !bytes.ContainsAny(above, ":#\"'[{|>")
}

// position gives line and column of a byte.
func (t *text) position(offset int) position {
	offset = max(0, min(offset, len(t.bytes)))
	line, exact := slices.BinarySearch(t.lines, offset)
	if exact {
		line++
	}
	l := t.line(line)
	return pos(line, columnOf(l, min(len(l), offset-t.lines[line-1])))
}

// nearest looks a few bytes back from an offset for one of chars.
func (t *text) nearest(offset int, chars string) int {
	for i := min(offset, len(t.bytes)) - 1; i >= 0 && i >= offset-6; i-- {
		if strings.IndexByte(chars, t.bytes[i]) >= 0 {
			return i
		}
	}
	return -1
}

// nameAt looks back in the line for the asterisk or ampersand that something
// begins with.
func (t *text) nameAt(offset int) int {
	last := min(offset, len(t.bytes)) - 1
	for i := last; i >= 0 && t.bytes[i] != '\n'; i-- {
		if c := t.bytes[i]; (c == '*' || c == '&') && (i == 0 || isBlank(t.bytes[i-1]) || strings.IndexByte("[{,", t.bytes[i-1]) >= 0) {
			return i
		}
	}
	return last
}

// tokenAt gives the beginning of the word that ends at an offset, or of the
// last line with anything in it.
func (t *text) tokenAt(offset int) position {
	i := min(offset, len(t.bytes)) - 1
	for i > 0 && isBlank(t.bytes[i]) {
		i--
	}
	if i < 0 {
		return pos(1, 1)
	}
	for i > 0 && !isBlank(t.bytes[i-1]) {
		i--
	}
	return t.position(i)
}

// firstIn points at the first thing in a line.
func firstIn(t *text, line int) position {
	line = max(1, min(line, len(t.lines)))
	l := t.line(line)
	return pos(line, len(l)-len(bytes.TrimLeft(l, " \t"))+1)
}

// splitFault reads the text of a library error: "yaml: line 3: problem".
func splitFault(message string) (problem string, line int) {
	message = strings.TrimPrefix(message, "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, tail, ok := strings.Cut(rest, ": "); ok {
			line, _ = strconv.Atoi(number)
			return tail, line
		}
	}
	return message, 0
}

// findAlias looks for an alias that the library only names.
func findAlias(t *text, name string) position {
	want := []byte("*" + name)
	for n := 1; n <= len(t.lines); n++ {
		l := t.line(n)
		for from := 0; ; {
			i := bytes.Index(l[from:], want)
			if i < 0 {
				break
			}
			i += from
			_, size := utf8.DecodeRune(l[i:])
			if i == 0 || bytes.IndexByte([]byte(" \t[{,"), l[i-1]) >= 0 {
				return pos(n, columnOf(l, i))
			}
			from = i + size
		}
	}
	return pos(1, 1)
}
