package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
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
	records *reconcile.Service
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
		Records: records{p},
	})
	p.records = reconcile.New(reconcile.Config{
		Store: port, Exchange: &sealed{Exchange: p.x, p: p}, Look: p.look, Moved: p.moved, Joined: p.hears.Load,
		Now: w.clock.Now, Logger: hclog.NewNullLogger(),
	})
	p.service = start.New(start.Config{
		Store: port, Now: w.clock.Now, Bound: p.d.Bound, Joined: p.hears.Load, Logger: hclog.NewNullLogger(),
	})
	p.adopt = adopt.New(adopt.Config{
		Store: port, Ledgers: port, Exchange: &sealed{Exchange: p.x, p: p}, Now: w.clock.Now, Random: &p.ids, Joined: p.hears.Load,
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
