// Package evidence turns what a target's executor states about a request into
// the event that changes its receipt, and asks for it until the outcome is
// known.
package evidence

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Verdict is what one authenticated answer means for a receipt. Event is nil
// where it changes nothing. Conflict says that it contradicts what the receipt
// says already: it is kept, raised and never resolved by a guess.
type Verdict struct {
	Event    *receipt.Event
	Conflict bool
}

// Memory says what the ledger that an answer comes from is known to be.
type Memory int

// The memories.
const (
	// Whole: the one ledger of the target that was adopted, as far as is known.
	Whole Memory = iota + 1
	// Doubtful: it told less than it had told before (it was put back from a copy,
	// or is one of two copies), or two executors answer for the target. It may
	// lack what the target's ledger knew. So that something isn't there, or never
	// began, is no proof: it may have been forgotten, or be known to the other one.
	//
	// What it does remember is proof as before. A copy knows nothing that hadn't
	// happened by the time it was taken, and what it learned since happened to it:
	// going back takes facts away and makes none. An outcome is written by the
	// executor that ran the request, after it ran, and its answer is under the
	// MAC; that it ran on a machine which was put back, or on a clone, doesn't
	// make it untrue. Running is seen there and then; interrupted claims no more
	// than that nobody knows.
	Doubtful
)

// Decide is pure. The answer is authentic: its MAC, request, target and nonce
// were checked, and its ledger's memory is whole. It may still contradict the
// receipt, and then proves nothing.
func Decide(r receipt.Receipt, a message.Answer, now time.Time) Verdict {
	return DecideBy(Whole, r, a, now)
}

// DecideBy is Decide for a ledger of any memory.
func DecideBy(m Memory, r receipt.Receipt, a message.Answer, now time.Time) Verdict {
	if !isAbout(a) {
		return Verdict{}
	}
	if a.Digest != r.Body.Digest {
		return refuseConflict(r, now)
	}
	if r.Ledger != "" && a.Ledger != r.Ledger {
		return Verdict{Conflict: true}
	}
	if !plausible(r, a) {
		return implausible(r, a, now)
	}
	if r.State.Terminal() {
		return Verdict{Conflict: contradicts(r, a)}
	}
	if m != Whole && Negative(a.Result) {
		return Verdict{Conflict: true}
	}
	if began(r) && (a.Result == message.Fenced || a.Result == message.NeverBegan && r.Code == problem.Interrupted) {
		return Verdict{Conflict: true}
	}
	if r.State == receipt.Queued {
		return adopt(r, a, now)
	}
	return resolve(r, a, now)
}

// Negative says that a result proves, if it proves anything, that something has
// never happened and never will.
func Negative(r message.Result) bool { return r == message.Fenced || r == message.NeverBegan }

// isAbout says that an answer states something about a record of the request.
func isAbout(a message.Answer) bool {
	switch a.Result {
	case message.Finished, message.Fenced, message.Running, message.Interrupted, message.NeverBegan,
		message.Settled, message.Lapsed:
		return true
	case message.Prepared, message.Refused, message.NotStartedYet, message.Absent, message.Disregarded, message.Updated:
		return false
	}
	return false
}

// implausible: a record whose outcome can't be what the executor states. Where
// that is all that is known of the request, nobody knows its outcome.
func implausible(r receipt.Receipt, a message.Answer, now time.Time) Verdict {
	if r.State != receipt.Queued {
		return Verdict{Conflict: true}
	}
	e := receipt.Event{
		Name: receipt.EventAdopt, To: receipt.Uncertain, At: now, Actor: receipt.ActorMasterd,
		Code: problem.NoAnswer, Ledger: a.Ledger,
	}
	return Verdict{Event: &e, Conflict: true}
}

// began says that earlier evidence had this request started (still_running) or
// even its effect begun (interrupted). A ledger that says otherwise later isn't
// the one that it was.
func began(r receipt.Receipt) bool {
	return r.State == receipt.Uncertain && (r.Code == problem.Interrupted || r.Code == problem.StillRunning)
}

// refuseConflict: the ledger knows this UUID with another digest.
func refuseConflict(r receipt.Receipt, now time.Time) Verdict {
	if r.State == receipt.Queued {
		e := receipt.Refuse(now, problem.RequestConflict, nil)
		return Verdict{Event: &e}
	}
	return Verdict{Conflict: true}
}

// plausible checks what an executor may state: codes of the closed lists, and
// counts that account for what this request declares.
func plausible(r receipt.Receipt, a message.Answer) bool {
	switch a.Result {
	case message.Finished:
		c := a.Counts
		if c == nil || c.Declared != r.Declared && !r.FromLedger || c.Passed < 0 || c.Failed < 0 || c.NotRun < 0 ||
			c.Passed+c.Failed+c.NotRun != c.Declared {
			return false
		}
		if a.Code == "" {
			return c.Passed == c.Declared
		}
		return finishes(a.Code)
	case message.Fenced:
		return fences(a.Code)
	case message.Running, message.Interrupted, message.NeverBegan, message.Settled, message.Lapsed,
		message.Prepared, message.Refused, message.NotStartedYet, message.Absent, message.Disregarded, message.Updated:
		return true
	}
	return false
}

// finishes says that a record that finished may carry this code: any of a
// failure but those that aren't the executor's to state, or that say that the
// record never came so far.
func finishes(c problem.Code) bool {
	switch c { //nolint:exhaustive // the others are told apart by their kind
	case problem.NotSent, problem.NeverBegan, problem.NeverStarted, problem.SettledFailed:
		return false
	default:
		return problem.Known(c) && problem.RowOf(c).Kind == problem.KindFailed
	}
}

