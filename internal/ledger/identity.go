package ledger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	identityFile    = "identity.json"
	identityVersion = 1

	countersFile    = "counters.json"
	countersVersion = 1
	maxCounters     = 100
)

// Identity says whose ledger this is.
type Identity struct {
	Version  int       `json:"version"`
	Ledger   string    `json:"ledger"`   // random, new with each identity
	Instance string    `json:"instance"` // UUID of the server
	Machine  string    `json:"machine"`  // machine-id, hashed
	At       time.Time `json:"at"`
}

// Machine gives this machine's id as it is kept and told.
func (l *Ledger) Machine() (string, error) { return l.machine.hashed() }

// Identity reads the identity file, nil if there is none.
func (s *Session) Identity() (*Identity, error) {
	var id Identity
	ok, err := load(s.l.path(identityFile), identityVersion, &id)
	if err != nil || !ok {
		return nil, err
	}
	if id.Ledger == "" || id.Instance == "" || id.Machine == "" {
		return nil, problem.New(Damaged, "the ledger: its identity file is incomplete")
	}
	return &id, nil
}

// Adopt makes this the ledger of an instance on this machine. Where it is that
// already nothing changes. Otherwise a new ledger id is drawn; the former
// identity is kept beside, and all records stay.
func (s *Session) Adopt(instance string) (*Identity, error) {
	machine, err := s.l.Machine()
	if err != nil {
		return nil, err
	}
	old, err := s.Identity()
	if err != nil {
		return nil, err
	}
	if old != nil && old.Instance == instance && old.Machine == machine {
		return old, nil
	}
	var id [16]byte
	if _, err := io.ReadFull(s.l.random, id[:]); err != nil {
		return nil, problem.Wrap(problem.Internal, err, "no ledger id can be drawn")
	}
	next := Identity{
		Version: identityVersion, Ledger: hex.EncodeToString(id[:]), Instance: instance, Machine: machine,
		At: s.l.machine.Now().UTC(),
	}
	if old != nil {
		err := os.Link(s.l.path(identityFile), s.l.path("identity-"+old.Ledger+".json"))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, unwritable(err, "the former identity can't be kept")
		}
	}
	if err := s.l.replace(s.l.dir, identityFile, "identity", next); err != nil {
		return nil, err
	}
	return &next, nil
}

// Counters counts what changed nothing, by reason.
type Counters struct {
	Version int            `json:"version"`
	Counts  map[string]int `json:"counts"`
}

// Counters reads the counters. What can't be read counts from zero.
func (s *Session) Counters() Counters {
	var c Counters
	if ok, err := load(s.l.path(countersFile), countersVersion, &c); err != nil || !ok || c.Counts == nil {
		c = Counters{Version: countersVersion, Counts: map[string]int{}}
	}
	return c
}

// Count counts one message that changed nothing. It is not synced: a crash may
// lose a count, and a full disk does.
func (s *Session) Count(reason problem.Code) {
	c := s.Counters()
	if _, known := c.Counts[string(reason)]; !known && len(c.Counts) >= maxCounters {
		return
	}
	c.Counts[string(reason)]++
	raw, err := json.Marshal(c)
	if err != nil {
		return
	}
	name, err := s.l.tempName()
	if err != nil {
		return
	}
	temp := s.l.path(name)
	if err := os.WriteFile(temp, append(raw, '\n'), fileMode); err == nil {
		err = os.Rename(temp, s.l.path(countersFile))
		if err == nil {
			return
		}
	}
	_ = os.Remove(temp)
}
