package minion

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/pluginhost"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// Codes of what stops a start without a word about the request.
const (
	// StartDisregarded counts starts under a ticket that isn't the record's.
	StartDisregarded problem.Code = "start_disregarded"
	// LeaseUnproved: the Salt process says that it holds the lease, and it
	// doesn't, or not for this request.
	LeaseUnproved problem.Code = "lease_unproved"
)

// start runs a prepared request, once.
func (c *call) start(ctx context.Context) (message.Answer, error) {
	if a, err := c.admit(ctx); err != nil || a.Result != "" {
		return a, err
	}
	held, err := c.talk.Lease(c.m.Request, leaseWait)
	if err != nil {
		return message.Answer{}, err
	}
	if !held {
		return c.fenceLocked(ctx)
	}
	if err := c.Hook.Do(StepLease, c.proveLease); err != nil {
		return message.Answer{}, err
	}
	// The job is marked as a state run before it is looked whether another one
	// is active: of two that do so, at least one sees the other.
	if c.facts, err = c.talk.Facts(); err != nil {
		return message.Answer{}, err
	}
	r, a, err := c.begin(ctx)
	if err != nil || a.Result != "" {
		return a, err
	}
	high, doc, err := c.convert(ctx)
	if err != nil {
		c.Log.Warn("a start is given up before its effect", "request", r.Request, "error", err)
		return c.refuse(ctx, r, problem.StartRefusedPluginMismatch)
	}
	if c.facts, err = c.talk.Facts(); err != nil {
		return message.Answer{}, err
	}
	if c.facts.StateRunning {
		return c.refuse(ctx, r, problem.StartRefusedStateRunning)
	}
	if a, err := c.record(ctx, lockWait, r, func(s *ledger.Session) error { return s.Begin(r) }); err != nil || a.Result != "" {
		return a, err
	}
	var ran Ran
	err = c.Hook.Do(StepRun, func() error {
		ran, err = c.talk.Run(r.Request, high)
		return err
	})
	if err != nil {
		return message.Answer{}, err
	}
	return c.finish(ctx, r, account(doc, ran))
}

// admit answers every start that needs no lease: of an unknown or decided
// request, or under a ticket that isn't the current one or is dead.
func (c *call) admit(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return message.Answer{}, err
	}
	defer s.Close()
	_, a, err := c.admitIn(s)
	return a, err
}

func (c *call) admitIn(s *ledger.Session) (*ledger.Record, message.Answer, error) {
	id, err := s.Identity()
	if err != nil {
		return nil, message.Answer{}, err
	}
	r, err := s.Record(c.m.Request)
	if err != nil {
		return nil, message.Answer{}, err
	}
	if !c.isOurs(id) || r == nil || !r.HasTicket(c.m.Ticket) || r.Instance != c.m.Instance || r.Instance != id.Instance {
		s.Count(StartDisregarded)
		return nil, message.Answer{Result: message.Disregarded}, nil
	}
	if r.State != ledger.Prepared {
		a, err := c.look(s, r)
		return nil, a, err
	}
	lives, err := s.TicketLives(r)
	if err != nil {
		return nil, message.Answer{}, err
	}
	if !lives {
		a, err := c.fence(s, r, problem.StartRefusedTicket)
		return nil, a, err
	}
	return r, message.Answer{}, nil
}

// fence decides that a record never starts, and answers what its record says,
// whoever decided it. Where it isn't proved that it never did, it lapses.
func (c *call) fence(s *ledger.Session, r *ledger.Record, code problem.Code) (message.Answer, error) {
	if err := s.GiveUp(r, code); err != nil && !ledger.IsTaken(err) {
		return message.Answer{}, err
	}
	return c.lookAgain(s, r)
}

// lookAgain answers what a record says that isn't, or is no more, as r was read.
func (c *call) lookAgain(s *ledger.Session, r *ledger.Record) (message.Answer, error) {
	now, err := s.Record(r.Request)
	if err != nil {
		return message.Answer{}, err
	}
	if now == nil { // the ledger was taken away meanwhile
		s.Count(StartDisregarded)
		return message.Answer{Result: message.Disregarded}, nil
	}
	return c.look(s, now)
}

// fenceLocked: the lease stayed busy.
func (c *call) fenceLocked(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return message.Answer{}, err
	}
	defer s.Close()
	r, a, err := c.admitIn(s)
	if err != nil || a.Result != "" {
		return a, err
	}
	return c.fence(s, r, problem.StartRefusedLocked)
}

// proveLease believes nobody: the lease has to be held, and for this request.
func (c *call) proveLease() error {
	lease, err := c.ledger.ProbeLease()
	if err != nil {
		return err
	}
	lease.Release()
	if !lease.Held || lease.Holder != c.m.Request {
		return problem.New(LeaseUnproved, "the lease isn't held for this request")
	}
	return nil
}

// begin decides, under the lease, that the record is started.
func (c *call) begin(ctx context.Context) (*ledger.Record, message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, message.Answer{}, err
	}
	defer s.Close()
	r, a, err := c.admitIn(s)
	if err != nil || a.Result != "" {
		return nil, a, err
	}
	if code, err := c.refusal(s, r); err != nil || code != "" {
		if err == nil {
			a, err = c.fence(s, r, code)
		}
		return nil, a, err
	}
	if err := s.Start(r); err != nil {
		if ledger.IsTaken(err) {
			a, err = c.lookAgain(s, r)
		}
		return nil, a, err
	}
	return r, message.Answer{}, nil
}

