// Package exchange asks a target's executor a question through Salt and finds
// the answer among everything that the event bus carries. It knows nonces,
// keys and MACs, and judges nothing. Only an answer whose MAC, kind, request,
// target and nonce are right reaches whoever asked; the rest is counted.
package exchange

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Sending is what came of one publish.
type Sending int

// The outcomes. Only SentNothing proves anything: the master itself said that
// it sent nothing.
const (
	SendingUnknown  Sending = iota // no answer, or one that says nothing certain
	SendingSent                    // the master named our JID and exactly our target
	SendingNothing                 // the master's own answer: it sent nothing
	SendingNotTried                // no byte of the request left this process
)

// Channel is Salt's request channel, for the fixed functions only.
type Channel interface {
	// Publish sends text to exactly one target, once, under the JID given. The
	// error is for the log; Sending decides.
	Publish(ctx context.Context, kind message.Kind, target, text, jid string) (Sending, error)
	// Key gives the accepted public key of exactly this minion as PEM, or
	// problem.TargetUnknown.
	Key(ctx context.Context, target string) (string, error)
}

// Question is what is asked. Body.ResultKey is filled in.
type Question struct {
	Kind     message.Kind
	Target   string
	Instance string
	Request  string
	Ticket   string
	Digest   string
	Body     message.Body
	// Lines is what was known of the target's ledgers before this was asked. Of the
	// one that was adopted it travels, so that the executor writes nothing where it
	// was put back; all of it comes back with a late answer, to judge that by.
	Lines receipt.Lines
}

// Silence says why nobody answered, as far as unauthenticated returns tell. It
// is a hint for people and decides nothing.
type Silence string

// The hints.
const (
	SilenceNothing     Silence = ""             // no return at all
	SilenceUnavailable Silence = "no_module"    // Salt says that oduflow isn't available there
	SilenceBlackout    Silence = "blackout"     // the minion is in blackout
	SilenceRejected    Silence = "rejected"     // an executor refused our message itself
	SilenceNoExecutor  Silence = "no_executor"  // the module is there, minion-executor can't be run
	SilenceUnverified  Silence = "unverified"   // a return that carries no valid MAC
	SilenceUnpublished Silence = "not_sent"     // the master sent nothing
	SilenceNoListener  Silence = "not_tried"    // the request channel couldn't be used
	SilenceSealing     Silence = "not_sealable" // the accepted key can't be sealed to
)

// Reply is the end of one question. Answer is nil where nobody gave a valid
// one in time.
type Reply struct {
	Answer  *message.Answer
	AskedAt time.Time // before it was published
	EndedAt time.Time // when it was answered, or given up
	Silence Silence
}

// Config of an Exchange.
type Config struct {
	Channel Channel
	Signing ed25519.PrivateKey
	Secret  []byte // masterd's secret: result keys are derived from it
	Now     func() time.Time
	Random  io.Reader
	Logger  hclog.Logger
	// NextJID gives the JID of a question from the last one and the time. It is
	// never that of a start.
	NextJID func(last string, now time.Time) string
}

// Exchange is safe for concurrent use.
type Exchange struct {
	cfg     Config
	mu      sync.Mutex
	waiting map[string]*waiter // by nonce, those that linger too
	spent   []*waiter          // that linger, the oldest first
	byJID   map[string]func()  // whom a return for this JID wakes up
	lastJID string             // of a question
	onLate  func(Late)
	stats   Stats
}

// Stats counts what arrived. All fields only grow.
type Stats struct {
	Verified   atomic.Uint64 // answers that were what they claim to be
	BadAnswers atomic.Uint64 // looked like an answer to an open question, and was none
	Strays     atomic.Uint64 // answers to no open question: late, repeated or replayed
	Duplicates atomic.Uint64 // a second valid answer with another ticket or ledger
}

type waiter struct {
	question message.Message
	lines    receipt.Lines // of the Question
	key      []byte
	answers  chan message.Answer // capacity 1: the first valid one
	first    *message.Answer
	silence  Silence
	lingers  bool      // nobody waits any more, but a late answer is still understood
	until    time.Time // when lingering ends
	said     int       // how many late answers were handed on
}

// New makes an Exchange.
func New(cfg Config) *Exchange {
	return &Exchange{cfg: cfg, waiting: map[string]*waiter{}, byJID: map[string]func(){}}
}

// Stats gives the counters, to read.
func (x *Exchange) Stats() *Stats { return &x.stats }

// Key gives a target's accepted key and its fingerprint.
func (x *Exchange) Key(ctx context.Context, target string) (pem, fingerprint string, err error) {
	pem, err = x.cfg.Channel.Key(ctx, target)
	if err != nil {
		return "", "", err
	}
	fingerprint, err = message.Fingerprint(pem)
	return pem, fingerprint, err
}

// Ask publishes a question without an effect (prepare, evidence, update) and
// waits until ctx ends for a valid answer.
func (x *Exchange) Ask(ctx context.Context, q Question, pem string) (reply Reply) {
	reply.AskedAt = x.cfg.Now()
	defer func() { reply.EndedAt = x.cfg.Now() }()
	w, text, err := x.open(q, pem)
	if err != nil {
		x.cfg.Logger.Error("a question can't be sealed", "request", q.Request, "target", q.Target, "kind", q.Kind, "error", err)
		reply.Silence = SilenceSealing
		return reply
	}
	defer x.close(w)
	sent := x.publish(ctx, q, text)
	defer sent.stop()
	for {
		select {
		case a := <-w.answers:
			reply.Answer = &a
			return reply
		case sending := <-sent.outcome:
			if reply.Silence = silenceOf(sending); reply.Silence != SilenceNothing {
				return reply
			}
		case <-ctx.Done():
			return x.unanswered(w, reply)
		}
	}
}

