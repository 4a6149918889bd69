package state

import (
	"fmt"
	"slices"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// refusals collects what is wrong, keeps the first MaxErrors in source order
// and forgets the rest, so that a hostile source costs no memory.
type refusals struct {
	list []*problem.Error
	mute map[int32]bool // lines whose follow-up errors nobody wants to read
}

func (r *refusals) empty() bool { return len(r.list) == 0 }

// add notes one refusal. The message is only put together if it is kept. It
// names positions and the language's own words, never text of the source:
// messages travel further than sources may.
func (r *refusals) add(p position, code problem.Code, hint, format string, args ...any) {
	if r.mute[p.line] {
		return
	}
	at := len(r.list)
	for at > 0 && p.before(pos(r.list[at-1].Line, r.list[at-1].Column)) {
		at--
	}
	if at >= MaxErrors {
		return
	}
	for i := at - 1; i >= 0 && pos(r.list[i].Line, r.list[i].Column) == p; i-- {
		if r.list[i].Code == code {
			return // one fault seen from two sides
		}
	}
	e := &problem.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint, Line: int(p.line), Column: int(p.column)}
	r.list = slices.Insert(r.list, at, e)
	if len(r.list) > MaxErrors {
		r.list = r.list[:MaxErrors]
	}
}
