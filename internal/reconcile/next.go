package reconcile

import (
	"fmt"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Next says what an operator can do about a receipt now. last is the newest
// authentic statement about it, "" for none; settlement may be nil.
func Next(r receipt.Receipt, last message.Result, settlement *receipt.Settlement) string {
	switch {
	case r.State == receipt.Queued:
		return "nothing yet: it waits for its turn"
	case r.State.Busy():
		return fmt.Sprintf("wait for its end; masterd evidence %s asks %s now", r.Request, r.Body.Target)
	case r.State == receipt.Uncertain && last == message.Running:
		return fmt.Sprintf("it still runs: wait, or end what it left on %s (ODUFLOW_REQUEST=%s), then: masterd evidence %s",
			r.Body.Target, r.Request, r.Request)
	case r.State == receipt.Uncertain && last == "":
		return fmt.Sprintf("masterd evidence %s asks %s what its ledger says", r.Request, r.Body.Target)
	case r.State == receipt.Uncertain:
		what := fmt.Sprintf(" (masterd receipts show %s --source says what it was to do)", r.Request)
		if r.FromLedger {
			what = "" // its source came to another database
		}
		return fmt.Sprintf("find out on %s what the request did%s, then record it: "+
			"masterd reconcile %s --outcome succeeded|failed --reason TEXT --observed TEXT", r.Body.Target, what, r.Request)
	case r.BlockedBy != nil:
		return "masterd receipts show " + r.BlockedBy.Request + " says what stood in the way"
	case settlement != nil && settlement.Owed():
		return fmt.Sprintf("nothing: the ledger of %s is told with its next request", r.Body.Target)
	case r.Settled && r.State == receipt.Succeeded:
		return fmt.Sprintf("nothing: %s is free for new requests; the same state again is run, not reused", r.Body.Target)
	case r.Settled:
		return fmt.Sprintf("nothing: %s is free for new requests; another attempt at the same state names this one: \"previous\": \"%s\"",
			r.Body.Target, r.Request)
	case r.State == receipt.Failed || r.State == receipt.Refused:
		return fmt.Sprintf("nothing to settle; a new attempt names it: \"previous\": \"%s\"", r.Request)
	}
	return "nothing"
}

// Proves says in a few words what a statement proves.
func Proves(result message.Result, code problem.Code) string {
	switch result {
	case message.Finished:
		if code == "" {
			return "it ended well"
		}
		return "it ended, failed"
	case message.Fenced:
		return "it never started and never will"
	case message.NeverBegan:
		return "it was started, and ended before its effect"
	case message.Running:
		return "it runs, or processes that it left do"
	case message.Interrupted:
		return "its effect had begun, and nothing runs; how far it came isn't known"
	case message.NotStartedYet:
		return "it is prepared and may still start"
	case message.Settled:
		return "an operator's word is in the ledger too"
	case message.Lapsed:
		return "it was prepared and can't start any more; whether it did isn't known"
	case message.Absent:
		return "nothing: the ledger has no record of it"
	case message.Refused, message.Disregarded, message.Prepared, message.Updated:
		return "nothing"
	}
	return "nothing"
}
