package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// masterd is one process: everything in it but the store is lost when it is
// killed. A killed process can't do anything any more, since all it does goes
// through ports that refuse it.
type masterd struct {
	w       *World
	x       *exchange.Exchange
	d       *dispatch.Dispatcher
	service *start.Service
	adopt   *adopt.Service
	cancel  context.CancelFunc
	dead    atomic.Bool
	gone    chan struct{} // closed when it is dead
	ended   chan struct{} // closed when Run has returned
	hears   atomic.Bool

	// One message is sealed at a time, so that it is known which nonce is whose.
	sealing sync.Mutex
	nonces  nonceSource
	ids     nonceSource

	launchesMu sync.Mutex
	launches   map[string]*launch // by request
}

var errDead = problem.New(problem.NotWritable, "this process was killed")

// startMaster starts a process on what the store holds.
func (w *World) startMaster() {
	w.mu.Lock()
	busy := w.master != nil || w.held
	w.mu.Unlock()
	if busy {
		return
	}
	p := &masterd{w: w, gone: make(chan struct{}), ended: make(chan struct{}), launches: map[string]*launch{}}
	p.nonces.rng, p.ids.rng = w.draw("nonces"), w.draw("ids")
	p.x = exchange.New(exchange.Config{
		Channel: channel{p}, Signing: signingKey, Secret: secret[:], Now: w.clock.Now, Random: &p.nonces,
		Logger: hclog.NewNullLogger(), NextJID: receipt.NextQuestionJID,
	})
	port := &storePort{p}
	p.d = dispatch.New(dispatch.Config{
		Store: port, Exchange: &sealed{Exchange: p.x, p: p}, Now: w.clock.Now, Jitter: w.draw("jitter"),
		Logger: hclog.NewNullLogger(), Changed: func(r receipt.Receipt) { p.service.Changed(r) }, Joined: p.hears.Load,
	})
	p.service = start.New(start.Config{
		Store: port, Now: w.clock.Now, Bound: p.d.Bound, Joined: p.hears.Load, Logger: hclog.NewNullLogger(),
	})
	p.adopt = adopt.New(adopt.Config{
		Store: port, Exchange: &sealed{Exchange: p.x, p: p}, Now: w.clock.Now, Random: &p.ids, Joined: p.hears.Load,
		NewUUID: newUUID,
	})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.mu.Lock()
	w.master = p
	w.noteLocked("masterd: starts")
	w.mu.Unlock()
	w.wg.Go(func() {
		defer close(p.ended)
		_ = p.d.Run(ctx)
	})
	p.sendAgain()
	w.after(w.span("join", 50*time.Millisecond, 2*time.Second), p.join)
}

// join subscribes to the bus, if there is one.
func (p *masterd) join() {
	p.w.mu.Lock()
	can := p.w.masterUp && !p.w.deaf
	p.w.mu.Unlock()
	if !can || p.dead.Load() {
		return
	}
	p.hears.Store(true)
	p.d.Gap()
}

// kill ends the process at once. It starts again after a while.
func (p *masterd) kill(why string) {
	if !p.dead.CompareAndSwap(false, true) {
		return
	}
	w := p.w
	w.mu.Lock()
	if w.master == p {
		w.master = nil
	}
	w.noteLocked("masterd: killed %s", why)
	w.mu.Unlock()
	p.cancel()
	close(p.gone)
	down := w.span("downtime", 100*time.Millisecond, 10*time.Second)
	if w.chance("long downtime", .15) {
		down = w.span("downtime", 10*time.Second, 5*time.Minute)
	}
	w.after(down, w.startMaster)
}

func (w *World) killMaster(why string) {
	if p := w.current(); p != nil {
		p.kill(why)
	}
}

// stopMaster is a SIGTERM: the process ends by itself.
func (w *World) stopMaster() {
	p := w.current()
	if p == nil {
		return
	}
	w.note("masterd: SIGTERM")
	p.cancel()
	select {
	case <-p.ended:
	case <-w.stop:
	}
	p.kill("after SIGTERM")
}