// fences says that a record that will never start may carry this code.
func fences(c problem.Code) bool {
	switch c { //nolint:exhaustive // no other does
	case problem.NeverStarted, problem.StartRefusedTicket, problem.StartRefusedLocked, problem.StartRefusedDigest,
		problem.StartRefusedStateRunning, problem.StartRefusedPluginMismatch:
		return true
	default:
		return false
	}
}

// Ended says that a receipt tells how a run ended: its executor or an operator has
// said so, and not merely that it never ran.
func Ended(r receipt.Receipt) bool {
	switch r.State { //nolint:exhaustive // the others tell of no end
	case receipt.Succeeded:
		return true
	case receipt.Failed:
		return r.Settled || finishes(r.Code) && !fences(r.Code)
	}
	return false
}

// contradicts: the receipt is terminal and the ledger says something else. An
// operator's settlement names no more than the outcome.
func contradicts(r receipt.Receipt, a message.Answer) bool {
	to, code, _, ok := outcome(r, a)
	switch {
	case a.Result == message.Lapsed: // says that it knows no more
		return false
	case a.Result == message.Settled: // an operator's word, in the ledger
		return receipt.State(a.Outcome) != r.State
	case !ok:
		return !r.Settled // it runs, or ended without a finish
	case r.Settled:
		return to != r.State
	case r.State == receipt.Refused || r.Code == problem.NotSent:
		return a.Result != message.Fenced // nothing was sent, so it can't have started
	default:
		return to != r.State || code != r.Code
	}
}

// outcome gives the state, code and counts that an answer proves. ok is false
// for the answers that prove no outcome.
func outcome(r receipt.Receipt, a message.Answer) (to receipt.State, code problem.Code, counts *receipt.Counts, ok bool) {
	none := &receipt.Counts{Declared: r.Declared, NotRun: r.Declared}
	switch a.Result {
	case message.Finished:
		counts = &receipt.Counts{Declared: a.Counts.Declared, Passed: a.Counts.Passed, Failed: a.Counts.Failed, NotRun: a.Counts.NotRun}
		if a.Code == "" {
			return receipt.Succeeded, "", counts, true
		}
		return receipt.Failed, a.Code, counts, true
	case message.Fenced:
		return receipt.Failed, a.Code, none, true
	case message.NeverBegan:
		return receipt.Failed, problem.NeverBegan, none, true
	case message.Running, message.Interrupted, message.Settled, message.Lapsed,
		message.Prepared, message.Refused, message.NotStartedYet, message.Absent, message.Disregarded, message.Updated:
		return "", "", nil, false
	}
	return "", "", nil, false
}

// adopt: a prepare met a record of this very request with the same digest. What
// an operator settled in a past that this database has lost isn't proved by the
// ledger's copy of it: an operator settles it again.
func adopt(r receipt.Receipt, a message.Answer, now time.Time) Verdict {
	e := receipt.Event{Name: receipt.EventAdopt, At: now, Actor: receipt.ActorMasterd, Ledger: a.Ledger}
	if to, code, counts, ok := outcome(r, a); ok {
		e.To, e.Code, e.Counts = to, code, counts
	} else if a.Result == message.Running {
		e.To = receipt.Dispatched
	} else if a.Result == message.Lapsed {
		e.To, e.Code = receipt.Uncertain, problem.LedgerAbsent
	} else {
		e.To, e.Code = receipt.Uncertain, problem.Interrupted
	}
	return Verdict{Event: &e}
}

// resolve: the receipt waits for its outcome.
func resolve(r receipt.Receipt, a message.Answer, now time.Time) Verdict {
	if to, code, counts, ok := outcome(r, a); ok {
		e := receipt.Event{Name: receipt.EventFinish, To: to, At: now, Actor: receipt.ActorMasterd, Code: code, Counts: counts}
		return Verdict{Event: &e}
	}
	if r.State == receipt.Uncertain {
		return Verdict{}
	}
	if a.Result == message.Interrupted {
		e := Lose(now, problem.Interrupted)
		return Verdict{Event: &e}
	}
	if a.Result == message.Lapsed {
		// It will never start now, and the record that could tell whether it did
		// isn't there: there is nothing to wait for.
		e := Lose(now, problem.LedgerAbsent)
		return Verdict{Event: &e}
	}
	return Verdict{}
}

// Lose makes the event of a receipt whose outcome can't be proved.
func Lose(at time.Time, code problem.Code) receipt.Event {
	return receipt.Event{Name: receipt.EventLose, To: receipt.Uncertain, At: at, Actor: receipt.ActorMasterd, Code: code}
}

// LoseCarried makes the event of a receipt that waited when its database was
// restored, and whose target doesn't say whether it ran since.
func LoseCarried(at time.Time) receipt.Event {
	return receipt.Event{
		Name: receipt.EventAdopt, To: receipt.Uncertain, At: at, Actor: receipt.ActorMasterd, Code: problem.NoAnswer,
	}
}

// AtDeadline gives the event for a receipt that reached its hard deadline
// without a terminal answer. last is the newest answer to evidence, nil if
// there was none.
func AtDeadline(last *message.Answer, now time.Time) receipt.Event {
	switch {
	case last == nil:
		return Lose(now, problem.NoAnswer)
	case last.Result == message.Running:
		return Lose(now, problem.StillRunning)
	case last.Result == message.Absent:
		return Lose(now, problem.LedgerAbsent)
	default:
		return Lose(now, problem.NoAnswer)
	}
}
