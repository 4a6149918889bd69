// Package dispatch carries bound requests out: one lane for each target gives
// its receipts their turn, prepares the minion, claims, publishes the one
// start, and looks for evidence until the outcome is known.
//
// What makes it safe is the order of its steps, not its memory: a lane may be
// killed at any point and rebuilt from the store. A start goes out only right
// after a claim that the store has synced, from the same call that claimed it,
// so no restart ever publishes one again.
package dispatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Store is what dispatch needs of the receipts. Each write names the Seq that
// it believes in; a lost race is an error.
type Store interface {
	Lookup(ctx context.Context, request string) (receipt.Bound, error)
	Unresolved(ctx context.Context) ([]receipt.Receipt, error)
	Target(ctx context.Context, id string) (*receipt.Target, error)
	Canonical(ctx context.Context, digest string) ([]byte, error)
	Claim(ctx context.Context, request string, believedSeq int, c receipt.Claim) (receipt.Receipt, error)
	Apply(ctx context.Context, request string, believedSeq int, e receipt.Event) (receipt.Receipt, error)
	Witness(ctx context.Context, w receipt.Witness) error
	// Lines gives what is known of a target's ledgers, Told keeps what an answer
	// has told, Forgotten says that a ledger was put back after a request was bound.
	Lines(ctx context.Context, target string) (receipt.Lines, error)
	Told(ctx context.Context, told receipt.Told) error
	Forgotten(ctx context.Context, request, ledger string) (bool, error)
}

// Exchange is how a lane asks and starts. Package exchange is the real one.
type Exchange interface {
	Key(ctx context.Context, target string) (pem, fingerprint string, err error)
	Ask(ctx context.Context, q exchange.Question, pem string) exchange.Reply
	NewLaunch(q exchange.Question, pem string) (Launch, error)
	WatchJID(jid string, wake func()) (stop func())
	// OnLate sets who is told of valid answers that nobody waited for. It must
	// not block.
	OnLate(f func(exchange.Late))
}

// Launch is one start that was sealed and not yet published.
type Launch interface {
	Publish(ctx context.Context, jid string) (exchange.Sending, error)
	Answers() <-chan message.Answer
	Close()
}

// Config of a Dispatcher. Changed is called after each change of a receipt, and
// must not block. Joined says whether answers can be learned now.
type Config struct {
	Store    Store
	Exchange Exchange
	Now      func() time.Time
	Jitter   *rand.Rand
	Logger   hclog.Logger
	Changed  func(receipt.Receipt)
	Joined   func() bool
	Records  Records // may be nil
}

// Limits of a Dispatcher.
const (
	storeRetry    = time.Second      // between tries while the store can't be used
	publishWait   = 15 * time.Second // how long a start's answer from the master is waited for
	evidenceWait  = 20 * time.Second // how long one evidence job may take
	hintPause     = 5 * time.Second  // least time between two looks that only hints asked for
	gapSpread     = 2 * time.Second  // looks after a gap are spread over this time
	asksAtOnce    = 8                // evidence questions that are being put over all targets
	askPlace      = 2 * time.Second  // how long a question without an answer keeps another one waiting
	deafRetry     = 500 * time.Millisecond
	deafPatience  = 30 * time.Second // how long a look waits to be heard
	shutdownGrace = 20 * time.Second // a claimed start is always published before we stop
)

// Dispatcher owns the lanes.
type Dispatcher struct {
	cfg   Config
	asks  chan struct{} // a place for each evidence question under way
	mu    sync.Mutex
	lanes map[string]*lane
	ctx   context.Context //nolint:containedctx // set once by Run: lanes that Bound starts live as long as Run
	ended bool            // Run waits for what is under way, and nothing new begins
	wg    sync.WaitGroup
	rngMu sync.Mutex
	twins twins
}

// New makes a Dispatcher that does nothing before Run.
func New(cfg Config) *Dispatcher {
	d := &Dispatcher{cfg: cfg, asks: make(chan struct{}, asksAtOnce), lanes: map[string]*lane{}}
	cfg.Exchange.OnLate(d.late)
	return d
}

// Run takes up every unresolved receipt and works until ctx ends. It returns
// when each lane has finished the step it was in.
func (d *Dispatcher) Run(ctx context.Context) error {
	open, err := d.cfg.Store.Unresolved(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	for _, r := range open {
		d.tell(arrival{r: r, restored: true})
	}
	<-ctx.Done()
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.wg.Wait()
	return nil
}

// Bound tells the lane of a target that there is a receipt to work on. It never
// blocks. Before Run it does nothing: Run reads the store itself.
func (d *Dispatcher) Bound(r receipt.Receipt) {
	if r.State.Terminal() {
		return
	}
	d.tell(arrival{r: r})
}

func (d *Dispatcher) tell(a arrival) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil || d.ended {
		return false
	}
	l := d.lanes[a.r.Body.Target]
	if l == nil {
		l = newLane(d, a.r.Body.Target)
		d.lanes[a.r.Body.Target] = l
		d.wg.Go(func() { l.run(d.ctx) })
	}
	l.add(a)
	return true
}

// late takes an authentic answer that came when nobody waited for it. What it
// says is judged like any other, and kept also where the receipt is terminal.
func (d *Dispatcher) late(x exchange.Late) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil || d.ended {
		return
	}
	d.wg.Go(func() {
		if x.Duplicate {
			d.noteTwin(d.ctx, x.Target)
			d.cfg.Logger.Error("two executors answer for one target", "target", x.Target, "request", x.Request)
		}
		bound, err := d.cfg.Store.Lookup(d.ctx, x.Request)
		if err != nil {
			d.cfg.Logger.Warn("a late answer can't be kept", "request", x.Request, "target", x.Target, "error", err)
			return
		}
		d.tell(arrival{r: bound.Execution, statement: &statement{kind: x.Kind, answer: x.Answer, lines: x.Lines, duplicate: x.Duplicate}})
	})
}

// Gap tells every lane that the bus may have lost answers, or that it can be
// heard again.
func (d *Dispatcher) Gap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lanes {
		l.gap(d.spread(gapSpread))
	}
}

// Up tells the lane of a target that its minion says that it has just started: a
// question that it slept through may be asked again. Anybody can say so, true or
// not. It never blocks.
func (d *Dispatcher) Up(target string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lanes[target]; l != nil {
		l.hint()
	}
}

// spread draws a duration below limit.
func (d *Dispatcher) spread(limit time.Duration) time.Duration {
	d.rngMu.Lock()
	defer d.rngMu.Unlock()
	return time.Duration(d.cfg.Jitter.Int64N(int64(limit)))
}

// retire removes a lane that has nothing left to do. It is false where
// something was added meanwhile.
func (d *Dispatcher) retire(l *lane) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.pending() {
		return false
	}
	delete(d.lanes, l.target)
	return true
}
