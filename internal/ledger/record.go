package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// recordVersion is the newest version of a record's files that this executor
// reads. It reads all older ones. Version 2 brought the facts lapsed and
// settled; whatever an executor of version 1 can read is still written as 1, so
// that it refuses a record (ledger_newer) only where it would misread it.
const recordVersion = 2

func versionOf(kind State) int {
	if kind == Lapsed || kind == Settled {
		return recordVersion
	}
	return 1
}

// TicketLife is how long a ticket lives.
const TicketLife = 120 * time.Second

// State says how far a record got. Each of them is decided by which of its
// files are there.
type State string

// The states. Only Started and Begun are unfinished.
const (
	Prepared   State = "prepared"    // may start under its ticket
	Fenced     State = "fenced"      // will never start, and provably never did
	Lapsed     State = "lapsed"      // will never start; whether it did is not proved
	Started    State = "started"     // its effect may begin any moment, under the lease
	Refused    State = "refused"     // started, and provably ran nothing: converting failed, or a state run was active
	NeverBegan State = "never_began" // started, and provably ran nothing: its job was gone before the effect
	Begun      State = "begun"       // its effect may have happened
	Finished   State = "finished"
	Settled    State = "settled" // an operator said what came of it
)

// Record is all that a ledger knows about one request.
type Record struct {
	Request  string
	Target   string
	Instance string
	Profile  string
	Digest   string
	Ledger   string // id of the ledger that it was prepared in
	State    State
	Code     problem.Code    // of Fenced, Refused and Finished; "" is a success
	Counts   *message.Counts // of Finished
	Outcome  message.Outcome // of Settled

	PreparedAt time.Time
	DecidedAt  time.Time // started or fenced
	EffectAt   time.Time
	FinishedAt time.Time // finished or settled

	prepared preparedFact
}

// Unfinished says that the record was started and that nothing proves what
// came of it.
func (r *Record) Unfinished() bool { return r.State == Started || r.State == Begun }

// neverRan says that the record proves that it had no effect.
func (r *Record) neverRan() bool {
	return r.State == Fenced || r.State == Refused || r.State == NeverBegan
}

// HasTicket says whether ticket is the record's current one, dead or alive.
func (r *Record) HasTicket(ticket string) bool {
	return subtle.ConstantTimeCompare([]byte(ticketSum(ticket)), []byte(r.prepared.TicketSum)) == 1
}

// Knew says whether ticket is or was the record's. Only whoever asks about such
// a one asks about this record, and not about what it became on another copy of
// the ledger.
func (r *Record) Knew(ticket string) bool {
	return r.HasTicket(ticket) || slices.Contains(r.prepared.Former, formerSum(ticketSum(ticket)))
}

// NewTicket draws a ticket for the question with a nonce, and the salt that it is
// made with.
func (l *Ledger) NewTicket(nonce string) (salt, ticket string, err error) {
	var drawn [8]byte // beside the 16 of the nonce, which is sealed on its way
	if _, err := io.ReadFull(l.random, drawn[:]); err != nil {
		return "", "", problem.Wrap(problem.Internal, err, "no ticket can be drawn")
	}
	salt = hex.EncodeToString(drawn[:])
	return salt, ticketOf(salt, nonce), nil
}

func ticketOf(salt, nonce string) string {
	mac := hmac.New(sha256.New, []byte(salt))
	mac.Write([]byte(nonce))
	return hex.EncodeToString(mac.Sum(nil)[:message.TicketSize])
}

// TicketFor gives the ticket that the question with a nonce got before, "" if it
// got none. A question that is delivered twice has one answer: two tickets would
// look like two minions, which draw a salt each.
func (r *Record) TicketFor(nonce string) string {
	for _, salt := range r.prepared.Salts {
		if ticket := ticketOf(salt, nonce); r.Knew(ticket) {
			return ticket
		}
	}
	return ""
}

// maxFormer is how many replaced tickets a record remembers.
const maxFormer = 4

func formerSum(sum string) string { return sum[:16] }

