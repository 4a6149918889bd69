package state

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// nodeKind is the shape of a node.
type nodeKind uint8

const (
	nodeScalar nodeKind = iota
	nodeList
	nodeMap
	nodeAlias
)

// node is one node of the syntax tree. The children of a mapping alternate
// between keys and values.
type node struct{ n *yaml.Node }

func (n node) pos() position    { return pos(n.n.Line, n.n.Column) }
func (n node) len() int         { return len(n.n.Content) }
func (n node) child(i int) node { return node{n.n.Content[i]} }
func (n node) flow() bool       { return n.n.Style&yaml.FlowStyle != 0 }

func (n node) kind() nodeKind {
	switch n.n.Kind {
	case yaml.ScalarNode:
		return nodeScalar
	case yaml.SequenceNode:
		return nodeList
	case yaml.AliasNode:
		return nodeAlias
	case yaml.MappingNode, yaml.DocumentNode: // the library nests no documents
	}
	return nodeMap
}

// tree is the syntax tree of one document. Its nodes have to be entered in
// source order, each once: the tree goes through the source beside them,
// because the library doesn't tell everything (a lone "!" leaves no trace in
// its nodes).
type tree struct {
	root node
	text *text
	mask mask
	r    *refusals

	line, column, offset int // a place at or before the node at hand
}

// parseYAML gives the syntax tree of the one document of t, or nil if there is
// none.
func parseYAML(t *text, s *shape, r *refusals) *tree {
	var doc yaml.Node
	m := maskFor(t)
	masked := m.apply(t.bytes)
	d := drip{b: masked}
	if err := decodeYAML(&d, &doc); err != nil {
		if len(r.mute) == 0 {
			refuseSyntax(t, s, m, &d, err, r)
		}
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		r.add(position{1, 1}, problem.SourceEmpty, "declare a state", "the source declares no state")
		return nil
	}
	return &tree{root: node{doc.Content[0]}, text: t, mask: m, r: r, line: 1, column: 1}
}

// enter notes what only shows in the syntax (anchors, aliases, tags) and gives
// the text of a scalar; plain is a scalar without quotes that is no block
// either. flow says whether the node stands inside brackets.
func (t *tree) enter(n node, flow bool) (text string, plain bool) {
	rest := t.marks(n.n)
	if n.n.Kind != yaml.ScalarNode {
		if flow && n.n.Kind == yaml.MappingNode && len(rest) > 0 && rest[0] == '?' {
			// The library drops a token behind it.
			t.r.add(n.pos(), problem.YAMLSyntax, "write `{key: value}`", "a question mark can't stand here")
		}
		return "", false
	}
	plain = n.n.Style&notPlain == 0
	text, ok := t.mask.undo(n.n.Value, n.n.Style)
	switch {
	case !ok:
		// The first one from here on is it.
		i, _ := slices.BinarySearchFunc(t.mask.tabs, t.offset, func(tab commentTab, offset int) int { return tab.offset - offset })
		refuseTab(t.text, t.mask.tabs[min(i, len(t.mask.tabs)-1)].offset, t.r)
	case plain && flow:
		t.plainInFlow(n, text)
	case n.n.Style&yaml.DoubleQuotedStyle != 0:
		t.escapes(n, rest)
	}
	return text, plain
}

// mask hides from the library what it reads otherwise than Salt's loader does,
// behind characters that mean nothing in YAML and don't occur in the source.
// Every character stays one character, so positions don't move. Hidden are a
// question mark that no blank follows (the library takes it for an indicator
// inside brackets), an escaped slash (which it doesn't know), and the tabs of
// commentTabs (which it skips where Salt's loader stops).
type mask struct {
	question, backslash, slash, tab, lineTab rune // 0: nothing to hide
	tabs                                     []commentTab
}

// commentTab is a tab before a comment: between an indicator and a "#" in its
// line, or (leads) in front of a line behind a comment, with nothing else in it
// but another comment.
type commentTab struct {
	offset int
	leads  bool
}

// maskFor picks characters from the private use areas.
func maskFor(t *text) mask {
	b := t.bytes
	m := mask{tabs: commentTabs(t)}
	question, slash := false, false
	for i, c := range b {
		question = question || c == '?' && insideText(b, i)
		slash = slash || c == '\\' && i+1 < len(b) && b[i+1] == '/'
	}
	pick := rune(0xe000)
	next := func() rune {
		for bytes.ContainsRune(b, pick) {
			if pick++; pick == 0xf900 {
				pick = 0xf0000 // 65,534 more: there is always a free one
			}
		}
		pick++
		return pick - 1
	}
	if question {
		m.question = next()
	}
	if slash {
		m.backslash, m.slash = next(), next()
	}
	if len(m.tabs) > 0 {
		m.tab, m.lineTab = next(), next()
	}
	return m
}

