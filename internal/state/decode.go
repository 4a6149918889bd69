package state

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Decode is the strict inverse of Canonical. It takes nothing that Canonical
// couldn't have written: every check of the language runs again, and what
// comes out has to be the same bytes.
func Decode(canonical []byte) (*Document, error) {
	if len(canonical) > MaxCanonicalBytes {
		return nil, problem.New(problem.TooLargeCanonical, "the canonical form has more than %d bytes", MaxCanonicalBytes)
	}
	notOurs := problem.New(problem.BadBody, "this isn't the canonical form of a document").
		WithHint("make it with a program of the same version")
	if !utf8.Valid(canonical) {
		return nil, notOurs
	}
	head := []byte(`{"version":` + strconv.Itoa(Version) + `,"states":`)
	rest, ok := bytes.CutPrefix(canonical, head)
	if !ok || len(rest) == 0 || rest[len(rest)-1] != '}' {
		return nil, notOurs
	}
	var r refusals
	p := reader{b: rest[:len(rest)-1], r: &r}
	root, ok := p.value(1)
	if !ok || p.i != len(p.b) {
		return nil, notOurs
	}
	d := check(&root, &r)
	if !r.empty() {
		return nil, r.list[0]
	}
	if err := d.seal(); err != nil {
		return nil, err
	}
	if !bytes.Equal(d.canonical, canonical) {
		return nil, notOurs
	}
	return d, nil
}

// reader reads JSON values. It may be lenient wherever Decode's comparison of
// bytes isn't, but never about depth, keys and numbers.
type reader struct {
	b []byte
	i int
	r *refusals
}

func (p *reader) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *reader) word(w string) bool {
	if !bytes.HasPrefix(p.b[p.i:], []byte(w)) {
		return false
	}
	p.i += len(w)
	return true
}

func (p *reader) value(depth int) (v value, ok bool) {
	switch p.peek() {
	case '{':
		if depth > MaxDepth {
			return v, false
		}
		if p.word(mapMark) {
			return p.pairs(depth)
		}
		return p.object(depth)
	case '[':
		if depth > MaxDepth {
			return v, false
		}
		return p.list(depth)
	case '"':
		v.kind = kindText
		v.text, ok = p.text()
		return v, ok
	case 'n':
		return v, p.word("null")
	case 't':
		v.kind, v.num = kindBool, 1
		return v, p.word("true")
	case 'f':
		v.kind = kindBool
		return v, p.word("false")
	default:
		return p.number()
	}
}

func (p *reader) object(depth int) (v value, ok bool) {
	v.kind = kindMap
	p.i++ // {
	if p.word("}") {
		return v, true
	}
	for {
		k := value{kind: kindText}
		if p.peek() != '"' {
			return v, false
		}
		if k.text, ok = p.text(); !ok || !p.word(":") {
			return v, false
		}
		x, ok := p.value(depth + 1)
		if !ok {
			return v, false
		}
		v.items = append(v.items, k, x)
		if p.word("}") {
			break
		}
		if !p.word(",") {
			return v, false
		}
	}
	checkKeys(&v, depth, p.r)
	return v, true
}

func (p *reader) pairs(depth int) (v value, ok bool) {
	v.kind = kindMap
	for {
		if !p.word("[") {
			return v, false
		}
		k, ok := p.value(depth + 1)
		if !ok || !p.word(",") {
			return v, false
		}
		x, ok := p.value(depth + 1)
		if !ok || !p.word("]") {
			return v, false
		}
		v.items = append(v.items, k, x)
		if p.word("]}") {
			break
		}
		if !p.word(",") {
			return v, false
		}
	}
	checkKeys(&v, depth, p.r)
	return v, true
}

func (p *reader) list(depth int) (v value, ok bool) {
	v.kind = kindList
	p.i++ // [
	if p.word("]") {
		return v, true
	}
	for {
		x, ok := p.value(depth + 1)
		if !ok {
			return v, false
		}
		v.items = append(v.items, x)
		if p.word("]") {
			return v, true
		}
		if !p.word(",") {
			return v, false
		}
	}
}

func (p *reader) text() (string, bool) {
	p.i++ // "
	end := bytes.IndexAny(p.b[p.i:], `"\`)
	if end < 0 {
		return "", false
	}
	if p.b[p.i+end] == '"' {
		s := string(p.b[p.i : p.i+end])
		p.i += end + 1
		return s, !badText(s)
	}
	var out []byte
	for p.i < len(p.b) {
		c := p.b[p.i]
		p.i++
		switch c {
		case '"':
			s := string(out)
			return s, !badText(s)
		case '\\':
			e := p.peek()
			p.i++
			switch e {
			case '"', '\\':
			case 'n':
				e = '\n'
			case 'r':
				e = '\r'
			case 't':
				e = '\t'
			default:
				return "", false
			}
			out = append(out, e)
		default:
			out = append(out, c)
		}
	}
	return "", false
}

func (p *reader) number() (v value, ok bool) {
	from := p.i
	n := span(string(p.b[from:min(len(p.b), from+32)]), "0123456789+-.e")
	if n == 0 {
		return v, false
	}
	t := string(p.b[from : from+n])
	p.i += n
	if span(t, "0123456789-") == n {
		v.kind = kindInt
		if t[0] == '-' {
			v.neg, t = true, t[1:]
		}
		u, err := strconv.ParseUint(t, 10, 64)
		if err != nil || v.neg && (u == 0 || u > 1<<63) {
			return v, false
		}
		v.num = u
		return v, true
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return v, false
	}
	v.kind, v.num = kindFloat, math.Float64bits(f)
	return v, true
}