// unanswered ends a question whose time is over. An answer that came in the
// same moment counts.
func (x *Exchange) unanswered(w *waiter, reply Reply) Reply {
	x.mu.Lock()
	defer x.mu.Unlock()
	if reply.Answer = x.linger(w); reply.Answer == nil {
		reply.Silence = w.silence
	}
	return reply
}

func silenceOf(sending Sending) Silence {
	switch sending {
	case SendingNothing:
		return SilenceUnpublished
	case SendingNotTried:
		return SilenceNoListener
	case SendingUnknown, SendingSent:
	}
	return SilenceNothing
}

type publishing struct {
	outcome <-chan Sending
	stop    func()
}

// publish sends a question beside whoever waits for its answer: the answer may
// be on the bus long before the master's own, which may never come.
func (x *Exchange) publish(ctx context.Context, q Question, text string) publishing {
	ctx, cancel := context.WithCancel(ctx)
	outcome, ended := make(chan Sending, 1), make(chan struct{})
	jid := x.questionJID()
	go func() {
		defer close(ended)
		sending, err := x.cfg.Channel.Publish(ctx, q.Kind, q.Target, text, jid)
		if err != nil && ctx.Err() == nil {
			x.cfg.Logger.Warn("a question wasn't published cleanly", "request", q.Request, "target", q.Target, "kind", q.Kind, "error", err)
		}
		outcome <- sending
	}()
	return publishing{outcome: outcome, stop: func() { cancel(); <-ended }}
}

func (x *Exchange) questionJID() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lastJID = x.cfg.NextJID(x.lastJID, x.cfg.Now())
	return x.lastJID
}

// Launch is one start, sealed and waited for, that nothing has published yet.
// Close it when its outcome is known some other way.
type Launch struct {
	x    *Exchange
	w    *waiter
	text string
	q    Question
}

// NewLaunch seals a start. It publishes nothing.
func (x *Exchange) NewLaunch(q Question, pem string) (*Launch, error) {
	w, text, err := x.open(q, pem)
	if err != nil {
		return nil, err
	}
	return &Launch{x: x, w: w, text: text, q: q}, nil
}

// Publish sends the start under its claimed JID. Whoever calls it a second time
// has a defect, and nothing is sent.
func (l *Launch) Publish(ctx context.Context, jid string) (Sending, error) {
	if l.text == "" {
		return SendingNotTried, problem.New(problem.Internal, "a start is published once")
	}
	text := l.text
	l.text = ""
	return l.x.cfg.Channel.Publish(ctx, l.q.Kind, l.q.Target, text, jid)
}

// Answers carries the executor's own answer to this start, once, if it comes.
func (l *Launch) Answers() <-chan message.Answer { return l.w.answers }

// Close stops waiting. What was never published can't be answered either.
func (l *Launch) Close() {
	if l.text != "" {
		l.x.forget(l.w)
		return
	}
	l.x.close(l.w)
}

// WatchJID calls wake for each return that the bus shows for a JID, true or
// forged: it is a reason to ask, and nothing else. The returned function stops it.
func (x *Exchange) WatchJID(jid string, wake func()) (stop func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byJID[jid] = wake
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.byJID, jid)
	}
}

func (x *Exchange) open(q Question, pem string) (*waiter, string, error) {
	key, err := message.ResultKey(x.cfg.Secret, q.Request, q.Target, q.Instance)
	if err != nil {
		return nil, "", fmt.Errorf("deriving a result key: %w", err)
	}
	nonce, err := message.NewNonce(x.cfg.Random)
	if err != nil {
		return nil, "", err
	}
	q.Body.ResultKey = key
	q.Body.Ledger, q.Body.Generation = q.Lines.Adopted()
	body, err := message.EncodeBody(q.Body)
	if err != nil {
		return nil, "", err
	}
	m := message.Message{
		Protocol: message.Protocol, Kind: q.Kind, Target: q.Target, Instance: q.Instance,
		Request: q.Request, Ticket: q.Ticket, Digest: q.Digest, Nonce: nonce, Body: body,
	}
	text, err := message.Seal(m, x.cfg.Signing, pem)
	if err != nil {
		return nil, "", err
	}
	w := &waiter{question: m, lines: q.Lines, key: key, answers: make(chan message.Answer, 1)}
	x.mu.Lock()
	x.waiting[nonce] = w
	x.mu.Unlock()
	return w, text, nil
}

// noteSilence keeps why a target that is waited for said nothing of use.
func (x *Exchange) noteSilence(minion string, s Silence) {
	if s == SilenceNothing {
		return
	}
	for _, w := range x.waiting {
		if w.question.Target == minion && w.silence == SilenceNothing {
			w.silence = s
		}
	}
}

func classify(text string) Silence {
	switch {
	case text == "":
		return SilenceNothing
	case strings.HasPrefix(text, "oduflow: rejected"):
		return SilenceRejected
	case strings.HasPrefix(text, "oduflow: unavailable"):
		return SilenceNoExecutor
	case strings.Contains(text, "is not available"):
		return SilenceUnavailable
	case strings.Contains(strings.ToLower(text), "blackout"):
		return SilenceBlackout
	default:
		return SilenceUnverified
	}
}
