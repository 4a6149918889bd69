package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// sealed is package exchange as dispatch has it. It knows which message was
// sealed into which text, so that minions need no RSA to read it.
type sealed struct {
	*exchange.Exchange
	p *masterd
}

// envelope is what a text says, for the minion that it is for.
type envelope struct {
	message message.Message
	body    message.Body
	text    string
}

type envelopeKey struct{}

func (s *sealed) Ask(ctx context.Context, q exchange.Question, pem string) exchange.Reply {
	e := &pending{q: q, unlock: sync.OnceFunc(s.p.sealing.Unlock)}
	s.p.sealing.Lock()
	defer e.unlock()
	reply := s.Exchange.Ask(context.WithValue(ctx, envelopeKey{}, e), q, pem)
	if a := reply.Answer; a != nil {
		changed := s.p.misread(q, *a)
		reply.Answer = &changed
	}
	return reply
}

func (s *sealed) NewLaunch(q exchange.Question, pem string) (dispatch.Launch, error) {
	s.p.sealing.Lock()
	defer s.p.sealing.Unlock()
	l, err := s.Exchange.NewLaunch(q, pem)
	if err != nil {
		return nil, err
	}
	out := &launch{
		Launch: l, p: s.p, e: &pending{q: q, nonce: s.p.nonces.last, unlock: func() {}}, fake: make(chan message.Answer, 4),
	}
	s.p.launchesMu.Lock()
	s.p.launches[q.Request] = out
	s.p.launchesMu.Unlock()
	return out, nil
}

type pending struct {
	q      exchange.Question
	nonce  string
	unlock func()
}

func (e *pending) seal(text string, kind message.Kind) envelope {
	key, _ := message.ResultKey(secret[:], e.q.Request, e.q.Target, e.q.Instance)
	body := e.q.Body
	body.ResultKey = key
	return envelope{text: text, body: body, message: message.Message{
		Protocol: message.Protocol, Kind: kind, Target: e.q.Target, Instance: e.q.Instance, Request: e.q.Request,
		Ticket: e.q.Ticket, Digest: e.q.Digest, Nonce: e.nonce,
	}}
}

type launch struct {
	*exchange.Launch
	p    *masterd
	e    *pending
	fake chan message.Answer
}

func (l *launch) Publish(ctx context.Context, jid string) (exchange.Sending, error) {
	ctx = context.WithValue(ctx, envelopeKey{}, l.e)
	sending, err := l.Launch.Publish(ctx, jid)
	if l.p.w.opts.Broken == RetryOnTimeout && sending == exchange.SendingUnknown {
		return l.p.again(ctx, l.e, jid)
	}
	return sending, err
}

// channel is Salt's request channel as one process has it.
type channel struct{ p *masterd }

func (c channel) Key(ctx context.Context, target string) (string, error) {
	p, w := c.p, c.p.w
	if !p.sleep(ctx, w.span("key/"+target, 5*time.Millisecond, 30*time.Millisecond)) {
		return "", problem.New(problem.Unreachable, "no answer")
	}
	w.mu.Lock()
	up := w.masterUp
	w.mu.Unlock()
	if !up {
		return "", problem.New(problem.Unreachable, "no answer")
	}
	return minionPEM, nil
}

// requestDeadline is that of internal/saltreq.
const requestDeadline = 10 * time.Second

func (c channel) Publish(ctx context.Context, kind message.Kind, target, text, jid string) (exchange.Sending, error) {
	e, ok := ctx.Value(envelopeKey{}).(*pending)
	if !ok {
		return exchange.SendingNotTried, problem.New(problem.Internal, "a publish past the simulation")
	}
	if e.nonce == "" {
		e.nonce = c.p.nonces.last
	}
	e.unlock()
	return c.p.publish(ctx, e.seal(text, kind), target, jid)
}

func (p *masterd) publish(ctx context.Context, e envelope, target, jid string) (exchange.Sending, error) {
	w, kind := p.w, e.message.Kind
	name := string(kind) + "/" + requestName(e.message.Request)
	if p.dead.Load() {
		return exchange.SendingNotTried, errDead
	}
	if w.chance("kill before "+name, w.plan.KilledAtStep) {
		p.kill("before it sends " + name)
		return exchange.SendingNotTried, errDead
	}
	w.mu.Lock()
	up := w.masterUp
	w.mu.Unlock()
	if !up || w.chance("connect "+name, w.plan.NoConnection) {
		return exchange.SendingNotTried, problem.New(problem.Unreachable, "no connection")
	}
	if kind == message.Start {
		w.startGoesOut(e.message.Request, e.message.Ticket, jid)
	}
	nothing := w.chance("nothing "+name, w.plan.NothingSent)
	if !nothing {
		w.request(e, target, jid, name)
	}
	if w.chance("kill after "+name, w.plan.KilledAtStep) {
		p.kill("after it sent " + name)
		return exchange.SendingUnknown, errDead
	}
	ctx, cancel := context.WithTimeout(ctx, requestDeadline)
	defer cancel()
	if w.chance("reply "+name, w.plan.ReplyLost) || !p.sleep(ctx, w.span("reply", 6*time.Millisecond, 30*time.Millisecond)) {
		p.sleep(ctx, requestDeadline)
		return exchange.SendingUnknown, problem.New(problem.Unreachable, "no answer")
	}
	if nothing {
		w.note("salt-master: sends nothing of %s, and says so", name)
		return exchange.SendingNothing, nil
	}
	w.mu.Lock()
	up = w.masterUp
	w.mu.Unlock()
	if !up {
		return exchange.SendingUnknown, problem.New(problem.Unreachable, "no answer")
	}
	return exchange.SendingSent, nil
}

// nonceSource is the randomness of a process. It remembers what it gave last.
type nonceSource struct {
	rng  *rand.Rand
	mu   sync.Mutex
	last string
}

func (n *nonceSource) Read(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], n.rng.Uint64())
		copy(b[i:], word[:])
	}
	n.last = hexOf(b)
	return len(b), nil
}

var secret = sha256.Sum256([]byte("the simulation's secret"))
