package minion

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/survivor"
	"github.com/oduflow/oduflow-salt/internal/version"
)

// Files below the minion's oduflow.etc_dir.
const (
	MasterdKey   = "masterd.pub"   // signs messages
	ExecutorsKey = "executors.pub" // signs the manifest of executors
)

// minionKey is the file below pki_dir.
const minionKey = "minion.pem"

const (
	// lockWait is how long an executor waits for its turn at the ledger, well
	// below the 20 s that masterd waits for an answer. The turn of an executor
	// that is stopped lasts as long as that.
	lockWait = 5 * time.Second
	// finishWait is the same once the effect is over: nobody waits for the answer
	// any more, and an outcome that isn't written is lost.
	finishWait = time.Hour
	// leaseWait is how long a start waits for the lease.
	leaseWait = 10 * time.Second
	// pluginWait is how long a plugin may take, from launch to answer.
	pluginWait = 20 * time.Second
)

// Steps of the executor itself, beside those of the ledger.
const (
	StepLease   fault.Step = "lease"   // the lease is held and proved
	StepConvert fault.Step = "convert" // the plugin converts
	StepRun     fault.Step = "run"     // the Salt process runs the high data
	StepAnswer  fault.Step = "answer"  // the answer is handed over
)

// Steps names every step of the minion's side, in no particular order but that
// of a start.
func Steps() []fault.Step {
	return append(ledger.Steps(), StepLease, StepConvert, StepRun, StepAnswer)
}

// Host is what an executor is made of.
type Host struct {
	Machine ledger.Machine
	Random  io.Reader
	Hook    ledger.Hook // nil in production
	Log     hclog.Logger
	ProcFS  string
	Self    string // path of this program, checked against the manifest
	UID     int
}

// Default gives the real one.
func Default(random io.Reader, log hclog.Logger) Host {
	return Host{
		Machine: ledger.ThisMachine(), Random: random, Log: log,
		ProcFS: "/proc", Self: "/proc/self/exe", UID: os.Geteuid(),
	}
}

// Refusal is the text of a message that changed nothing and that can't be
// answered under a key. It proves nothing to anybody.
func Refusal(code problem.Code) string { return "oduflow: rejected " + string(code) }

// call is one message on its way through.
type call struct {
	Host
	talk   *Talk
	facts  Facts
	ledger *ledger.Ledger
	m      *message.Message
	body   message.Body
	behind bool   // the ledger tells less than masterd knew: nothing is concluded or written
	was    uint64 // its generation then
}

// Serve holds one conversation for an entry point. An error means that the
// conversation broke; whatever was decided is in the ledger.
func (h Host) Serve(ctx context.Context, kind message.Kind, talk *Talk) error {
	open, err := talk.Open()
	if err != nil {
		return err
	}
	h = breakable(h, kind, open.Facts)
	text, err := h.answer(ctx, kind, talk, open)
	if err != nil {
		code := problem.CodeOf(err)
		h.Log.Warn("a message isn't answered", "kind", kind, "code", code, "error", err)
		if code == Broken || errors.Is(err, errSilent) {
			return err
		}
		text = Refusal(code)
	}
	return h.Hook.Do(StepAnswer, func() error { return talk.Return(text) })
}

// errSilent ends a conversation without a word.
var errSilent = errors.New("nothing can be said")

func (h Host) answer(ctx context.Context, kind message.Kind, talk *Talk, open Opening) (string, error) {
	c := &call{Host: h, talk: talk, facts: open.Facts}
	opener, err := c.opener()
	if err != nil {
		return "", err
	}
	var noLedger error
	c.ledger, noLedger = ledger.Open(ledger.Config{Dir: c.facts.StateDir, RunDir: c.runDir(), Machine: h.Machine, Random: h.Random, Hook: h.Hook})
	c.m, err = opener.Open(open.Message, kind)
	unsupported := problem.CodeOf(err) == message.Unsupported
	if err != nil && !unsupported {
		c.count(ctx, problem.CodeOf(err))
		return "", err
	}
	if c.body, err = message.DecodeBody(c.m.Body); err != nil {
		c.count(ctx, problem.CodeOf(err))
		return "", err
	}
	var a message.Answer
	switch {
	case unsupported:
		c.count(ctx, message.Unsupported)
		a = refused(problem.ExecutorOutdated)
	case noLedger != nil:
		h.Log.Warn("the ledger can't be opened", "error", noLedger)
		if kind != message.Prepare && kind != message.Update && kind != message.Settle {
			return "", noLedger
		}
		a = refused(problem.LedgerUnwritable)
	case kind == message.Prepare:
		a, err = c.prepare(ctx)
	case kind == message.Start:
		a, err = c.start(ctx)
	case kind == message.Evidence:
		a, err = c.evidence(ctx)
	case kind == message.Settle:
		a, err = c.settle(ctx)
	case kind == message.Update:
		a, err = c.update(ctx)
	default:
		err = problem.New(message.WrongKind, "this executor doesn't know that kind")
	}
	if err != nil {
		return "", err
	}
	return message.EncodeAnswer(c.fill(a), c.body.ResultKey)
}

