package httpapi

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Bounds of fields. docs/openapi.yaml repeats them.
const (
	MaxTarget    = 253
	MaxRevision  = 1 << 53
	MaxRequester = 64
	MaxWait      = 30 // seconds
	MaxReason    = 500
	MaxTokenName = 64
)

var momentShape = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)

func badField(name, what string) *problem.Error {
	return problem.New(problem.BadField, "%s %s", name, what)
}

// text gives a string field; ok is false where it isn't there.
func (o object) text(name string) (value string, ok bool, err error) {
	raw, ok := o[name]
	if !ok {
		return "", false, nil
	}
	value, isText := raw.(string)
	if !isText {
		return "", false, badField(name, "isn't a string")
	}
	return value, true, nil
}

func (o object) mustText(name string) (string, error) {
	value, ok, err := o.text(name)
	if err == nil && !ok {
		err = badField(name, "is missing")
	}
	return value, err
}

func (o object) flag(name string) (bool, error) {
	raw, ok := o[name]
	if !ok {
		return false, nil
	}
	value, isBool := raw.(bool)
	if !isBool {
		return false, badField(name, "isn't true or false")
	}
	return value, nil
}

// integer gives a number that is written as a plain one. 7.0 is an integer to
// JSON Schema, and to those whose JSON library knows floats alone; signs and
// exponents are refused.
func (o object) integer(name string, most int64) (value int64, ok bool, err error) {
	raw, ok := o[name]
	if !ok {
		return 0, false, nil
	}
	number, isNumber := raw.(json.Number)
	if !isNumber {
		return 0, false, badField(name, "isn't a number")
	}
	text := number.String()
	if whole, fraction, found := strings.Cut(text, "."); found && strings.Trim(fraction, "0") == "" {
		text = whole
	}
	value, parseErr := strconv.ParseInt(text, 10, 64)
	if parseErr != nil || value < 0 || value > most || text[0] == '-' {
		return 0, false, badField(name, "isn't an integer from 0 to "+strconv.FormatInt(most, 10))
	}
	return value, true, nil
}

// uuid gives a UUID field in its canonical lower-case form, "" where it is
// optional and not there.
func (o object) uuid(name string, required bool) (string, error) {
	value, ok, err := o.text(name)
	if err != nil {
		return "", err
	}
	if !ok {
		if required {
			return "", badField(name, "is missing")
		}
		return "", nil
	}
	canonical, ok := canonicalUUID(value)
	if !ok {
		return "", badField(name, "isn't a UUID").
			WithHint("write it as 8-4-4-4-12 hexadecimal digits, without braces and without urn:uuid:")
	}
	return canonical, nil
}

func canonicalUUID(s string) (string, bool) {
	if len(s) != 36 {
		return "", false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return "", false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return "", false
			}
		}
	}
	return strings.ToLower(s), true
}

// target gives one minion ID, taken literally. What Salt could read as more
// than one minion, or as a path, is refused.
func (o object) target() (string, error) { return o.minion("target") }

// minion gives a required minion ID.
func (o object) minion(name string) (string, error) {
	id, err := o.mustText(name)
	if err != nil {
		return "", err
	}
	if len(id) > MaxTarget {
		return "", badField(name, "has more than "+strconv.Itoa(MaxTarget)+" characters")
	}
	if !literalMinion(id) {
		return "", badField(name, "isn't one literal minion ID").
			WithHint("letters, digits and . _ - @ : + only, beginning with a letter, a digit or _; no globs, lists or compound targets")
	}
	return id, nil
}

func literalMinion(id string) bool {
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && strings.IndexByte(".-@:+", c) >= 0:
		default:
			return false
		}
	}
	return id != ""
}

// digest gives 64 hexadecimal digits in lower case, or "".
func (o object) digest() (string, error) {
	value, ok, err := o.text("digest")
	if err != nil || !ok {
		return "", err
	}
	value = strings.ToLower(value)
	if len(value) != 64 || strings.Trim(value, "0123456789abcdef") != "" {
		return "", badField("digest", "isn't a SHA-256 in 64 hexadecimal digits")
	}
	return value, nil
}

// label gives a short text for people to read in lists and logs.
func (o object) label(name string, most int) (string, error) {
	value, ok, err := o.text(name)
	if err != nil || !ok {
		return "", err
	}
	if value == "" || len(value) > most {
		return "", badField(name, "has no characters, or more than "+strconv.Itoa(most))
	}
	for i := range len(value) {
		c := value[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("._@:/ -", c) < 0 {
			return "", badField(name, "has a character that isn't a letter, a digit, a space or one of . _ @ : / -")
		}
	}
	return value, nil
}

// moment gives a time with an offset, or the zero time where it isn't there.
func (o object) moment(name string) (time.Time, error) {
	value, ok, err := o.text(name)
	if err != nil || !ok {
		return time.Time{}, err
	}
	// Go's own readers also take what RFC 3339 doesn't: 8:00:00, a decimal comma.
	t, err := time.Parse(time.RFC3339, value)
	if err != nil || !momentShape.MatchString(value) {
		return time.Time{}, badField(name, "isn't a time after RFC 3339 with an offset").
			WithHint("write it like 2026-11-30T18:00:00Z or 2026-11-30T19:00:00+01:00")
	}
	if epoch := time.Unix(0, 0); t.Before(epoch) {
		t = epoch // long past either way; the zero time would mean "not given"
	}
	return t.UTC(), nil
}

// prose gives a required line of an operator's own words.
func (o object) prose(name string, most int) (string, error) {
	value, err := o.mustText(name)
	if err != nil {
		return "", err
	}
	if value == "" || utf8.RuneCountInString(value) > most {
		return "", badField(name, "has no characters, or more than "+strconv.Itoa(most))
	}
	if first, _ := utf8.DecodeRuneInString(value); unicode.IsSpace(first) {
		return "", badField(name, "begins with a space")
	}
	for _, r := range value {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029 {
			return "", badField(name, "has a control character or more than one line")
		}
	}
	return value, nil
}