// former are the tickets that a new one replaces.
func (r *Record) former() []string {
	all := append(slices.Clone(r.prepared.Former), formerSum(r.prepared.TicketSum))
	return all[max(0, len(all)-maxFormer):]
}

// salts are those of the former tickets and the one of a new one.
func (r *Record) salts(salt string) []string {
	all := append(slices.Clone(r.prepared.Salts), salt)
	return all[max(0, len(all)-maxFormer-1):]
}

// ticketSum is kept instead of the ticket: nobody who reads the ledger, or a
// backup of it, learns one.
func ticketSum(ticket string) string {
	sum := sha256.Sum256([]byte(ticket))
	return hex.EncodeToString(sum[:])
}

// The files of a record.
const (
	preparedFile = "prepared.json"
	decisionFile = "decision.json"
	effectFile   = "effect.json"
	outcomeFile  = "outcome.json"
)

type preparedFact struct {
	Version   int           `json:"version"`
	Request   string        `json:"request"`
	Target    string        `json:"target"`
	Instance  string        `json:"instance"`
	Profile   string        `json:"profile"`
	Digest    string        `json:"digest"`
	Ledger    string        `json:"ledger"`
	TicketSum string        `json:"ticket_sha256"`
	Former    []string      `json:"former,omitempty"` // replaced tickets, hashed and cut
	Salts     []string      `json:"salts,omitempty"`  // of those tickets, this one's last
	Boot      string        `json:"boot"`
	Run       string        `json:"run,omitempty"` // id of the folder for this boot
	Expires   time.Duration `json:"expires_ns_since_boot"`
	At        time.Time     `json:"at"`
}

// fact is a decision, an effect or an outcome. Outcome belongs to Settled.
type fact struct {
	Version int             `json:"version"`
	Kind    State           `json:"kind"`
	Code    problem.Code    `json:"code,omitempty"`
	Counts  *message.Counts `json:"counts,omitempty"`
	Outcome message.Outcome `json:"outcome,omitempty"`
	At      time.Time       `json:"at"`
}

// follows says which states a fact may follow.
var follows = map[State][]State{
	Started: {Prepared}, Fenced: {Prepared}, Lapsed: {Prepared},
	Begun: {Started}, Refused: {Started}, NeverBegan: {Started},
	Finished: {Begun}, Settled: {Started, Begun},
}

// readRecord reads a record's files. It is nil where nothing was prepared.
func readRecord(dir, request string) (*Record, error) {
	var p preparedFact
	ok, err := load(dir+"/"+preparedFile, recordVersion, &p)
	if err != nil || !ok {
		return nil, err
	}
	if p.Request != request {
		return nil, problem.New(Damaged, "the ledger: a record is in the folder of another request")
	}
	r := &Record{
		Request: p.Request, Target: p.Target, Instance: p.Instance, Profile: p.Profile, Digest: p.Digest,
		Ledger: p.Ledger, State: Prepared, PreparedAt: p.At, prepared: p,
	}
	for _, next := range []struct {
		file  string
		kinds []State
		at    *time.Time
	}{
		{decisionFile, []State{Started, Fenced, Lapsed}, &r.DecidedAt},
		{effectFile, []State{Begun, Refused, NeverBegan}, &r.EffectAt},
		{outcomeFile, []State{Finished, Settled}, &r.FinishedAt},
	} {
		var f fact
		ok, err := load(dir+"/"+next.file, recordVersion, &f)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if !slices.Contains(next.kinds, f.Kind) || !slices.Contains(follows[f.Kind], r.State) {
			return nil, problem.New(Damaged, "the ledger: %s of a record doesn't fit the rest of it", next.file)
		}
		r.State, r.Code, r.Counts, r.Outcome, *next.at = f.Kind, f.Code, f.Counts, f.Outcome, f.At
	}
	if r.State == Finished && r.Counts == nil {
		return nil, problem.New(Damaged, "the ledger: a finished record has no counts")
	}
	if r.State == Settled && !r.Outcome.Valid() {
		return nil, problem.New(Damaged, "the ledger: a settled record has no outcome")
	}
	return r, nil
}
