package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// ledgerStore is a minion's ledger, as internal/ledger has it.
type ledgerStore interface {
	Lock(ctx context.Context) (ledgerSession, error)
	// Copy, Restore and Lose are what happens to its folder from outside.
	Copy() ledgerCopy
	Restore(ledgerCopy)
	Lose()
	// Reboot takes away what is outside of the folder and lost with the boot.
	Reboot()
	// Generation only grows, but where the folder is put back.
	Generation() uint64
}

type ledgerCopy any

// ledgerSession is a turn at it.
type ledgerSession interface {
	Identity() (*ledger.Identity, error)
	Adopt(instance string) (*ledger.Identity, error)
	Record(request string) (*record, error)
	OpenRecords() ([]*record, error)
	// NewTicket makes a ticket for the question with a nonce; TicketFor gives the
	// one that it got before, "" for none.
	NewTicket(nonce string, drawn []byte) (salt, ticket string, err error)
	TicketFor(r *record, nonce string) string
	Prepare(p ledger.Preparation, ticket string) error
	// Decide writes a fact. Where it is Fenced or NeverBegan, and that isn't
	// proved, the record is Lapsed, or stays as it is.
	HasTicket(r *record, ticket string) bool
	// Knew says that it is or was the record's ticket.
	Knew(r *record, ticket string) bool
	TicketLives(r *record) (bool, error)
	Decide(r *record, to ledger.State, code problem.Code, counts *message.Counts) error
	// Settle writes an operator's word over an unfinished record, whose lease
	// was found free.
	Settle(r *record, outcome message.Outcome) error
	Close()
}

// record is what a ledger knows about one request.
type record struct {
	Request, Instance, Profile, Digest, Ledger string

	State   ledger.State
	Code    problem.Code
	Counts  *message.Counts
	Outcome message.Outcome // of one that an operator settled

	ticket string         // of the model
	real   *ledger.Record // of the real ledger
}

func (r *record) unfinished() bool { return r.State == ledger.Started || r.State == ledger.Begun }

var errTaken = errors.New("decided already")

func isTaken(err error) bool { return errors.Is(err, errTaken) || ledger.IsTaken(err) }

// model is the ledger in memory: the same facts and the same exclusions,
// without files.
type model struct {
	machine ledger.Machine
	draw    func() string // a new ledger id
	broken  Broken
	turn    chan struct{}
	mu      sync.Mutex
	d       ledgerData
	begun   map[string]modelRecord // witnesses of this boot, outside of the folder
	hasRun  bool                   // there is a place for them
}

type ledgerData struct {
	identity   *ledger.Identity
	records    map[string]modelRecord
	generation uint64 // facts that were written, or begun to be
}

type modelRecord struct {
	record
	former  []string // tickets that it replaced, the last few
	given   []given  // to whom, of all of these
	boot    string
	expires time.Duration
}

// given is a ticket and the nonce of the question that got it.
type given struct{ nonce, ticket string }

func newModel(machine ledger.Machine, draw func() string, broken Broken) *model {
	return &model{
		machine: machine, draw: draw, broken: broken, turn: make(chan struct{}, 1),
		d: ledgerData{records: map[string]modelRecord{}}, begun: map[string]modelRecord{},
	}
}

func (m *model) Copy() ledgerCopy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ledgerData{identity: m.d.identity, records: maps.Clone(m.d.records), generation: m.d.generation}
}

func (m *model) Restore(c ledgerCopy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := c.(ledgerData)
	if ok {
		m.d = ledgerData{identity: d.identity, records: maps.Clone(d.records), generation: d.generation}
	}
}

func (m *model) Lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.d = ledgerData{records: map[string]modelRecord{}}
}

func (m *model) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun, m.hasRun = map[string]modelRecord{}, false
}

func (m *model) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.d.generation
}

func (m *model) Lock(ctx context.Context) (ledgerSession, error) {
	if m.broken == NotExclusive {
		return &modelSession{m: m}, nil
	}
	select {
	case m.turn <- struct{}{}:
		return &modelSession{m: m, locked: true}, nil
	case <-ctx.Done():
		return nil, problem.Wrap(ledger.Locked, ctx.Err(), "another executor holds the lock")
	}
}