// commentTabs lists them in source order.
func commentTabs(t *text) []commentTab {
	if bytes.IndexByte(t.bytes, '\t') < 0 || bytes.IndexByte(t.bytes, '#') < 0 {
		return nil
	}
	var tabs []commentTab
	add := func(from, to int, leads bool) {
		for i := from; i < to; i++ {
			if t.bytes[i] == '\t' {
				tabs = append(tabs, commentTab{i, leads})
			}
		}
	}
	behind := false // the last line that wasn't blank had a comment, or looked so
	for n, start := range t.lines {
		l := t.line(n + 1)
		first := 0
		for first < len(l) && isBlank(l[first]) {
			first++
		}
		if behind && (first == len(l) || l[first] == '#') {
			add(start, start+first, true)
		}
		if first == len(l) {
			continue
		}
		behind = l[first] == '#'
		blanks := first // where the blanks before i began
		for i := first; i < len(l); i++ {
			switch {
			case isBlank(l[i]):
				continue
			case l[i] == '#' && blanks < i:
				behind = true
				if loneIndicator(l[:blanks]) {
					add(start+blanks, start+i, false)
				}
			}
			blanks = i + 1
		}
	}
	return tabs
}

// loneIndicator says whether a line ends with an indicator that stands alone.
// Behind a key, as in "a:", both loaders skip tabs.
func loneIndicator(l []byte) bool {
	n := len(l)
	return n > 0 && bytes.IndexByte([]byte("-?:"), l[n-1]) >= 0 && (n == 1 || isBlank(l[n-2]))
}

// insideText says whether the question mark at i can't be an indicator for
// Salt's loader, because a text goes on before or behind it.
func insideText(b []byte, i int) bool {
	if i+1 < len(b) && !isBlank(b[i+1]) {
		return true
	}
	return i > 0 && !isBlank(b[i-1]) && bytes.IndexByte([]byte("[]{},:'\""), b[i-1]) < 0
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// apply gives the text that the library reads.
func (m mask) apply(b []byte) []byte {
	if m.question == 0 && m.slash == 0 && m.tab == 0 {
		return b
	}
	out := make([]byte, 0, len(b)+len(b)/8)
	escaped := false // the character before is a backslash that begins an escape
	tabs := m.tabs
	for i, c := range b {
		switch {
		case m.slash != 0 && escaped && c == '/':
			out = out[:len(out)-1]
			out = utf8.AppendRune(utf8.AppendRune(out, m.backslash), m.slash)
		case c == '?' && insideText(b, i):
			out = utf8.AppendRune(out, m.question)
		case len(tabs) > 0 && tabs[0].offset == i:
			if tabs[0].leads {
				out = utf8.AppendRune(out, m.lineTab)
			} else {
				out = utf8.AppendRune(out, m.tab)
			}
			tabs = tabs[1:]
		default:
			out = append(out, c)
		}
		escaped = c == '\\' && !escaped
	}
	return out
}

// undo gives the text that the source has. It is false if there was a tab that
// Salt's loader would have stopped at, or might have read otherwise.
func (m mask) undo(s string, style yaml.Style) (string, bool) {
	if m.question != 0 && strings.ContainsRune(s, m.question) {
		s = strings.ReplaceAll(s, string(m.question), "?")
	}
	if m.slash != 0 && strings.ContainsRune(s, m.slash) {
		was := `\/`
		if style&yaml.DoubleQuotedStyle != 0 {
			was = "/"
		}
		s = strings.ReplaceAll(s, string(m.backslash)+string(m.slash), was)
	}
	if m.tab == 0 {
		return s, true
	}
	if strings.ContainsRune(s, m.lineTab) {
		// Fine only in a literal text, where the tab stays what it is, and not
		// in its first line, which tells the indentation.
		head, _, _ := strings.Cut(strings.TrimLeft(s, "\n"), "\n")
		if style&yaml.LiteralStyle == 0 || strings.ContainsRune(head, m.lineTab) {
			return s, false
		}
		s = strings.ReplaceAll(s, string(m.lineTab), "\t")
	}
	if strings.ContainsRune(s, m.tab) {
		if style&notPlain == 0 {
			return s, false
		}
		s = strings.ReplaceAll(s, string(m.tab), "\t")
	}
	return s, true
}

const notPlain = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// decodeYAML keeps the library's panics inside.
func decodeYAML(r io.Reader, doc *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("the parser gave up")
		}
	}()
	d := yaml.NewDecoder(r)
	if err := d.Decode(doc); err != nil {
		return err
	}
	// The library stops behind the first document and leaves the rest unread.
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errTrailing
		}
		return err
	}
	return nil
}

var errTrailing = errors.New("did not find expected <document start>")

// at gives what stands in the source at a node. Nodes come in source order.
func (t *tree) at(line, column int) []byte {
	if line != t.line {
		if line < 1 || line > len(t.text.lines) {
			return nil
		}
		t.line, t.column, t.offset = line, 1, t.text.lines[line-1]
	}
	if column < t.column {
		t.column, t.offset = 1, t.text.lines[line-1]
	}
	b := t.text.bytes
	for t.column < column && t.offset < len(b) {
		_, size := utf8.DecodeRune(b[t.offset:])
		t.offset += size
		t.column++
	}
	return b[t.offset:]
}