// through is one call of the store by a process, with all that can happen to it.
func through[T any](ctx context.Context, p *masterd, op string, writes bool, f func() (T, error)) (T, error) {
	var zero T
	w := p.w
	if p.dead.Load() {
		return zero, errDead
	}
	if writes {
		if w.chance("kill before "+op, w.plan.KilledAtStep) {
			p.kill("before " + op)
			return zero, errDead
		}
		wait := w.span("store", 100*time.Microsecond, 3*time.Millisecond)
		if w.chance("stall "+op, w.plan.StoreStalls) {
			wait = w.span("store", time.Second, 40*time.Second)
		}
		if !p.sleep(ctx, wait) {
			if p.dead.Load() || ctx.Err() == nil || !w.chance("late commit", .5) {
				return zero, errDead
			}
			// Given up by the caller, and done a little later all the same.
			w.after(w.span("late commit", time.Millisecond, 3*time.Second), func() {
				if !p.dead.Load() {
					w.note("store: a late %s", op)
					_, _ = f()
					w.afterWrite()
				}
			})
			return zero, errDead
		}
		if w.chance("fail "+op, w.plan.StoreFails) {
			return zero, problem.New(problem.NotWritable, "%s failed", op)
		}
	}
	v, err := f()
	if !writes {
		return v, err
	}
	w.afterWrite()
	if w.chance("kill after "+op, w.plan.KilledAtStep) {
		p.kill("after " + op)
		return zero, errDead
	}
	if err == nil && w.chance("told false "+op, w.plan.StoreToldFalse) {
		w.note("store: %s done, told failed", op)
		return zero, problem.New(problem.NotWritable, "%s failed", op)
	}
	return v, err
}

// sleep is false where the process was killed or its caller gave up.
func (p *masterd) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.gone:
	case <-p.w.stop:
	}
	return false
}

// storePort is the store as one process has it.
type storePort struct{ p *masterd }

// nothing is what a call gives that has no result.
type nothing struct{}

func (s *storePort) Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	return through(ctx, s.p, "bind", true, func() (receipt.Bound, error) {
		return s.p.w.store.Bind(context.WithoutCancel(ctx), b, source, canonical)
	})
}

func (s *storePort) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	return through(ctx, s.p, "lookup", false, func() (receipt.Bound, error) { return s.p.w.store.Lookup(ctx, request) })
}

func (s *storePort) Unresolved(ctx context.Context) ([]receipt.Receipt, error) {
	all, err := through(ctx, s.p, "unresolved", false, func() ([]receipt.Receipt, error) { return s.p.w.store.Unresolved(ctx) })
	if s.p.w.opts.Broken == QuarantineForgotten {
		all = slices.DeleteFunc(all, func(r receipt.Receipt) bool { return r.State == receipt.Uncertain })
	}
	return all, err
}

func (s *storePort) Target(ctx context.Context, id string) (*receipt.Target, error) {
	return through(ctx, s.p, "target", false, func() (*receipt.Target, error) { return s.p.w.store.Target(ctx, id) })
}

func (s *storePort) Canonical(ctx context.Context, digest string) ([]byte, error) {
	return through(ctx, s.p, "canonical", false, func() ([]byte, error) { return s.p.w.store.Canonical(ctx, digest) })
}

func (s *storePort) Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error) {
	claim := func() (receipt.Receipt, error) {
		return s.p.w.store.Claim(context.WithoutCancel(ctx), request, believed, c)
	}
	if s.p.w.opts.Broken == PublishBeforeSync {
		return s.claimLater(request, c, claim)
	}
	r, err := through(ctx, s.p, "claim", true, claim)
	if err != nil && s.p.w.opts.Broken == PublishUnknownClaim && !s.p.dead.Load() {
		return s.pretend(request, c), nil
	}
	return r, err
}

func (s *storePort) Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error) {
	if s.p.w.opts.Broken == FailedAtDeadline && e.Name == receipt.EventLose {
		e.Name, e.To, e.Code = receipt.EventFinish, receipt.Failed, problem.StateFailed
	}
	return through(ctx, s.p, "apply "+string(e.To), true, func() (receipt.Receipt, error) {
		return s.p.w.store.Apply(context.WithoutCancel(ctx), request, believed, e)
	})
}

func (s *storePort) Witness(ctx context.Context, v receipt.Witness) error {
	_, err := through(ctx, s.p, "witness", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Witness(context.WithoutCancel(ctx), v)
	})
	return err
}

func (s *storePort) Lines(ctx context.Context, target string) (receipt.Lines, error) {
	return through(ctx, s.p, "lines", false, func() (receipt.Lines, error) { return s.p.w.store.Lines(ctx, target) })
}

func (s *storePort) Told(ctx context.Context, told receipt.Told) error {
	_, err := through(ctx, s.p, "told", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Told(context.WithoutCancel(ctx), told)
	})
	return err
}

func (s *storePort) Forgotten(ctx context.Context, request, ledger string) (bool, error) {
	return through(ctx, s.p, "forgotten", false, func() (bool, error) { return s.p.w.store.Forgotten(ctx, request, ledger) })
}

func (s *storePort) Adopt(ctx context.Context, t receipt.Target) error {
	_, err := through(ctx, s.p, "adopt", true, func() (nothing, error) {
		return nothing{}, s.p.w.store.Adopt(context.WithoutCancel(ctx), t)
	})
	return err
}

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
		w.mu.Lock()
		w.lastSent = time.Now()
		w.mu.Unlock()
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
