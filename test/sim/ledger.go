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
}

type ledgerCopy any

// ledgerSession is a turn at it.
type ledgerSession interface {
	Identity() (*ledger.Identity, error)
	Adopt(instance string) (*ledger.Identity, error)
	Record(request string) (*record, error)
	OpenRecords() ([]*record, error)
	Prepare(p ledger.Preparation, ticket string) error
	// Decide writes a fact. Where it is Fenced or NeverBegan, and that isn't
	// proved, the record is Lapsed, or stays as it is.
	HasTicket(r *record, ticket string) bool
	TicketLives(r *record) (bool, error)
	Decide(r *record, to ledger.State, code problem.Code, counts *message.Counts) error
	Close()
}

// record is what a ledger knows about one request.
type record struct {
	Request, Instance, Profile, Digest, Ledger string

	State  ledger.State
	Code   problem.Code
	Counts *message.Counts

	real *ledger.Record // of the real ledger
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
	identity *ledger.Identity
	records  map[string]modelRecord
}

type modelRecord struct {
	record
	ticket  string
	boot    string
	expires time.Duration
}

func newModel(machine ledger.Machine, draw func() string, broken Broken) *model {
	return &model{
		machine: machine, draw: draw, broken: broken, turn: make(chan struct{}, 1),
		d: ledgerData{records: map[string]modelRecord{}}, begun: map[string]modelRecord{},
	}
}

func (m *model) Copy() ledgerCopy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ledgerData{identity: m.d.identity, records: maps.Clone(m.d.records)}
}

func (m *model) Restore(c ledgerCopy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := c.(ledgerData)
	if ok {
		m.d = ledgerData{identity: d.identity, records: maps.Clone(d.records)}
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
		record: record{Request: p.Request, Instance: p.Instance, Profile: p.Profile, Digest: p.Digest, Ledger: p.Ledger, State: ledger.Prepared},
		ticket: ticket, boot: boot, expires: since + ledger.TicketLife,
	}
	if old.State != "" && old.State != ledger.Prepared { // its decision stays
		r.State, r.Code, r.Counts = old.State, old.Code, old.Counts
	}
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

// before says from which state a fact leads.
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
	case now == nil || known.State != before(to):
		return errTaken
	}
	known.State, known.Code, known.Counts = to, code, counts
	s.m.d.records[r.Request] = known
	r.State, r.Code, r.Counts = to, code, counts
	return s.m.testify(r.Request, known, to)
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
	case to == ledger.Finished && has && witness.State == ledger.Begun:
		witness.State, witness.Code, witness.Counts = to, known.Code, known.Counts
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
