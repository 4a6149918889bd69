package receipt

import (
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// ClaimFacts are what the database knows that decides about a claim, read in
// the same transaction that writes it.
type ClaimFacts struct {
	LastJID    string   // the newest JID ever claimed, "" if there is none
	Busy       *Blocker // another receipt of the target that is dispatching or dispatched
	Quarantine *Blocker // an uncertain receipt of the target
	PutBack    bool     // the target's ledger was put back since it was adopted
}

// DecideClaim gives the event for a queued receipt whose prepare was answered
// with a ticket: the claim, with its JID chosen, or a refusal. c.JID is ignored.
func DecideClaim(r Receipt, c Claim, f ClaimFacts, now time.Time) Event {
	switch {
	case r.Carried || r.FromLedger:
		return Refuse(now, problem.EpochEnded, nil)
	case f.Quarantine != nil:
		return Refuse(now, problem.TargetQuarantined, f.Quarantine)
	case f.Busy != nil:
		return Refuse(now, problem.TargetBusy, f.Busy)
	case f.PutBack || c.Told.Behind():
		return Refuse(now, problem.LedgerChanged, nil)
	case now.After(r.AcceptedAt.Add(CustomWindow)):
		return Refuse(now, problem.StartWindowPassed, nil)
	}
	c.JID = NextJID(f.LastJID, now)
	return ClaimStart(now, c)
}

const jidLayout = "20060102150405.000000"

// jidStep is the distance between two JIDs of one kind, in Salt's unit of
// microseconds. A minion runs one JID once, so a start must never have the JID
// of a question that was asked before it: starts have even microseconds,
// questions odd ones.
const jidStep = 2 * time.Microsecond

// NextJID gives the JID of a start: 20 digits, greater than last, and now's
// where that is possible. A clock that was set back doesn't make it repeat one.
func NextJID(last string, now time.Time) string {
	t := now.UTC().Truncate(jidStep)
	if lastTime, ok := parseJID(last); ok && !t.After(lastTime) {
		t = lastTime.Truncate(jidStep).Add(jidStep)
	}
	return formatJID(t)
}

// NextQuestionJID gives the JID of a question without an effect (prepare,
// evidence, update), by the same rules. It is never that of a start.
func NextQuestionJID(last string, now time.Time) string {
	t := now.UTC().Truncate(jidStep).Add(jidStep / 2)
	if lastTime, ok := parseJID(last); ok && !t.After(lastTime) {
		t = lastTime.Truncate(jidStep).Add(jidStep + jidStep/2)
	}
	return formatJID(t)
}

func formatJID(t time.Time) string {
	return strings.Replace(t.Format(jidLayout), ".", "", 1)
}

func parseJID(jid string) (time.Time, bool) {
	if len(jid) != 20 {
		return time.Time{}, false
	}
	t, err := time.Parse(jidLayout, jid[:14]+"."+jid[14:])
	return t, err == nil
}