func refused(code problem.Code) message.Answer {
	return message.Answer{Result: message.Refused, Code: code}
}

// fill completes an answer with what every answer says.
func (c *call) fill(a message.Answer) message.Answer {
	a.Protocol = message.Protocol
	if n, err := strconv.Atoi(version.AnswerProtocol); err == nil {
		a.Protocol = n
	}
	a.Executor = version.Version
	a.Kind, a.Request, a.Target, a.Nonce = c.m.Kind, c.m.Request, c.m.Target, c.m.Nonce
	if c.ledger == nil {
		return a
	}
	if machine, err := c.ledger.Machine(); err == nil {
		a.Machine = machine
	}
	if generation, err := c.ledger.Generation(); err == nil {
		a.Generation = generation
	}
	if c.behind { // what a witness gave back to it since hides nothing
		a.Generation = c.was
	}
	return a
}

// recall looks whether the ledger was put back since masterd heard of it last.
// What is written there counts up to what masterd knew, and an answer that is lost,
// or this one itself, would make it look whole. So it comes before all else.
func (c *call) recall(id *ledger.Identity) {
	if id == nil || id.Ledger != c.body.Ledger || c.body.Generation == 0 {
		return
	}
	now, err := c.ledger.Generation()
	if err != nil {
		now = 0 // nobody knows
	}
	c.behind, c.was = now < c.body.Generation, now
}

// opener reads the keys that a message is opened with.
func (c *call) opener() (message.Opener, error) {
	pinned, err := keyfile.ReadPublic(filepath.Join(c.facts.EtcDir, MasterdKey))
	if err != nil {
		return message.Opener{}, err
	}
	own, err := os.ReadFile(filepath.Join(c.facts.PKIDir, minionKey))
	if err != nil {
		return message.Opener{}, problem.Wrap(problem.BadConfig, err, "the minion's own Salt key can't be read")
	}
	return message.Opener{Target: c.facts.ID, Pinned: pinned, MinionKeyPEM: own}, nil
}

// session takes a turn at the ledger.
func (c *call) session(ctx context.Context) (*ledger.Session, error) {
	return c.sessionWithin(ctx, lockWait)
}

func (c *call) sessionWithin(ctx context.Context, wait time.Duration) (*ledger.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.ledger.Lock(ctx)
}

func (c *call) count(ctx context.Context, reason problem.Code) {
	if c.ledger == nil {
		return
	}
	s, err := c.session(ctx)
	if err != nil {
		return
	}
	defer s.Close()
	s.Count(reason)
}

// isOurs says whether the ledger is this machine's: it has an identity, made
// on this machine. Without that nothing that the ledger doesn't say is proved:
// it may be a copy of another machine's.
func (c *call) isOurs(id *ledger.Identity) bool {
	machine, err := c.ledger.Machine()
	return err == nil && id != nil && id.Machine == machine
}

// about says what a record is about.
func about(r *ledger.Record, a message.Answer) message.Answer {
	a.Digest, a.Ledger, a.Instance = r.Digest, r.Ledger, r.Instance
	return a
}

// look answers what a record proves. It may close a record that provably never
// began. An unfinished record's survivors are counted.
func (c *call) look(s *ledger.Session, r *ledger.Record) (message.Answer, error) {
	if r.Unfinished() {
		if a, err := c.lookUnfinished(s, r); err != nil || a.Result != "" {
			return about(r, a), err
		}
	}
	a := message.Answer{Code: r.Code, Outcome: r.Outcome}
	switch r.State {
	case ledger.Prepared:
		a.Result = message.NotStartedYet
	case ledger.Fenced, ledger.Refused:
		a.Result = message.Fenced
	case ledger.NeverBegan:
		a.Result = message.NeverBegan
	case ledger.Lapsed:
		a.Result = message.Lapsed
	case ledger.Finished:
		a.Result, a.Counts = message.Finished, r.Counts
	case ledger.Settled:
		a.Result = message.Settled
	case ledger.Started, ledger.Begun:
		a.Result = message.Interrupted
	}
	return about(r, a), nil
}

// lookUnfinished answers Running, or nothing where the record's own state says
// it all.
func (c *call) lookUnfinished(s *ledger.Session, r *ledger.Record) (message.Answer, error) {
	lease, err := c.ledger.ProbeLease()
	if err != nil {
		return message.Answer{}, err
	}
	defer lease.Release()
	if lease.HeldFor(r.Request) || r.State == ledger.Started && lease.Held || c.ledger.Alive(r.Request) {
		return message.Answer{Result: message.Running}, nil
	}
	if r.State == ledger.Started && !c.behind {
		// Nobody can take the lease while it is held for this probe, and the
		// write excludes that the effect begins after all.
		if err := s.NeverBegan(r, lease); err != nil || r.State != ledger.Started {
			return message.Answer{}, err
		}
	}
	n, err := survivor.Count(c.ProcFS, r.Request)
	if err != nil {
		return message.Answer{}, err
	}
	if n > 0 {
		return message.Answer{Result: message.Running, Survivors: n}, nil
	}
	return message.Answer{Result: message.Interrupted}, nil
}
