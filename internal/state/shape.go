package state

import "github.com/oduflow/oduflow-salt/internal/problem"

// shape is a rough look at a text before the parser gets it: a parser needs
// memory and time for every bracket and comma, and a hostile source has
// nothing else. It counts only what is certain to become a value, so it never
// refuses what the exact check in resolve.go would take; what it overlooks
// costs time, not correctness.
type shape struct {
	r      *refusals
	values int
	flow   int  // brackets that are open
	braces uint // which of them are braces, the innermost in the lowest bit
	closed bool // a bracket has just been closed, so that no text can go on
	quote  byte // the quote that is open, or 0
	block  int  // indentation of the line that began a block scalar, or -1

	quoteAt place
	strayAt place // the first bracket behind such a one that closes nothing
	openAt  [MaxDepth]place
}

// place is a byte of a line. Columns count characters, which takes time that is
// only spent for a refusal.
type place struct{ line, i int }

// checkShape gives nil if the text is too deep or too crowded to be parsed.
func checkShape(t *text, r *refusals) *shape {
	s := &shape{r: r, block: -1}
	for n := 1; n <= len(t.lines); n++ {
		if !s.line(t.line(n), n) {
			return nil
		}
	}
	return s
}

// stray gives the first bracket that closes nothing.
func (s *shape) stray(t *text) position {
	if s.strayAt.line == 0 {
		return position{}
	}
	return pos(s.strayAt.line, columnOf(t.line(s.strayAt.line), s.strayAt.i))
}

// lastOpen gives the quote or bracket that was opened last and never closed.
func (s *shape) lastOpen(t *text) position {
	var p place
	switch {
	case s.quote != 0:
		p = s.quoteAt
	case s.flow > 0:
		p = s.openAt[s.flow-1]
	default:
		return position{}
	}
	return pos(p.line, columnOf(t.line(p.line), p.i))
}

func (s *shape) line(l []byte, number int) bool {
	indent := 0
	for indent < len(l) && l[indent] == ' ' {
		indent++
	}
	if s.block >= 0 {
		if indent == len(l) || indent > s.block {
			return true
		}
		s.block = -1
	}
	start := true // a token may begin here
	dashes, header := 0, 0
	for i := indent; i < len(l); i++ {
		c := l[i]
		if s.quote != 0 {
			switch {
			case c == '\\' && s.quote == '"':
				i++
			case c == s.quote:
				s.quote, start = 0, false
			}
			continue
		}
		ends := i+1 == len(l) || l[i+1] == ' ' || l[i+1] == '\t'
		switch {
		case c == ' ' || c == '\t':
			continue
		case c == '#' && (i == 0 || l[i-1] == ' ' || l[i-1] == '\t'):
			i = len(l)
			continue
		case start && (c == '"' || c == '\''):
			s.quote = c
			s.quoteAt = place{number, i}
		case (c == '[' || c == '{') && (start || s.flow > 0):
			s.flow++
			s.braces <<= 1
			if c == '{' {
				s.braces |= 1
			}
			start = true
			if s.flow > MaxDepth {
				return s.tooDeep(l, number, i)
			}
			s.openAt[s.flow-1] = place{number, i}
		case (c == ']' || c == '}') && s.flow > 0:
			s.flow--
			s.braces >>= 1
			start, s.closed = false, true
			continue
		case (c == ']' || c == '}') && s.closed:
			if s.strayAt.line == 0 {
				s.strayAt = place{number, i}
			}
			start = false
		case c == ',' && s.flow > 0:
			s.values += 1 + int(s.braces&1)
			start = true
		case c == ':' && ends:
			if !start && (s.flow == 0 || s.braces&1 == 0) {
				s.values += 2
			}
			start = true
		case start && ends && s.flow == 0 && (c == '-' || c == '?'):
			s.values++
			if c == '?' {
				s.values++
			}
			if dashes++; dashes > MaxDepth {
				return s.tooDeep(l, number, i)
			}
		case start && s.flow == 0 && (c == '|' || c == '>'):
			header = i + 1
			start = false
		default:
			start = false
		}
		s.closed = false
		if s.values > MaxValues {
			s.r.add(pos(number, columnOf(l, i)), problem.TooManyValues, "split it into several definitions",
				"the document has more than %d texts, numbers, lists and mappings", MaxValues)
			return false
		}
	}
	if header > 0 && isBlockHeader(l[header:]) {
		s.block = indent
	}
	return true
}

func (s *shape) tooDeep(l []byte, number, i int) bool {
	s.r.add(pos(number, columnOf(l, i)), problem.TooDeep, "write it flatter",
		"mappings and lists nest more than %d deep here", MaxDepth)
	return false
}

// isBlockHeader accepts what may stand behind "|" or ">" in its line.
func isBlockHeader(rest []byte) bool {
	for i, c := range rest {
		switch {
		case c >= '0' && c <= '9', c == '+', c == '-', c == ' ', c == '\t':
		case c == '#' && i > 0 && (rest[i-1] == ' ' || rest[i-1] == '\t'):
			return true
		default:
			return false
		}
	}
	return true
}