type modelSession struct {
	m      *model
	locked bool
}

func (s *modelSession) Close() {
	if s.locked {
		<-s.m.turn
		s.locked = false
	}
}

func (s *modelSession) Identity() (*ledger.Identity, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.d.identity, nil
}

func (s *modelSession) Adopt(instance string) (*ledger.Identity, error) {
	machine, err := s.m.machine.MachineID()
	if err != nil {
		return nil, err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if old := s.m.d.identity; old != nil && old.Instance == instance && old.Machine == machine {
		return old, nil
	}
	s.m.d.generation++
	s.m.d.identity = &ledger.Identity{Version: 1, Ledger: s.m.draw(), Instance: instance, Machine: machine}
	return s.m.d.identity, nil
}

var errDamaged = problem.New(ledger.Damaged, "a record doesn't fit the rest of it")

func (s *modelSession) Record(request string) (*record, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.read(request)
}

func (m *model) read(request string) (*record, error) {
	r, ok := m.d.records[request]
	if witness, has := m.begun[request]; has {
		switch {
		case ok && (r.State == ledger.Fenced || r.State == ledger.Refused || r.State == ledger.NeverBegan):
			return nil, errDamaged // it says that it never ran
		case !ok || r.State == ledger.Prepared || r.State == ledger.Started || r.State == ledger.Lapsed,
			r.State == ledger.Begun && witness.State != ledger.Begun && witness.ticket == r.ticket:
			r, ok = witness, true
			m.d.records[request] = r
			m.d.generation++
		}
	}
	if !ok {
		return nil, nil
	}
	out := r.record
	return &out, nil
}

func (s *modelSession) OpenRecords() (out []*record, err error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.m.d.records))
	for _, request := range slices.Sorted(maps.Keys(s.m.begun)) {
		if _, there := s.m.d.records[request]; !there && s.m.begun[request].State == ledger.Begun {
			names = append(names, request)
		}
	}
	for _, request := range names {
		r, err := s.m.read(request)
		if err != nil {
			return nil, err
		}
		if r.State == ledger.Prepared || r.unfinished() {
			out = append(out, r)
		}
	}
	return out, nil
}

func (s *modelSession) Prepare(p ledger.Preparation, ticket string) error {
	open, err := s.OpenRecords()
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.State == ledger.Prepared && r.Request != p.Request {
			if err := s.Decide(r, ledger.Fenced, problem.NeverStarted, nil); err != nil {
				return err
			}
		}
	}
	boot, since, err := s.now()
	if err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.hasRun = true
	old := s.m.d.records[p.Request]
	r := modelRecord{
		record: record{
			Request: p.Request, Instance: p.Instance, Profile: p.Profile, Digest: p.Digest, Ledger: p.Ledger,
			State: ledger.Prepared, ticket: ticket,
		},
		given: []given{{p.Salt, ticket}}, boot: boot, expires: since + ledger.TicketLife,
	}
	if old.State == ledger.Prepared {
		r.former, r.given = append(slices.Clone(old.former), old.ticket), append(slices.Clone(old.given), r.given...)
		r.former, r.given = r.former[max(0, len(r.former)-maxFormer):], r.given[max(0, len(r.given)-maxFormer-1):]
	}
	if old.State != "" && old.State != ledger.Prepared { // its decision stays
		r.State, r.Code, r.Counts, r.Outcome = old.State, old.Code, old.Counts, old.Outcome
	}
	s.m.d.generation++
	s.m.d.records[p.Request] = r
	return nil
}

func (s *modelSession) now() (boot string, since time.Duration, err error) {
	if boot, err = s.m.machine.BootID(); err != nil {
		return "", 0, err
	}
	since, err = s.m.machine.SinceBoot()
	return boot, since, err
}

func (s *modelSession) HasTicket(r *record, ticket string) bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.d.records[r.Request].ticket == ticket
}

// maxFormer is how many replaced tickets a record remembers.
const maxFormer = 4

func (s *modelSession) Knew(r *record, ticket string) bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	known := s.m.d.records[r.Request]
	return known.ticket == ticket || slices.Contains(known.former, ticket)
}

