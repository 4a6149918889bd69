package receipt

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Settlement is an operator's recorded word on what became of one uncertain
// receipt (A23). It ends the quarantine and proves nothing: its success is
// never reused, nor taken for a confirmed configure.
type Settlement struct {
	Request    string
	Outcome    State  // Succeeded or Failed
	Reason     string // why it had to be settled, in the operator's words
	Observed   string // what was seen on the server
	ServerGone bool   // the server was destroyed and another instance is adopted: its ledger is never told
	By         string // by peer credentials
	At         time.Time
	// DeliveredAt is when the target's ledger had recorded it too; zero while
	// that is owed. It is not set by Settle.
	DeliveredAt time.Time
}

// Owed says that the target's ledger doesn't know of the settlement yet.
func (s Settlement) Owed() bool { return !s.ServerGone && s.DeliveredAt.IsZero() }

// Debt is a settlement that the target's ledger has to be told of.
type Debt struct {
	Request, Digest string
	Outcome         State
}

// Settle makes the event of an operator's settlement.
func Settle(s Settlement) Event {
	e := Event{Name: EventSettle, To: s.Outcome, At: s.At, Actor: s.By, Settlement: &s}
	if s.Outcome == Failed {
		e.Code = problem.SettledFailed
	}
	return e
}

// Record is what a ledger says of a request that the database doesn't know: it
// was restored from an older copy, or another masterd had the target.
type Record struct {
	Request  string
	Target   string
	Instance string
	Profile  Profile
	Digest   string
	Ledger   string
	Code     problem.Code // why nobody knows its outcome: interrupted or still_running
}

// FromRecord gives the binding of such a record and the event that makes it
// uncertain at once. It has no source, and how many results it declared isn't
// known here.
func FromRecord(r Record, now time.Time) (Binding, Event) {
	b := Binding{
		Request: r.Request, AcceptedAt: now,
		Body: Body{Target: r.Target, Instance: r.Instance, Profile: r.Profile, Digest: r.Digest},
	}
	return b, Event{Name: EventAdopt, To: Uncertain, At: now, Actor: ActorMasterd, Code: r.Code, Ledger: r.Ledger}
}
