package sim

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// RealLedgers makes ledgers of internal/ledger below a folder. Each turn opens
// the ledger anew, as each executor process does.
func RealLedgers(dir string) func(name string, m *minion) ledgerStore {
	return func(name string, m *minion) ledgerStore {
		return &realLedger{dir: filepath.Join(dir, name), machine: m.facts()}
	}
}

type realLedger struct {
	dir     string
	machine ledger.Machine
}

func (r *realLedger) open() (*ledger.Ledger, error) {
	return ledger.Open(ledger.Config{Dir: r.dir, RunDir: r.dir + ".run", Machine: r.machine, Random: rand.Reader})
}

func (r *realLedger) Generation() uint64 {
	l, err := r.open()
	if err != nil {
		return 0
	}
	g, err := l.Generation()
	if err != nil {
		return 0
	}
	return g
}

func (r *realLedger) Lock(ctx context.Context) (ledgerSession, error) {
	l, err := r.open()
	if err != nil {
		return nil, err
	}
	s, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &realSession{Session: s, l: l, r: r}, nil
}

// realCopy holds the files of a folder.
type realCopy map[string][]byte

func (r *realLedger) Copy() ledgerCopy {
	c := realCopy{}
	_ = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if rel, relErr := filepath.Rel(r.dir, path); relErr == nil && err == nil {
			c[rel] = raw
		}
		return nil
	})
	return c
}

func (r *realLedger) Restore(c ledgerCopy) {
	files, ok := c.(realCopy)
	if !ok {
		return
	}
	r.Lose()
	for rel, raw := range files {
		path := filepath.Join(r.dir, rel)
		_ = os.MkdirAll(filepath.Dir(path), 0o700)
		_ = os.WriteFile(path, raw, 0o600)
	}
}

func (r *realLedger) Lose() { _ = os.RemoveAll(r.dir) }

func (r *realLedger) Reboot() { _ = os.RemoveAll(r.dir + ".run") }

type realSession struct {
	*ledger.Session
	l *ledger.Ledger
	r *realLedger
}

// Identity tells the machine-id as the model does: the ledger keeps its hash.
func (s *realSession) Identity() (*ledger.Identity, error) { return s.plain(s.Session.Identity()) }

func (s *realSession) Adopt(instance string) (*ledger.Identity, error) {
	return s.plain(s.Session.Adopt(instance))
}

func (s *realSession) plain(id *ledger.Identity, err error) (*ledger.Identity, error) {
	if err != nil || id == nil {
		return nil, err
	}
	out := *id
	if hashed, err := s.l.Machine(); err == nil && hashed == id.Machine {
		out.Machine, _ = s.r.machine.MachineID()
	}
	return &out, nil
}

func (s *realSession) Record(request string) (*record, error) {
	r, err := s.Session.Record(request)
	if err != nil || r == nil {
		return nil, err
	}
	return recordOf(r), nil
}

func recordOf(r *ledger.Record) *record {
	return &record{
		Request: r.Request, Instance: r.Instance, Profile: r.Profile, Digest: r.Digest, Ledger: r.Ledger,
		State: r.State, Code: r.Code, Counts: r.Counts, Outcome: r.Outcome, real: r,
	}
}

func (s *realSession) OpenRecords() (out []*record, err error) {
	all, err := s.Session.OpenRecords()
	for _, r := range all {
		out = append(out, recordOf(r))
	}
	return out, err
}

func (s *realSession) HasTicket(r *record, ticket string) bool { return r.real.HasTicket(ticket) }

func (s *realSession) NewTicket(nonce string, _ []byte) (salt, ticket string, err error) {
	return s.l.NewTicket(nonce)
}

func (s *realSession) TicketFor(r *record, nonce string) string { return r.real.TicketFor(nonce) }

func (s *realSession) Knew(r *record, ticket string) bool { return r.real.Knew(ticket) }

func (s *realSession) TicketLives(r *record) (bool, error) { return s.Session.TicketLives(r.real) }

func (s *realSession) Decide(r *record, to ledger.State, code problem.Code, counts *message.Counts) error {
	var err error
	switch to {
	case ledger.Started:
		err = s.Start(r.real)
	case ledger.Fenced:
		err = s.GiveUp(r.real, code)
	case ledger.Begun:
		err = s.Begin(r.real)
	case ledger.Refused:
		err = s.Refuse(r.real, code)
	case ledger.NeverBegan:
		lease, probe := s.l.ProbeLease()
		if probe != nil {
			return probe
		}
		defer lease.Release()
		err = s.NeverBegan(r.real, lease)
	case ledger.Finished:
		err = s.Finish(r.real, code, *counts)
	case ledger.Prepared, ledger.Lapsed, ledger.Settled:
		err = fmt.Errorf("a record isn't decided to be %s", to)
	}
	if err == nil {
		r.State, r.Code, r.Counts = r.real.State, r.real.Code, r.real.Counts
	}
	return err
}

func (s *realSession) Settle(r *record, outcome message.Outcome) error {
	lease, err := s.l.ProbeLease()
	if err != nil {
		return err
	}
	defer lease.Release()
	err = s.Session.Settle(r.real, outcome, lease)
	if err == nil {
		r.State, r.Code, r.Counts, r.Outcome = r.real.State, r.real.Code, r.real.Counts, r.real.Outcome
	}
	return err
}