// NewTicket keeps the nonce itself in the place of a salt.
func (s *modelSession) NewTicket(nonce string, drawn []byte) (salt, ticket string, err error) {
	return nonce, hexOf(drawn), nil
}

func (s *modelSession) TicketFor(r *record, nonce string) string {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, g := range s.m.d.records[r.Request].given {
		if g.nonce == nonce {
			return g.ticket
		}
	}
	return ""
}

func (s *modelSession) TicketLives(r *record) (bool, error) {
	if r.State != ledger.Prepared {
		return false, nil
	}
	boot, since, err := s.now()
	if err != nil {
		return false, err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	known := s.m.d.records[r.Request]
	thisBoot := boot == known.boot || s.m.broken == TicketNotBoundToBoot
	inTime := since < known.expires || s.m.broken == TicketLivesForEver
	return thisBoot && inTime, nil
}

// follows says that a fact may be written over a state.
func follows(to, state ledger.State) bool {
	return state == before(to) || to == ledger.Settled && state == ledger.Started
}

// before says from which state a fact leads, among others.
func before(to ledger.State) ledger.State {
	switch to {
	case ledger.Started, ledger.Fenced, ledger.Lapsed:
		return ledger.Prepared
	case ledger.Begun, ledger.Refused, ledger.NeverBegan:
		return ledger.Started
	case ledger.Finished, ledger.Settled:
		return ledger.Begun
	case ledger.Prepared:
	}
	return ""
}

func (s *modelSession) Decide(r *record, to ledger.State, code problem.Code, counts *message.Counts) error {
	boot, _, err := s.now()
	if err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now, err := s.m.read(r.Request)
	if err != nil {
		return err
	}
	known := s.m.d.records[r.Request]
	if proved := boot == known.boot; !proved && to == ledger.Fenced {
		to, code = ledger.Lapsed, ""
	} else if !proved && to == ledger.NeverBegan {
		return nil
	}
	switch {
	case s.m.broken == NotExclusive && before(to) == ledger.Prepared && before(known.State) == ledger.Prepared:
		// Fence and start are two files: neither excludes the other.
	case now == nil || !follows(to, known.State) || known.ticket != r.ticket:
		return errTaken
	}
	s.m.d.generation++
	known.State, known.Code, known.Counts = to, code, counts
	s.m.d.records[r.Request] = known
	r.State, r.Code, r.Counts = to, code, counts
	return s.m.testify(r.Request, known, to)
}

// Settle is Decide for an operator's word.
func (s *modelSession) Settle(r *record, outcome message.Outcome) error {
	if !r.unfinished() {
		return problem.New(problem.Internal, "only what is unfinished is settled")
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now, err := s.m.read(r.Request)
	if err != nil {
		return err
	}
	known := s.m.d.records[r.Request]
	if now == nil || !follows(ledger.Settled, known.State) || known.ticket != r.ticket {
		return errTaken
	}
	s.m.d.generation++
	known.State, known.Code, known.Counts, known.Outcome = ledger.Settled, "", nil, outcome
	s.m.d.records[r.Request] = known
	r.State, r.Code, r.Counts, r.Outcome = ledger.Settled, "", nil, outcome
	return s.m.testify(r.Request, known, ledger.Settled)
}

// testify leaves, outside of the folder, that an effect is handed over, and
// later what came of it. Handing it over twice in a boot is refused.
func (m *model) testify(request string, known modelRecord, to ledger.State) error {
	witness, has := m.begun[request]
	switch {
	case to == ledger.Begun && has:
		return errTaken
	case to == ledger.Begun && !m.hasRun:
		return problem.New(problem.LedgerUnwritable, "there is no place for a witness")
	case to == ledger.Begun:
		known.State, known.Code, known.Counts = ledger.Begun, "", nil
		m.begun[request] = known
	case (to == ledger.Finished || to == ledger.Settled) && has && witness.State == ledger.Begun:
		witness.State, witness.Code, witness.Counts, witness.Outcome = to, known.Code, known.Counts, known.Outcome
		m.begun[request] = witness
	}
	return nil
}

func newLedgerID(prefix string) func() string {
	n := 0
	return func() string {
		n++
		return fmt.Sprintf("%s-%d", prefix, n)
	}
}
