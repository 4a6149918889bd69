package state

import (
	"math"
	"strconv"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// resolver turns the syntax tree into values, as Salt's own loader does.
type resolver struct {
	t     *tree
	r     *refusals
	count int
	cut   bool // something was left out, so the value means nothing
}

// resolve gives the value of the document. ok is false if there is none to
// check further.
func resolve(t *tree, r *refusals) (root value, ok bool) {
	s := resolver{t: t, r: r}
	s.value(&root, t.root, 1, false, false)
	return root, !s.cut
}

func (s *resolver) value(v *value, n node, depth int, isKey, flow bool) {
	v.pos = n.pos()
	if s.count++; s.count > MaxValues {
		if !s.cut {
			s.r.add(v.pos, problem.TooManyValues, "split it into several definitions",
				"the document has more than %d texts, numbers, lists and mappings", MaxValues)
		}
		s.cut = true
		return
	}
	text, plain := s.t.enter(n, flow)
	kind := n.kind()
	switch kind {
	case nodeScalar:
		if plain {
			s.plain(v, text, isKey)
			return
		}
		v.kind, v.text = kindText, text
		if badText(text) {
			s.r.add(v.pos, problem.BadScalar, `tabs, "\n" and "\r" are taken; put anything else into a file on the client`,
				"the text holds a control character")
		}
		return
	case nodeAlias:
		v.alias, s.cut = true, true // refused already
		return
	case nodeList:
		v.kind = kindList
	case nodeMap:
		v.kind = kindMap
	}
	if depth > MaxDepth {
		s.r.add(v.pos, problem.TooDeep, "write it flatter", "mappings and lists nest more than %d deep here", MaxDepth)
		s.cut = true
		return
	}
	if n.len() > 0 {
		v.items = make([]value, n.len())
		flow = flow || n.flow()
		for i := range v.items {
			if s.value(&v.items[i], n.child(i), depth+1, kind == nodeMap && i%2 == 0, flow); s.count > MaxValues {
				return // nobody wants to read about the keys that are left
			}
		}
		if kind == nodeMap {
			checkKeys(v, depth, s.r)
		}
	}
}

// checkKeys refuses keys that can't be keys, and repeated ones. It is used for
// sources and for canonical bytes alike.
func checkKeys(v *value, depth int, r *refusals) {
	var seen map[keyID]struct{}
	if v.pairs() > 8 {
		seen = make(map[keyID]struct{}, v.pairs())
	}
	for i := range v.pairs() {
		k := v.key(i)
		if k.alias {
			continue // refused already, and unknown
		}
		if k.kind == kindList || k.kind == kindMap {
			r.add(k.pos, problem.BadKey, "use text as the key", "%s can't be a key", k.typeName())
			continue
		}
		twice := false
		if seen != nil {
			id := k.keyID()
			_, twice = seen[id]
			seen[id] = struct{}{}
		} else {
			for j := range i {
				if o := v.key(j); o.kind <= kindText && !o.alias && o.keyID() == k.keyID() {
					twice = true
					break
				}
			}
		}
		if !twice {
			continue
		}
		switch depth {
		case 1:
			r.add(k.pos, problem.DuplicateKey, "give one of them another ID, and a `name` argument if it needs one",
				"this state ID stands in the document already")
		case 2:
			r.add(k.pos, problem.DuplicateFunction, "put the second one under a state ID of its own",
				"this function stands under the state ID already")
		default:
			hint := "keep one of them"
			if k.kind != kindText {
				hint += "; Salt takes 1, 1.0 and true for one key"
			}
			r.add(k.pos, problem.DuplicateKey, hint, "this key stands in the mapping already")
		}
	}
}

// badText says whether s holds a control character other than tab, line feed
// and carriage return.
func badText(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return true
		}
		if c == 0xc2 && i+1 < len(s) && s[i+1] < 0xa0 {
			return true
		}
	}
	return false
}

