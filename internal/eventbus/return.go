package eventbus

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/msgpackwalk"
)

// Kind says what a return is. Only a string is kept.
type Kind string

// The kinds. KindNone is a return event without `return`.
const (
	KindNone   Kind = "none"
	KindString Kind = "string"
	KindNil    Kind = "nil"
	KindBool   Kind = "bool"
	KindNumber Kind = "number"
	KindList   Kind = "list"
	KindMap    Kind = "map"
	KindOther  Kind = "other"
)

// Return is a job's return as the bus tells it. None of it is proof.
type Return struct {
	JID     string
	Minion  string
	Fun     string
	Text    string // the return, if it is a string
	Kind    Kind
	Retcode int64
	Success bool
}

// DecodeError says that an event isn't a job's return.
type DecodeError struct{ Detail string }

// Error implements error.
func (e *DecodeError) Error() string { return "event bus: " + e.Detail }

// ReturnTag takes `salt/job/<jid>/ret/<minion>` apart.
func ReturnTag(tag string) (jid, minion string, ok bool) {
	rest, ok := strings.CutPrefix(tag, "salt/job/")
	if !ok {
		return "", "", false
	}
	jid, rest, ok = strings.Cut(rest, "/")
	if !ok || jid == "" {
		return "", "", false
	}
	minion, ok = strings.CutPrefix(rest, "ret/")
	if !ok || minion == "" || strings.Contains(minion, "/") {
		return "", "", false
	}
	return jid, minion, true
}

// IsReturn is a Want for job returns.
func IsReturn(tag string) bool {
	_, _, ok := ReturnTag(tag)
	return ok
}

// StartTag takes `salt/minion/<minion>/start` apart, which a minion fires when it
// has started. As for all on the bus, any minion can fire another's.
func StartTag(tag string) (minion string, ok bool) {
	rest, ok := strings.CutPrefix(tag, "salt/minion/")
	if !ok {
		return "", false
	}
	minion, ok = strings.CutSuffix(rest, "/start")
	if !ok || minion == "" || strings.Contains(minion, "/") {
		return "", false
	}
	return minion, true
}

// isNews is the Want of a Client that wasn't given one.
func isNews(tag string) bool {
	_, started := StartTag(tag)
	return started || IsReturn(tag)
}

// DecodeReturn reads a job's return. It refuses an event whose tag isn't a
// return's, whose data isn't one msgpack map, that says one field twice, or
// whose data contradicts its tag. Its error is a *DecodeError.
func DecodeReturn(ev Event) (Return, error) {
	jid, minion, ok := ReturnTag(ev.Tag)
	if !ok {
		return Return{}, &DecodeError{"the tag isn't a return's"}
	}
	w := msgpackwalk.Walker{Rest: ev.Data}
	top, ok := w.Header()
	if !ok || top.Kind != msgpackwalk.Map {
		return Return{}, &DecodeError{"the data isn't a map"}
	}
	ret := Return{Kind: KindNone}
	seen := map[string]bool{}
	for range top.Count / 2 {
		key, err := nextKey(&w)
		if err == nil && seen[key] {
			err = &DecodeError{"a field appears twice"}
		}
		if err == nil {
			err = readField(&w, key, &ret)
		}
		if err != nil {
			return Return{}, err
		}
		if key != "" {
			seen[key] = true
		}
	}
	switch {
	case len(w.Rest) != 0:
		return Return{}, &DecodeError{"bytes after the data"}
	case !seen["jid"] || !seen["id"]:
		return Return{}, &DecodeError{"a return without jid or id"}
	case ret.JID != jid || ret.Minion != minion:
		return Return{}, &DecodeError{"the data contradicts its tag"}
	}
	return ret, nil
}

// fields are the keys that are looked at; nextKey gives "" for all others.
var fields = map[string]bool{"jid": true, "id": true, "fun": true, "return": true, "retcode": true, "success": true}

func nextKey(w *msgpackwalk.Walker) (string, error) {
	h, ok := w.Header()
	if !ok {
		return "", errShort
	}
	if h.Kind != msgpackwalk.Text {
		if !w.Skip(h) {
			return "", errShort
		}
		return "", nil
	}
	b, ok := w.Take(h.Size)
	if !ok {
		return "", errShort
	}
	if !fields[string(b)] {
		return "", nil
	}
	return string(b), nil
}

var errShort = &DecodeError{"the data ends too early"}

// readField reads the value of one key into ret.
func readField(w *msgpackwalk.Walker, key string, ret *Return) error {
	h, ok := w.Header()
	if !ok {
		return errShort
	}
	rest := w.Rest
	if !w.Skip(h) {
		return errShort
	}
	text := ""
	if h.Kind == msgpackwalk.Text {
		text = string(rest[:h.Size])
	}
	switch key {
	case "jid", "id", "fun":
		if h.Kind != msgpackwalk.Text || !utf8.ValidString(text) {
			return &DecodeError{fmt.Sprintf("%s isn't a string", key)}
		}
		switch key {
		case "jid":
			ret.JID = text
		case "id":
			ret.Minion = text
		default:
			ret.Fun = text
		}
	case "retcode":
		if h.Kind == msgpackwalk.Int {
			ret.Retcode = h.Num
		}
	case "success":
		ret.Success = h.Kind == msgpackwalk.Bool && h.Num == 1
	case "return":
		ret.Kind = kindOf(h, text)
		if ret.Kind == KindString {
			ret.Text = text
		}
	}
	return nil
}

func kindOf(h msgpackwalk.Header, text string) Kind {
	switch h.Kind {
	case msgpackwalk.Text:
		if utf8.ValidString(text) {
			return KindString
		}
		return KindOther
	case msgpackwalk.Nil:
		return KindNil
	case msgpackwalk.Bool:
		return KindBool
	case msgpackwalk.Int, msgpackwalk.Float:
		return KindNumber
	case msgpackwalk.Array:
		return KindList
	case msgpackwalk.Map:
		return KindMap
	case msgpackwalk.Ext:
		return KindOther
	}
	return KindOther
}
