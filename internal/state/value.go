package state

import (
	"math"
	"strconv"
	"strings"
)

// kind is the type that Salt would see.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindText
	kindList
	kindMap
)

// position counts from 1; the zero position is that of a value which didn't
// come from a source.
type position struct{ line, column int32 }

func pos(line, column int) position { return position{int32(line), int32(column)} } //nolint:gosec // both are below MaxSourceBytes

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// value is one resolved value. A mapping keeps its order: its items alternate
// between keys and values.
type value struct {
	kind  kind
	neg   bool   // an int below zero
	alias bool   // an alias stood here, which has no value
	num   uint64 // bool: 0 or 1; int: its magnitude; float: its bits
	text  string
	items []value
	pos   position
}

func (v *value) float() float64 { return math.Float64frombits(v.num) }

// pairs gives how many entries a mapping has.
func (v *value) pairs() int { return len(v.items) / 2 }

func (v *value) key(i int) *value { return &v.items[2*i] }

func (v *value) val(i int) *value { return &v.items[2*i+1] }

// keyID is the same for scalars that are the same key in a Python dict: 1, 1.0
// and true are one key there.
type keyID struct {
	class byte
	neg   bool
	num   uint64
	text  string
}

func (v *value) keyID() keyID {
	switch v.kind {
	case kindText:
		return keyID{class: 't', text: v.text}
	case kindBool, kindInt:
		return keyID{class: 'i', neg: v.neg && v.num > 0, num: v.num}
	case kindFloat:
		f := v.float()
		if a := math.Abs(f); a == math.Trunc(a) && a < 1<<64 {
			return keyID{class: 'i', neg: f < 0, num: uint64(a)}
		}
		return keyID{class: 'f', num: v.num}
	case kindNull, kindList, kindMap: // the last two are refused as keys
	}
	return keyID{class: 'n'}
}

// typeName is how errors call the type of a value.
func (v *value) typeName() string {
	switch v.kind {
	case kindNull:
		return "nothing"
	case kindBool:
		return "a boolean"
	case kindInt, kindFloat:
		return "a number"
	case kindText:
		return "text"
	case kindList:
		return "a list"
	case kindMap:
	}
	return "a mapping"
}

// appendFloat writes a float as Python's repr does, which is the shortest form
// that reads back as the same float, always with a point or an exponent.
func appendFloat(b []byte, f float64) []byte {
	if f == 0 {
		if math.Signbit(f) {
			return append(b, "-0.0"...)
		}
		return append(b, "0.0"...)
	}
	// d.ddde±xx: take digits and exponent from here and set the point as
	// Python does: an exponent below -4 or from 16 on.
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	exp, _ := strconv.Atoi(exponent)
	if exp >= -4 && exp < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return append(b, s...)
	}
	b = append(b, mantissa...)
	b = append(b, 'e')
	if exp < 0 {
		b = append(b, '-')
		exp = -exp
	} else {
		b = append(b, '+')
	}
	if exp < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(exp), 10)
}