// plain resolves a scalar without quotes. The rules are those of PyYAML's
// resolver with Salt's changes: octals lose their leading zeros, dates are
// text.
func (s *resolver) plain(v *value, t string, isKey bool) {
	v.kind, v.text = kindText, t
	if t == "" {
		v.kind = kindNull
		return
	}
	switch c := t[0]; {
	case c >= '0' && c <= '9', c == '-', c == '+', c == '.':
		s.number(v, t)
	case c == '~', c == 'n', c == 'N', c == 'y', c == 'Y', c == 't', c == 'T', c == 'f', c == 'F', c == 'o', c == 'O':
		if len(t) <= 5 {
			word(v, t)
		}
	case t == "<<":
		s.r.add(v.pos, problem.MergeKey, "write the keys out; quote it if it is text", "a merge key isn't taken")
	case t == "=" && !isKey:
		s.r.add(v.pos, problem.BadScalar, `quote it: "="`, "Salt's loader can't read a lone equals sign")
	}
}

func word(v *value, t string) {
	switch t {
	case "~", "null", "Null", "NULL":
		v.kind, v.text = kindNull, ""
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		v.kind, v.text, v.num = kindBool, "", 1
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		v.kind, v.text = kindBool, ""
	}
}

// number resolves text that begins like a number; most of it is text.
func (s *resolver) number(v *value, t string) {
	var fault string
	switch k := numberKind(t); k {
	case kindInt:
		v.neg, v.num, fault = parseInt(t)
		v.kind, v.text = k, ""
	case kindFloat:
		var f float64
		f, fault = parseFloat(t)
		v.kind, v.text, v.num = k, "", math.Float64bits(f)
	case kindNull, kindBool, kindText, kindList, kindMap:
		return
	}
	if fault != "" {
		s.r.add(v.pos, problem.BadScalar, "quote it if it is text", "%s", fault)
	}
}

// numberKind says what PyYAML's resolver takes t for: kindInt, kindFloat, or
// kindText. It tries float first, as PyYAML does.
func numberKind(t string) kind {
	u := t
	signed := u[0] == '-' || u[0] == '+'
	if signed {
		u = u[1:]
	}
	if u == "" {
		return kindText
	}
	if u[0] == '.' {
		switch u[1:] {
		case "inf", "Inf", "INF":
			return kindFloat
		case "nan", "NaN", "NAN":
			if !signed {
				return kindFloat
			}
			return kindText
		}
		// .[0-9][0-9_]*([eE][-+][0-9]+)? without a sign
		if signed || len(u) < 2 || u[1] < '0' || u[1] > '9' {
			return kindText
		}
		n := 1 + span(u[1:], "0123456789_")
		if isExponent(u[n:]) {
			return kindFloat
		}
		return kindText
	}
	if u[0] < '0' || u[0] > '9' {
		return kindText
	}
	n := span(u, "0123456789_")
	rest := u[n:]
	switch {
	case rest == "":
		return wholeKind(u)
	case rest[0] == '.':
		// [0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?
		m := 1 + span(rest[1:], "0123456789_")
		if isExponent(rest[m:]) {
			return kindFloat
		}
		return kindText
	case rest[0] == ':':
		return sexagesimalKind(u, rest)
	case u[0] == '0' && n == 1 && (rest[0] == 'b' || rest[0] == 'x'):
		digits := "01_"
		if rest[0] == 'x' {
			digits = "0123456789abcdefABCDEF_"
		}
		if len(rest) > 1 && span(rest[1:], digits) == len(rest)-1 {
			return kindInt
		}
	}
	return kindText
}

// wholeKind judges digits and underscores alone: 0, 0[0-7_]+, [1-9][0-9_]*.
func wholeKind(u string) kind {
	if u == "0" || u[0] != '0' || span(u[1:], "01234567_") == len(u)-1 {
		return kindInt
	}
	return kindText
}

