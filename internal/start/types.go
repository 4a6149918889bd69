// Package start is the use case behind the fixed entry points: it binds a
// request to what it names, once, and tells what became of it. It publishes
// nothing itself; internal/dispatch does.
package start

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// CustomRequest is one call of custom_start, already checked for shape: UUIDs
// canonical, target literal. Digest is "" where the caller gave none.
type CustomRequest struct {
	Request     string
	Target      string
	Instance    string
	Source      []byte
	Revision    int64
	Digest      string
	Previous    string
	Again       bool
	Requester   string
	AcceptUntil time.Time
}

// Answer is what both custom_start and custom_status say: identity, status,
// counts, codes and times, and nothing else (A13).
type Answer struct {
	Request   string           // the UUID asked for
	Reused    bool             // bound to an execution that another request made
	Execution receipt.Receipt  // its own receipt, or the one it is bound to
	PollAfter time.Duration    // when to ask again; 0 once terminal
	Revision  int64            // of the request asked for; its execution may have been made with another
	Status    receipt.Status   // of Execution
	Hint      string           // a fixed sentence that goes with the code, "" for none
	Blocked   *receipt.Blocker // of Execution
}

// Validation is the answer of state_validate. Errors is empty where the source
// is accepted; Warnings refuse nothing.
type Validation struct {
	OK       bool
	Digest   string
	States   int // declared results
	Errors   []*problem.Error
	Warnings []*problem.Error
}

// Health is what GET /v1/health says.
type Health struct {
	OK         bool // starts are taken
	Version    string
	Code       problem.Code // why not OK: deaf, not_writable, starting
	Epoch      string
	BusJoined  bool
	Queued     int
	Running    int
	Uncertain  int
	Conflicts  int    // receipts with evidence that contradicts them
	Owed       int    // settlements that a target's ledger doesn't know of yet
	BadAnswers uint64 // returns that looked like answers and proved nothing
	Gaps       uint64
}

// SourceRefusedError says that the state language refused a source. Errors has
// at least one entry, in source order, at most state.MaxErrors.
type SourceRefusedError struct {
	Errors []*problem.Error
}

func (e *SourceRefusedError) Error() string { return e.Errors[0].Error() }

// Unwrap gives all refusals; the first decides the code.
func (e *SourceRefusedError) Unwrap() []error {
	all := make([]error, len(e.Errors))
	for i, r := range e.Errors {
		all[i] = r
	}
	return all
}
