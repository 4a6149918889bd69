package receipt

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Known is a request that is already bound, as the database has it.
type Known struct {
	Body      Body
	Execution Receipt // the receipt it is bound to; its own, or another's
}

// is says that a body is the one that the request was bound with. Of one that
// was made of a ledger no more is known than its key.
func (k Known) is(b Body) bool {
	if k.Execution.FromLedger && k.Execution.Body == k.Body {
		return k.Body.Key() == b.Key()
	}
	return k.Body == b
}

// Facts are what the database knows that decides about a new request. They are
// read in the same transaction that writes the decision.
type Facts struct {
	Known      *Known   // the same UUID, bound before
	Target     *Target  // the target's adoption, nil if it was never configured
	Open       *Receipt // a queued or running receipt of the same key
	Confirmed  *Receipt // the latest succeeded, failed or refused receipt of the same key
	Previous   *Receipt // the execution that Body.Previous stands for, nil if there is none
	Quarantine *Blocker // an uncertain receipt of the target that isn't superseded
	// Forgotten says that Confirmed's ledger was put back since: what it did may
	// have been undone with that.
	Forgotten bool
}

// Action is what is done with a new request.
type Action int

// The actions.
const (
	ActionRepeat Action = iota + 1 // known: answer with its receipt, write nothing
	ActionAlias                    // bind the UUID to an existing execution, durably
	ActionNew                      // bind a new receipt, queued
	ActionRefuse                   // bind a new receipt that is refused at once
)

// Decision is what Decide found. Execution is the receipt to answer with for
// ActionRepeat and ActionAlias; Refusal the event for ActionRefuse.
type Decision struct {
	Action    Action
	Execution *Receipt
	Refusal   *Event
}

// Decide says what becomes of a request, from facts alone. A known request is
// answered before every check. The error, if any, is one of the 409 answers;
// nothing is stored then.
func Decide(b Binding, f Facts, now time.Time) (Decision, error) {
	if f.Known != nil {
		if !f.Known.is(b.Body) {
			return Decision{}, problem.New(problem.RequestConflict, "request %s is already bound to another body", b.Request).
				WithHint("a UUID stands for one body for ever; use a new UUID for a new request")
		}
		return Decision{Action: ActionRepeat, Execution: &f.Known.Execution}, nil
	}
	if b.Claimed != "" && b.Claimed != b.Body.Digest {
		return Decision{}, problem.New(problem.DigestMismatch, "the digest given isn't the digest of this source").
			WithHint("state_validate gives a source's digest: %s", b.Body.Digest)
	}
	if !b.AcceptUntil.IsZero() && now.After(b.AcceptUntil) {
		return Decision{}, problem.New(problem.AcceptUntilPassed, "accept_until has passed").
			WithHint("nothing was stored; send a new request if it is still wanted")
	}
	if f.Target == nil {
		return Decision{}, problem.New(problem.NotConfigured, "target %q has no confirmed configure and was not adopted", b.Body.Target).
			WithHint("an operator records it on the master: masterd adopt %s --instance UUID --reason TEXT", b.Body.Target)
	}
	if f.Target.Instance != b.Body.Instance {
		return Decision{}, problem.New(problem.InstanceMismatch, "target %q is recorded with another instance", b.Body.Target).
			WithHint("the server behind this name was replaced, or the caller means another one")
	}
	if f.Open != nil {
		return Decision{Action: ActionAlias, Execution: f.Open}, nil
	}
	if err := checkPrevious(b, f); err != nil {
		return Decision{}, err
	}
	if reusable(b, f) {
		return Decision{Action: ActionAlias, Execution: f.Confirmed}, nil
	}
	if f.Quarantine != nil {
		e := Refuse(now, problem.TargetQuarantined, f.Quarantine)
		return Decision{Action: ActionRefuse, Refusal: &e}, nil
	}
	return Decision{Action: ActionNew}, nil
}

// reusable says that an identical digest has already succeeded (A10). A
// settlement is an operator's word and is never reused; nor is a result of a
// ledger that was since replaced or put back.
func reusable(b Binding, f Facts) bool {
	c := f.Confirmed
	return !b.Body.Again && b.Body.Profile == Custom && c != nil && c.State == Succeeded &&
		!c.Settled && c.Ledger == f.Target.Ledger && !f.Forgotten
}

// checkPrevious holds A12: after a failure a new attempt names it, so that two
// callers can't each retry the same failure by accident.
func checkPrevious(b Binding, f Facts) error {
	given := b.Body.Previous != ""
	if given {
		p := f.Previous
		switch {
		case p == nil:
			return problem.New(problem.PreviousNotFailed, "previous %s isn't known here", b.Body.Previous)
		case p.Body.Target != b.Body.Target:
			return problem.New(problem.PreviousNotFailed, "previous %s is of another target", b.Body.Previous)
		case p.State != Failed && p.State != Refused:
			return problem.New(problem.PreviousNotFailed, "previous %s has status %s, not failed", b.Body.Previous, p.State.Status())
		}
	}
	c := f.Confirmed
	if c == nil || c.State == Succeeded {
		return nil
	}
	if !given {
		return problem.New(problem.PreviousRequired, "the last attempt, %s, failed with %s", c.Request, c.Code).
			WithHint("look at it, then name it: \"previous\": \"%s\"", c.Request)
	}
	if f.Previous.Request != c.Request {
		return problem.New(problem.PreviousRequired, "previous names %s, but the last attempt is %s", b.Body.Previous, c.Request).
			WithHint("name the last one: \"previous\": \"%s\"", c.Request)
	}
	return nil
}