// sexagesimalKind judges 1:30 (an int, not with a leading zero) and 1:30.5.
func sexagesimalKind(u, rest string) kind {
	for len(rest) > 0 && rest[0] == ':' {
		// [0-5]?[0-9]
		switch d := span(rest[1:], "0123456789"); {
		case d == 1, d == 2 && rest[1] <= '5':
			rest = rest[1+d:]
		default:
			return kindText
		}
	}
	switch {
	case rest == "" && u[0] != '0':
		return kindInt
	case rest != "" && rest[0] == '.' && span(rest[1:], "0123456789_") == len(rest)-1:
		return kindFloat
	}
	return kindText
}

// span counts the leading bytes of s that are in set.
func span(s, set string) int {
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(set, s[i]) < 0 {
			return i
		}
	}
	return len(s)
}

// isExponent accepts nothing, or [eE][-+][0-9]+.
func isExponent(s string) bool {
	if s == "" {
		return true
	}
	return len(s) > 2 && (s[0] == 'e' || s[0] == 'E') && (s[1] == '-' || s[1] == '+') &&
		span(s[2:], "0123456789") == len(s)-2
}

const (
	tooBig     = "an integer beyond 64 bits can't travel to the client"
	unreadable = "Salt's loader can't read this number"
)

// parseInt reads what numberKind called an int, the way Salt's loader does.
func parseInt(t string) (neg bool, num uint64, fault string) {
	// Salt drops the leading zeros of an unsigned octal, so 0644 is 644 ...
	if t != "0" && t[0] == '0' && !strings.HasPrefix(t, "0b") && !strings.HasPrefix(t, "0x") {
		t = strings.TrimLeft(t, "0")
		if t == "" {
			t = "0"
		}
	}
	t = strings.ReplaceAll(t, "_", "")
	if t == "" {
		return false, 0, unreadable
	}
	if t[0] == '-' || t[0] == '+' {
		neg = t[0] == '-'
		t = t[1:]
	}
	base := 10
	switch {
	case t == "0":
		return false, 0, ""
	case strings.HasPrefix(t, "0b"):
		base, t = 2, t[2:]
	case strings.HasPrefix(t, "0x"):
		base, t = 16, t[2:]
	case t[0] == '0':
		base = 8 // ... but a signed one stays an octal
	case strings.Contains(t, ":"):
		num, fault = sexagesimal(t)
		if fault == "" && neg && num > 1<<63 {
			fault = tooBig
		}
		return neg, num, fault
	}
	if t == "" {
		return false, 0, unreadable
	}
	num, err := strconv.ParseUint(t, base, 64)
	if err != nil || neg && num > 1<<63 {
		return false, 0, tooBig
	}
	return neg && num > 0, num, ""
}

func sexagesimal(t string) (num uint64, fault string) {
	for part := range strings.SplitSeq(t, ":") {
		d, err := strconv.ParseUint(part, 10, 64)
		if err != nil || num > (math.MaxUint64-d)/60 {
			return 0, tooBig
		}
		num = num*60 + d
	}
	return num, ""
}

// parseFloat reads what numberKind called a float.
func parseFloat(t string) (f float64, fault string) {
	const notFinite = "NaN and infinities can't travel to the client"
	t = strings.ToLower(strings.ReplaceAll(t, "_", ""))
	neg := t[0] == '-'
	if neg || t[0] == '+' {
		t = t[1:]
	}
	if t == ".inf" || t == ".nan" {
		return 0, notFinite
	}
	if strings.Contains(t, ":") {
		parts := strings.Split(t, ":")
		if len(parts) > 10 {
			return 0, unreadable // and nobody writes it
		}
		base := 1.0
		for i := len(parts) - 1; i >= 0; i-- {
			d, err := strconv.ParseFloat(parts[i], 64)
			if err != nil {
				return 0, unreadable
			}
			// The conversion keeps the compiler from fusing the two steps.
			f += float64(d * base)
			base *= 60
		}
	} else {
		var err error
		f, err = strconv.ParseFloat(t, 64)
		if err != nil || math.IsInf(f, 0) {
			return 0, notFinite
		}
	}
	if math.IsInf(f, 0) {
		return 0, notFinite
	}
	if neg {
		f = -f
	}
	return f, ""
}
