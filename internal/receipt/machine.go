package receipt

import (
	"fmt"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// State of a receipt.
type State string

// The states. API names differ for some: see Status.
const (
	Queued      State = "queued"      // bound; waits for its turn, nothing was published to start it
	Refused     State = "refused"     // terminal: failed before the claim, nothing was published to start it
	Dispatching State = "dispatching" // claimed; the one start is being or was published
	Dispatched  State = "dispatched"  // the master said that it sent our JID to exactly this target
	Succeeded   State = "succeeded"   // terminal, proved or settled
	Failed      State = "failed"      // terminal, proved or settled
	Uncertain   State = "uncertain"   // nobody knows; quarantines the target
)

// States gives all states, in the order of a receipt's life.
func States() []State {
	return []State{Queued, Refused, Dispatching, Dispatched, Succeeded, Failed, Uncertain}
}

// Status is what callers see of a state.
type Status string

// The statuses.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
	StatusUncertain Status = "uncertain"
)

// Status of a state: running is dispatching or dispatched, failed includes refused.
func (s State) Status() Status {
	switch s {
	case Queued:
		return StatusQueued
	case Dispatching, Dispatched:
		return StatusRunning
	case Succeeded:
		return StatusSucceeded
	case Refused, Failed:
		return StatusFailed
	case Uncertain:
		return StatusUncertain
	}
	return StatusUncertain
}

// Busy says that a receipt in this state may have a start out (A15, A22).
func (s State) Busy() bool { return s == Dispatching || s == Dispatched }

// Terminal says that nothing changes a receipt in this state any more.
func (s State) Terminal() bool { return s == Refused || s == Succeeded || s == Failed }

// Unresolved says that a receipt in this state still waits for an outcome.
func (s State) Unresolved() bool { return !s.Terminal() }

// EventName names a transition in the database, the diagram and the logs.
type EventName string

// The events.
const (
	EventRefuse      EventName = "refuse"
	EventAdopt       EventName = "adopt"
	EventClaim       EventName = "claim"
	EventAcknowledge EventName = "acknowledge"
	EventNotSent     EventName = "not_sent"
	EventFinish      EventName = "finish"
	EventLose        EventName = "lose"
	EventSettle      EventName = "settle"
)

// Transition is one line of the table: an event leads from a state to a state.
type Transition struct {
	Event EventName
	From  State
	To    State
}

// Transitions is THE table. The database's constraints and the diagram in the
// docs are made from it; Apply allows nothing else.
func Transitions() []Transition {
	return []Transition{
		{EventRefuse, Queued, Refused},

		// The ledger already knew this very request with the same digest:
		// straight to what its record says, without a start of ours.
		{EventAdopt, Queued, Dispatched},
		{EventAdopt, Queued, Succeeded},
		{EventAdopt, Queued, Failed},
		{EventAdopt, Queued, Uncertain},

		{EventClaim, Queued, Dispatching},

		{EventAcknowledge, Dispatching, Dispatched},
		{EventNotSent, Dispatching, Failed},

		// Evidence. From dispatching: it came before the master's answer.
		{EventFinish, Dispatching, Succeeded},
		{EventFinish, Dispatching, Failed},
		{EventFinish, Dispatched, Succeeded},
		{EventFinish, Dispatched, Failed},
		{EventFinish, Uncertain, Succeeded},
		{EventFinish, Uncertain, Failed},

		{EventLose, Dispatching, Uncertain},
		{EventLose, Dispatched, Uncertain},

		{EventSettle, Uncertain, Succeeded},
		{EventSettle, Uncertain, Failed},
	}
}

var allowed = func() map[Transition]bool {
	m := map[Transition]bool{}
	for _, t := range Transitions() {
		m[t] = true
	}
	return m
}()

// Event is something that happened to a receipt. At is when, by masterd's
// clock; Actor who says so: "masterd", or an operator's name. Only the fields
// that the event's name needs are read.
type Event struct {
	Name  EventName
	To    State // where an event leads to, for those that may lead to several
	At    time.Time
	Actor string
	Code  problem.Code

	Blocker *Blocker // refuse
	Detail  string   // refuse
	Claim   *Claim   // claim
	Counts  *Counts  // adopt, finish: what the ledger recorded
	Ledger  string   // adopt: the ledger whose record it is

	Settlement *Settlement // settle
}

// Claim is what is durable before the first byte of a start goes out.
type Claim struct {
	JID         string
	Ticket      string
	Fingerprint string
	Ledger      string
	TicketAt    time.Time
	Told        Told // by the prepare's answer; kept with the claim, for the target's ledger
}

// IllegalError says that an event doesn't fit the state it met. Whoever gets
// it has lost a race or has a defect; the receipt is unchanged.
type IllegalError struct {
	Request string
	Event   EventName
	From    State
	To      State
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("receipt %s: %s can't lead from %s to %s", e.Request, e.Event, e.From, e.To)
}

// Refuse makes the event that ends a queued receipt before anything started.
func Refuse(at time.Time, code problem.Code, blocker *Blocker) Event {
	return Event{Name: EventRefuse, To: Refused, At: at, Actor: ActorMasterd, Code: code, Blocker: blocker}
}