// plainInFlow refuses what the library takes and Salt's loader doesn't: a
// colon right before another indicator, and a question mark in front, which
// Salt's loader takes for an indicator.
func (t *tree) plainInFlow(n node, text string) {
	if strings.HasPrefix(text, "?") {
		t.r.add(n.pos(), problem.YAMLSyntax, "quote the text",
			"this isn't valid YAML: inside brackets, no text can begin with a question mark")
	}
	if strings.HasSuffix(text, ":") || strings.Contains(text, ":?") {
		t.r.add(n.pos(), problem.YAMLSyntax, "put a blank behind the colon, or quote the text",
			"this isn't valid YAML: inside brackets, a colon needs a blank or a text behind it")
	}
}

// escapes refuses an escape that the library knows and Salt's loader doesn't.
// rest is the source from the opening quote on.
func (t *tree) escapes(n node, rest []byte) {
	for i := 1; i < len(rest) && rest[i] != '"'; i++ {
		if rest[i] != '\\' || i+1 == len(rest) {
			continue
		}
		if i++; rest[i] == '\'' {
			t.r.add(n.pos(), problem.YAMLSyntax, "write the quote without a backslash",
				"this isn't valid YAML: a single quote isn't escaped in double quotes")
			return
		}
	}
}

// marks notes anchors, aliases and tags of a node, and gives the source from
// the node on.
func (t *tree) marks(n *yaml.Node) []byte {
	p := pos(n.Line, n.Column)
	if n.Kind == yaml.AliasNode {
		t.r.add(p, problem.Alias, "write the value again", "an alias isn't taken")
		return nil
	}
	rest := t.at(n.Line, n.Column)
	anchor := n.Anchor != "" || len(rest) > 0 && rest[0] == '&'
	tag := n.Style&yaml.TaggedStyle != 0 || len(rest) > 0 && rest[0] == '!'
	if anchor {
		t.r.add(p, problem.Anchor, "remove it and write the value where it is needed", "an anchor isn't taken")
	}
	if tag {
		t.r.add(p, problem.Tag, "remove it; quote the value if it is text", "a tag isn't taken")
	}
	return rest
}

// drip hands a text to the library in small pieces, so that it can be told
// afterwards how far the library had read when it stopped. The library's own
// errors have at best a line.
type drip struct {
	b    []byte
	i    int
	slow int // from here on byte by byte; 0 means all of it at once
}

func (d *drip) Read(p []byte) (int, error) {
	if d.i == len(d.b) {
		return 0, io.EOF
	}
	n := len(p)
	if d.slow > 0 {
		n = 1
		if d.i < d.slow {
			n = min(len(p), d.slow-d.i)
		}
	}
	n = copy(p[:min(n, len(p))], d.b[d.i:])
	d.i += n
	return n, nil
}

// refuseSyntax says where the YAML goes wrong. It parses once more to find out
// how far the library gets.
func refuseSyntax(t *text, s *shape, m mask, read *drip, err error, r *refusals) {
	masked, f := read.b, fault{}
	f.problem, f.line = splitFault(err.Error())
	if name, ok := strings.CutPrefix(f.problem, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		r.add(findAlias(t, name), problem.Alias, "write the value again", "an alias isn't taken")
		return
	}
	if strings.HasPrefix(f.problem, "exceeded max depth") {
		r.add(pos(1, 1), problem.TooDeep, "write it flatter", "mappings and lists nest more than %d deep", MaxDepth)
		return
	}
	// The library buffers less than a thousand bytes.
	d := drip{b: masked, slow: max(1, read.i-2048)}
	_ = decodeYAML(&d, &yaml.Node{})
	// Masking may have made characters longer: count them, not bytes.
	f.offset = len(t.bytes) - len(masked) + d.i
	if len(masked) != len(t.bytes) {
		f.offset = sameRune(t.bytes, masked, d.i)
	}
	for _, tab := range slices.Backward(m.tabs) {
		if tab.offset > f.offset {
			continue
		}
		if t.position(tab.offset).line+2 >= t.position(f.offset-1).line {
			refuseTab(t, tab.offset, r)
			return
		}
		break
	}
	explain(t, s, f, r)
}

// refuseTab refuses a tab that Salt's loader stops at.
func refuseTab(t *text, offset int, r *refusals) {
	r.add(t.position(offset), problem.YAMLSyntax, "indent comments with spaces", "a tab before a comment can't stand here")
}

// sameRune gives the offset in a of the character that has offset i in b,
// where both have the same number of characters.
func sameRune(a, b []byte, i int) int {
	n := utf8.RuneCount(b[:i])
	at := 0
	for ; n > 0 && at < len(a); n-- {
		_, size := utf8.DecodeRune(a[at:])
		at += size
	}
	return at
}
