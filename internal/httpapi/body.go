package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// readBody gives the body's bytes, or refuses it by its content type or size.
// Of a body that is too large no more than the limit is read.
func (c *call) readBody() ([]byte, error) {
	if err := checkContentType(c.r.Header); err != nil {
		return nil, err
	}
	limit := c.limits.BodyBytes
	tooLarge := problem.New(problem.TooLarge, "the body has more than %d bytes", limit)
	if c.r.ContentLength > limit {
		c.w.Header().Set("Connection", "close") // the rest isn't worth reading
		return nil, tooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, problem.Wrap(problem.BadRequest, err, "the body ended early or didn't arrive in time")
	}
	return body, nil
}

func checkContentType(h http.Header) error {
	refused := problem.New(problem.UnsupportedType, "the body's content type isn't application/json").
		WithHint("send the header: Content-Type: application/json")
	values := h.Values("Content-Type")
	if len(values) != 1 || h.Get("Content-Encoding") != "" {
		return refused
	}
	kind, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || kind != "application/json" {
		return refused
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return refused
		}
	}
	return nil
}

// object is a decoded body: its fields by name, each a string, a bool or a
// json.Number. There is nothing else in any body that we take.
type object map[string]any

// decodeObject reads one flat JSON object, strictly: what Go's decoder would
// repair or overlook (duplicate keys, bad UTF-8, lone surrogates, names in
// another case, data after the end) is refused.
func decodeObject(body []byte, known ...string) (object, error) {
	if !utf8.Valid(body) {
		return nil, problem.New(problem.BadRequest, "the body isn't valid UTF-8")
	}
	if !json.Valid(body) {
		return nil, notJSON(body)
	}
	if loneSurrogate(body) {
		return nil, problem.New(problem.BadRequest, "the body has half of a surrogate pair, which is no character").
			WithHint("write characters beyond U+FFFF as they are, or as a pair of \\u escapes")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	first, err := d.Token()
	if err != nil || first != json.Delim('{') {
		return nil, problem.New(problem.BadRequest, "the body isn't a JSON object")
	}
	fields := object{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, notJSON(body)
		}
		key, ok := name.(string)
		if !ok {
			return nil, notJSON(body)
		}
		if err := checkName(key, fields, known); err != nil {
			return nil, err
		}
		value, err := d.Token()
		if err != nil {
			return nil, notJSON(body)
		}
		switch value.(type) {
		case string, bool, json.Number:
			fields[key] = value
		case nil:
			return nil, badField(key, "is null").WithHint("leave the field out instead")
		default:
			return nil, badField(key, "is a list or an object")
		}
	}
	return fields, nil
}

func checkName(name string, fields object, known []string) error {
	if _, twice := fields[name]; twice {
		return problem.New(problem.BadRequest, "the field %s is there twice", name)
	}
	for _, k := range known {
		if k == name {
			return nil
		}
	}
	unknown := problem.New(problem.UnknownField, "the field %s isn't known here", quoteShort(name))
	if len(known) == 0 {
		return unknown.WithHint("the body is an empty object: {}")
	}
	return unknown.WithHint("the fields are %s", strings.Join(known, ", "))
}

// quoteShort shows a name of the caller's without letting it grow or steer a terminal.
func quoteShort(name string) string {
	const most = 40
	runes := []rune(name)
	cut := len(runes) > most
	if cut {
		runes = runes[:most]
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range runes {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			r = '?'
		}
		b.WriteRune(r)
	}
	if cut {
		b.WriteString("...")
	}
	b.WriteByte('"')
	return b.String()
}

// notJSON says where, and shows nothing of the body.
func notJSON(body []byte) error {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, &struct{}{}); errors.As(err, &syntax) {
		return problem.New(problem.BadRequest, "the body isn't valid JSON: trouble at byte %d of %d", syntax.Offset, len(body))
	}
	return problem.New(problem.BadRequest, "the body isn't valid JSON")
}

// loneSurrogate finds a \u escape for half a pair. Go would put U+FFFD in its
// place, and the source that ran wouldn't be the one that was sent. body is
// valid JSON, so a backslash is inside a string and its escape is complete.
func loneSurrogate(body []byte) bool {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++
		if body[i] != 'u' {
			continue
		}
		unit := hex4(body[i+1:])
		i += 4
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			rest := body[i+1:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return true
			}
			if low := hex4(rest[2:]); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		r <<= 4
		switch {
		case c >= 'a':
			r |= rune(c-'a') + 10
		case c >= 'A':
			r |= rune(c-'A') + 10
		default:
			r |= rune(c - '0')
		}
	}
	return r
}
