package state

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Canonical is the canonical form, defined in docs/canonical-form.md: compact
// JSON in definition order, with its version number first.
func (d *Document) Canonical() []byte { return slices.Clone(d.canonical) }

// Digest is the semantic digest (A9): SHA-256 of the canonical form in 64
// lower-case hexadecimal digits.
func (d *Document) Digest() string { return d.digest }

// seal fixes canonical form and digest.
func (d *Document) seal() *problem.Error {
	b := make([]byte, 0, 4096)
	b = append(b, `{"version":`...)
	b = strconv.AppendInt(b, Version, 10)
	b = append(b, `,"states":{`...)
	for i := range d.ids {
		if i > 0 {
			b = append(b, ',')
		}
		id := &d.ids[i]
		b = append(appendText(b, id.id), ':', '{')
		for j := range id.calls {
			if j > 0 {
				b = append(b, ',')
			}
			f := &id.calls[j]
			b = append(b, '"')
			b = append(append(append(b, f.module...), '.'), f.function...)
			b = append(b, '"', ':', '[')
			for k := range f.args {
				if k > 0 {
					b = append(b, ',')
				}
				b = append(appendText(append(b, '{'), f.args[k].key), ':')
				b = append(appendValue(b, &f.args[k].val), '}')
			}
			b = append(b, ']')
		}
		b = append(b, '}')
	}
	b = append(b, '}', '}')
	if len(b) > MaxCanonicalBytes {
		return problem.New(problem.TooLargeCanonical, "the canonical form has more than %d bytes", MaxCanonicalBytes).
			WithHint("split it into several definitions").At(1, 1)
	}
	sum := sha256.Sum256(b)
	d.canonical, d.digest = b, hex.EncodeToString(sum[:])
	return nil
}

// mapMark stands for a mapping that has a key other than text. No text in the
// language holds U+0000, so it can't be taken for a mapping that has it as key.
const mapMark = `{"\u0000map":[`

// appendValue writes a value in canonical form.
func appendValue(b []byte, v *value) []byte {
	switch v.kind {
	case kindNull:
		return append(b, "null"...)
	case kindBool:
		return strconv.AppendBool(b, v.num == 1)
	case kindInt:
		if v.neg {
			b = append(b, '-')
		}
		return strconv.AppendUint(b, v.num, 10)
	case kindFloat:
		return appendFloat(b, v.float())
	case kindText:
		return appendText(b, v.text)
	case kindList:
		b = append(b, '[')
		for i := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, &v.items[i])
		}
		return append(b, ']')
	case kindMap:
		return appendMap(b, v)
	}
	return b
}

func appendMap(b []byte, v *value) []byte {
	for i := range v.pairs() {
		if v.key(i).kind != kindText {
			return appendPairs(b, v)
		}
	}
	b = append(b, '{')
	for i := range v.pairs() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, v.key(i).text), ':')
		b = appendValue(b, v.val(i))
	}
	return append(b, '}')
}

// appendPairs writes a mapping that has a key other than text.
func appendPairs(b []byte, v *value) []byte {
	b = append(b, mapMark...)
	for i := range v.pairs() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendValue(append(b, '['), v.key(i)), ',')
		b = append(appendValue(b, v.val(i)), ']')
	}
	return append(b, ']', '}')
}

// appendText writes a JSON string with as few escapes as JSON allows; of the
// control characters the language has only three.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		var e byte
		switch s[i] {
		case '"', '\\':
			e = s[i]
		case '\n':
			e = 'n'
		case '\r':
			e = 'r'
		case '\t':
			e = 't'
		default:
			continue
		}
		b = append(append(b, s[from:i]...), '\\', e)
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}
