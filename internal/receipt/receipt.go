// Package receipt is the domain: what masterd durably knows of a request, the
// one table of how a receipt's state may change, and the rules that decide
// what a new request is bound to. It is pure: no I/O, no clock of its own.
package receipt

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Profile is what kind of work a request asks for.
type Profile string

// The profiles. Only Custom is built so far; the others share its lease and
// its receipts (A15).
const (
	Custom     Profile = "custom"
	Configure  Profile = "configure"
	Production Profile = "production"
	Resize     Profile = "resize"
)

// Times of a receipt's life, from protocol.md.
const (
	TurnWait         = 60 * time.Second   // how long a receipt waits for its target's turn, from acceptance
	CustomWindow     = 90 * time.Second   // how long after acceptance a custom start may be claimed
	PrepareTimeout   = 20 * time.Second   // how long one prepare job may take
	TicketTrust      = 30 * time.Second   // how long after sending it masterd claims on a prepare's answer
	FenceAfter       = 130 * time.Second  // after it got the ticket, masterd's evidence may fence
	FirstLook        = 30 * time.Second   // first evidence after the dispatch without a hint
	LookInterval     = 10 * time.Minute   // evidence until terminal
	SaltWait         = 7200 * time.Second // what the Salt execution gets
	DispatchDeadline = 7250 * time.Second // after it, without a terminal answer: uncertain
)

// PollBudget is how many polls of status have to cover waiting and execution (A18).
const PollBudget = 250

// Counts account for the declared states of a run. Declared is known when the
// request is bound; Passed + Failed + NotRun equals it once the outcome is known.
type Counts struct {
	Declared, Passed, Failed, NotRun int
}

// Preflight says how many checks passed before the start (A16). Total is 1 for
// every profile, or 0 while nothing was checked yet.
type Preflight struct {
	Passed, Total int
}

// Blocker names the receipt that a refused one met.
type Blocker struct {
	Request string
	Profile Profile
	// Since is when it began to keep others away: a busy one with its dispatch
	// time, an uncertain one when it became uncertain. Zero: only a ledger knows
	// the request, and doesn't say.
	Since time.Time
}

// Blocker names r as what keeps others from its target. It is for a receipt that
// is busy or uncertain.
func (r Receipt) Blocker() *Blocker {
	b := &Blocker{Request: r.Request, Profile: r.Body.Profile, Since: r.DispatchedAt}
	if r.State == Uncertain {
		b.Since = r.LostAt
	}
	return b
}

// Binding is what a request is frozen to. Body holds the fields that make two
// requests the same; the rest are the first call's values and stay (protocol.md
// "Starting twice").
type Binding struct {
	Request     string // UUID, canonical lower-case
	Body        Body
	Requester   string
	AcceptUntil time.Time // zero: not given
	Claimed     string    // the digest that the caller gave, "" for none; compared once, not kept
	Declared    int       // how many results the source declares
	AcceptedAt  time.Time
}

// Body is the canonical body of a request. Two calls with one UUID and equal
// bodies are the same call; it is comparable with ==.
type Body struct {
	Target   string
	Instance string // UUID, canonical lower-case
	Profile  Profile
	Digest   string // semantic SHA-256, lower-case hex
	Revision int64
	Previous string // UUID or ""
	Again    bool
}

// Key is what reuse is decided by.
type Key struct {
	Target   string
	Instance string
	Profile  Profile
	Digest   string
}

// Key of a body.
func (b Body) Key() Key {
	return Key{Target: b.Target, Instance: b.Instance, Profile: b.Profile, Digest: b.Digest}
}

// Receipt is the durable record of one execution. Binding never changes; the
// rest changes through Apply only.
type Receipt struct {
	Binding
	State        State
	Seq          int // number of transitions so far; a write names it as what it believes
	Code         problem.Code
	JID          string // 20 digits, "" before the claim
	Ticket       string
	Fingerprint  string // of the minion's accepted key at the claim
	Ledger       string // ledger id that gave the ticket
	TicketAt     time.Time
	DispatchedAt time.Time
	FinishedAt   time.Time
	LostAt       time.Time // when it became uncertain; zero where it isn't
	Counts       Counts
	Preflight    Preflight
	BlockedBy    *Blocker
	Detail       string // a word of a closed list that explains Code, "" for none
	Settled      bool   // an operator's recorded settlement, not evidence
	// FromLedger: made of a target's ledger, which had a record of a request
	// that this database doesn't know. It has no source and is never started.
	FromLedger bool
	// Carried: bound before the epoch of the database. Where it was queued then,
	// it may have run since, in a past that was lost: it never starts now.
	Carried bool
}

// ExpiresAt is when a receipt without a terminal answer becomes uncertain, or,
// before the dispatch, when it can no longer be started (A17).
func (r Receipt) ExpiresAt() time.Time {
	if !r.DispatchedAt.IsZero() {
		return r.DispatchedAt.Add(DispatchDeadline)
	}
	return r.AcceptedAt.Add(CustomWindow)
}

// Target is what masterd recorded of a server when an operator adopted it.
type Target struct {
	ID          string
	Instance    string
	Fingerprint string
	Ledger      string
	Machine     string
	AdoptedAt   time.Time
	AdoptedBy   string
	Reason      string
	// Duplicate says that since this adoption two servers answered as this one:
	// the log of evidence holds a witness of the target with the code
	// duplicate_target. Only another adoption ends it.
	Duplicate bool
	// Generation is the highest that its ledger has told since this adoption. As
	// an adoption is recorded it is what the ledger told then, 0 for none.
	Generation uint64
	// PutBack says that since this adoption its ledger told less than was known
	// before it was asked. Only another adoption ends it.
	PutBack bool
}

// Bound is what a request stands for: its own receipt, or the execution that
// it was bound to.
type Bound struct {
	Request   string
	Body      Body // of this request; an alias may differ from its execution's
	Execution Receipt
	Reused    bool // Execution is another request's
}

// Witness is one authenticated statement about a request, kept as it came. It
// changes nothing by itself.
type Witness struct {
	Request  string
	At       time.Time
	Kind     string // of the message that was answered
	Result   string
	Code     problem.Code
	Counts   *Counts
	Ledger   string
	Conflict bool // it contradicts what the receipt said already
	// Told is kept with it, for the target's ledger; it isn't read back.
	Told Told
}