// refusal says why a live ticket can't be used after all, "" if it can.
func (c *call) refusal(s *ledger.Session, r *ledger.Record) (problem.Code, error) {
	sum := sha256.Sum256(c.body.Canonical)
	if c.m.Digest != r.Digest || hex.EncodeToString(sum[:]) != r.Digest || c.body.Profile != r.Profile {
		return problem.StartRefusedDigest, nil
	}
	if c.facts.StateRunning {
		return problem.StartRefusedStateRunning, nil
	}
	open, err := s.OpenRecords()
	if err != nil {
		return "", err
	}
	for _, other := range open {
		if other.Request != r.Request && other.Unfinished() {
			return problem.StartRefusedLocked, nil
		}
	}
	return "", nil
}

// record writes a fact of a record in a turn of its own, for which it waits.
// Where the fact is taken it answers what the record says.
func (c *call) record(ctx context.Context, wait time.Duration, r *ledger.Record, write func(*ledger.Session) error) (message.Answer, error) {
	s, err := c.sessionWithin(ctx, wait)
	if err != nil {
		return message.Answer{}, err
	}
	defer s.Close()
	err = write(s)
	if ledger.IsTaken(err) {
		return c.lookAgain(s, r)
	}
	return message.Answer{}, err
}

// refuse closes a started record before its effect.
func (c *call) refuse(ctx context.Context, r *ledger.Record, code problem.Code) (message.Answer, error) {
	a, err := c.record(ctx, lockWait, r, func(s *ledger.Session) error { return s.Refuse(r, code) })
	if err != nil || a.Result != "" {
		return a, err
	}
	return about(r, message.Answer{Result: message.Fenced, Code: code}), nil
}

// finishTries is how often the outcome is written before it is given up.
const finishTries = 3

// finish writes the outcome and answers it. What can't be written can't be
// said either: the ledger would later contradict it.
func (c *call) finish(ctx context.Context, r *ledger.Record, o state.Outcome) (message.Answer, error) {
	counts := message.Counts{Declared: o.Declared, Passed: o.Passed, Failed: o.Failed, NotRun: o.NotRun}
	var err error
	for range finishTries {
		var a message.Answer
		a, err = c.record(ctx, finishWait, r, func(s *ledger.Session) error { return s.Finish(r, o.Code, counts) })
		if err == nil {
			if a.Result != "" {
				return a, nil
			}
			return about(r, message.Answer{Result: message.Finished, Code: o.Code, Counts: &counts}), nil
		}
	}
	return message.Answer{}, err
}

// convert asks the plugin for the high data, makes it itself as well, and
// takes it only if both are the same to the byte.
func (c *call) convert(ctx context.Context) ([]byte, *state.Document, error) {
	doc, err := state.Decode(c.body.Canonical)
	if err != nil {
		return nil, nil, err
	}
	high, err := doc.High()
	if err != nil {
		return nil, nil, err
	}
	own, err := high.MarshalJSON()
	if err != nil {
		return nil, nil, err
	}
	err = c.Hook.Do(StepConvert, func() error { return c.compare(ctx, own) })
	return own, doc, err
}

func (c *call) compare(ctx context.Context, own []byte) error {
	m, err := c.manifest()
	if err != nil {
		return err
	}
	self := make(chan error, 1) // it takes as long as the plugin's launch
	go func() { self <- c.checkSelf(m) }()
	f, err := m.Find(pluginName)
	if err != nil {
		return err
	}
	answer, err := pluginhost.Convert(ctx, pluginhost.Plugin{
		Path:   filepath.Join(c.facts.LibDir, pluginName),
		Digest: f.Sum(), Name: "oduflow-plugin-custom", Timeout: pluginWait, Logger: c.Log.Named("plugin"),
	}, c.body.Canonical)
	if err != nil {
		return problem.Wrap(problem.StartRefusedPluginMismatch, err, "the plugin: %s", answer.Outcome)
	}
	if err := <-self; err != nil {
		return err
	}
	if !bytes.Equal(answer.High, own) {
		return problem.New(problem.StartRefusedPluginMismatch, "the plugin made something else of the document than the executor")
	}
	return nil
}

// checkSelf compares this program with the manifest. It can't protect from a
// program that lies; it tells a mixed installation from a right one.
func (c *call) checkSelf(m *manifest.Manifest) error {
	f, err := m.Find(selfName)
	if err != nil {
		return err
	}
	own, err := manifest.Sum(c.Self)
	if err != nil {
		return err
	}
	if !bytes.Equal(own, f.Sum()) {
		return problem.New(manifest.Differs, "this executor isn't the one in the signed manifest")
	}
	return nil
}

// The kinds of return that the shim tells apart. Whatever isn't here is a bad
// return.
const (
	kindMap          = "map"
	kindStateRunning = "state_running"
)

// account makes an outcome of what came back. Only a map can be a success.
func account(doc *state.Document, ran Ran) state.Outcome {
	switch ran.Kind {
	case kindMap:
		return state.Account(doc.Expected(), ran.Results)
	case kindStateRunning:
		return nothing(doc, problem.StartRefusedStateRunning)
	default:
		return nothing(doc, problem.BadReturn)
	}
}

func nothing(doc *state.Document, code problem.Code) state.Outcome {
	return state.Outcome{Declared: doc.Declared(), NotRun: doc.Declared(), Code: code}
}
