package state

import "strconv"

const (
	// SLS is what every declaration says for its SLS file; Salt shows it in
	// comments about missing requisites.
	SLS = "oduflow"
	// Env is the file server environment that every declaration belongs to.
	Env = "base"
	// firstOrder is where Salt's own compiler begins to number.
	firstOrder = 10000
)

// High is the high data of a document: what Salt's compiler makes of an SLS
// file with the same text, in the same order. Functions are split from their
// modules, and every function that the author gave no order has the next
// number.
type High struct{ d *Document }

// High converts the document for the fixed state.high (A14).
func (d *Document) High() (High, error) { return High{d}, nil }

// MarshalJSON writes the form in which high data goes to the Salt process. It
// is JSON in definition order; an int has no point and a float has one or an
// exponent. A mapping that has a key other than text is written as
// {"\u0000map": [[key, value], ...]}; no other mapping has that key.
func (h High) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(h.d.canonical)*5/4+256)
	b = append(b, '{')
	order := firstOrder
	for i := range h.d.ids {
		if i > 0 {
			b = append(b, ',')
		}
		id := &h.d.ids[i]
		b = append(appendText(b, id.id), ':', '{')
		for j := range id.calls {
			f := &id.calls[j]
			b = append(appendText(b, f.module), ':', '[')
			for k := range f.args {
				b = append(appendText(append(b, '{'), f.args[k].key), ':')
				b = append(appendValue(b, &f.args[k].val), '}', ',')
			}
			b = appendText(b, f.function)
			if !f.ordered {
				b = append(b, `,{"order":`...)
				b = append(strconv.AppendInt(b, int64(order), 10), '}')
				order++
			}
			b = append(b, ']', ',')
		}
		b = append(b, `"__sls__":"`+SLS+`","__env__":"`+Env+`"}`...)
	}
	return append(b, '}'), nil
}