// ClaimStart makes the event that must be durable before the start is published.
func ClaimStart(at time.Time, c Claim) Event {
	return Event{Name: EventClaim, To: Dispatching, At: at, Actor: ActorMasterd, Claim: &c}
}

// Acknowledge makes the event for the master's answer that names our JID and
// exactly our target.
func Acknowledge(at time.Time) Event {
	return Event{Name: EventAcknowledge, To: Dispatched, At: at, Actor: ActorMasterd}
}

// SentNothing makes the event for the master's own answer that it sent nothing.
func SentNothing(at time.Time) Event {
	return Event{Name: EventNotSent, To: Failed, At: at, Actor: ActorMasterd, Code: problem.NotSent}
}

// ActorMasterd is the actor of every transition that no operator made.
const ActorMasterd = "masterd"

// Apply is the only function that changes a receipt. It returns the changed
// copy, or an *IllegalError and r unchanged.
func Apply(r Receipt, e Event) (Receipt, error) {
	if !allowed[Transition{e.Name, r.State, e.To}] {
		return r, &IllegalError{Request: r.Request, Event: e.Name, From: r.State, To: e.To}
	}
	if err := complete(r, e); err != nil {
		return r, err
	}
	next := r
	next.State = e.To
	next.Seq++
	next.Code = e.Code
	next.LostAt = time.Time{}
	if e.To == Uncertain {
		next.LostAt = e.At
	}
	next.Preflight = Preflight{Passed: 1, Total: 1}
	switch e.Name {
	case EventRefuse:
		next.Preflight = Preflight{Passed: 0, Total: 1}
		next.BlockedBy, next.Detail = e.Blocker, e.Detail
	case EventClaim:
		next.JID, next.Ticket = e.Claim.JID, e.Claim.Ticket
		next.Fingerprint, next.Ledger = e.Claim.Fingerprint, e.Claim.Ledger
		next.TicketAt = e.Claim.TicketAt
		next.DispatchedAt = e.At
	case EventAdopt:
		next.Ledger = e.Ledger
		next.DispatchedAt = e.At
	case EventSettle:
		next.Settled = true
	case EventAcknowledge, EventNotSent, EventFinish, EventLose:
	}
	next.Counts = countsAfter(next, e)
	if e.To.Terminal() {
		next.FinishedAt = e.At
	}
	return next, nil
}

// countsAfter gives the counts that hold once e is applied: those of the
// ledger where it recorded some; all declared states not run where it is
// proved that none ran; else no more than what is declared.
func countsAfter(next Receipt, e Event) Counts {
	switch {
	case e.Counts != nil:
		return *e.Counts
	case e.To == Refused, e.To == Failed && e.Name != EventSettle:
		return Counts{Declared: next.Declared, NotRun: next.Declared}
	default:
		return Counts{Declared: next.Declared}
	}
}

// complete checks that an event carries what its name needs, and that counts
// account for every state that r declares.
func complete(r Receipt, e Event) error {
	incomplete := func(what string) error {
		return problem.New(problem.Internal, "event %s without %s", e.Name, what)
	}
	switch {
	case e.At.IsZero():
		return incomplete("a time")
	case e.Actor == "":
		return incomplete("an actor")
	case e.Name == EventClaim && (e.Claim == nil || e.Claim.JID == "" || e.Claim.Ticket == ""):
		return incomplete("a claim")
	case e.Name == EventClaim && (r.FromLedger || r.Carried):
		return problem.New(problem.Internal, "request %s is never started by this database", r.Request)
	case e.Name == EventSettle && !e.Settlement.states(e):
		return incomplete("a settlement that says the same")
	case (e.To == Failed || e.To == Refused || e.To == Uncertain) && e.Code == "":
		return incomplete("a code")
	case e.To == Succeeded && e.Code != "":
		return problem.New(problem.Internal, "event %s succeeds with code %s", e.Name, e.Code)
	case e.To == Succeeded && e.Name != EventSettle && e.Counts == nil:
		return incomplete("counts")
	case e.Counts != nil && !e.Counts.account(r.declares(*e.Counts)):
		return problem.New(problem.Internal, "event %s has counts %+v for %d declared states", e.Name, *e.Counts, r.Declared)
	case e.Counts != nil && e.To == Succeeded && e.Counts.Passed != e.Counts.Declared:
		return problem.New(problem.Internal, "event %s succeeds with counts %+v", e.Name, *e.Counts)
	}
	return nil
}

// declares gives how many states r declares. For one that was made of a ledger
// that is only known from the ledger.
func (r Receipt) declares(c Counts) int {
	if r.FromLedger {
		return c.Declared
	}
	return r.Declared
}

// states says that a settlement is whole and says what the event says.
func (s *Settlement) states(e Event) bool {
	return s != nil && s.Outcome == e.To && s.By == e.Actor && s.Reason != "" && s.Observed != ""
}

// account says that counts are of so many declared states, each in one of them.
func (c Counts) account(declared int) bool {
	return c.Declared == declared && c.Passed >= 0 && c.Failed >= 0 && c.NotRun >= 0 &&
		c.Passed+c.Failed+c.NotRun == declared
}
