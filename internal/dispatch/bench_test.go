package dispatch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/test/sim/memstore"
	"github.com/oduflow/oduflow-salt/test/sim/wallclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	web      = "web-1"
	instance = "0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a0001"
	ledger   = "ledger-1"
	machine  = "machine-1"
	declared = 3
)

// digestOf gives the digest of a canonical form.
func digestOf(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return hex.EncodeToString(sum[:])
}

// bench is a Dispatcher between a store and an exchange that a test breaks. It
// lives in a synctest bubble.
type bench struct {
	t      *testing.T
	began  time.Time
	store  *gate
	x      *fakeExchange
	deaf   atomic.Bool
	clock  *wallclock.Clock // masterd's
	mu     sync.Mutex
	trace  []string
	d      *dispatch.Dispatcher
	cancel context.CancelFunc
	ended  chan struct{}
}

func run(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, began: time.Now(), clock: wallclock.New(time.Now)}
		mem := memstore.New(b.clock.Now)
		b.store = &gate{Store: mem, b: b}
		b.x = newFakeExchange(b)
		if err := mem.Adopt(t.Context(), receipt.Target{
			ID: web, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine, AdoptedAt: b.clock.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		b.start()
		defer b.kill()
		f(b)
	})
}

// start starts a masterd on what the store holds.
func (b *bench) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	b.cancel, b.ended = cancel, make(chan struct{})
	b.d = dispatch.New(dispatch.Config{
		Store: b.store, Exchange: b.x, Now: b.clock.Now, Jitter: rand.New(rand.NewPCG(1, 2)),
		Logger: hclog.NewNullLogger(), Changed: func(receipt.Receipt) {}, Joined: func() bool { return !b.deaf.Load() },
	})
	d, ended := b.d, b.ended
	go func() {
		defer close(ended)
		if err := d.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	synctest.Wait()
}

// kill stops masterd and waits until it has ended.
func (b *bench) kill() {
	b.cancel()
	<-b.ended
}

func (b *bench) restart() {
	b.kill()
	b.start()
}

func (b *bench) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trace = append(b.trace, fmt.Sprintf("%s ", time.Since(b.began).Round(time.Second))+fmt.Sprintf(format, args...))
}

// notes gives the trace's entries that contain word, without their times.
func (b *bench) notes(word string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.trace {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return out
}

func (b *bench) wantTrace(word string, want ...string) {
	b.t.Helper()
	if got := b.notes(word); !slices.Equal(got, want) {
		b.t.Errorf("%q:\n got  %q\n want %q", word, got, want)
	}
}

// req gives a request's UUID.
func req(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// bind binds request n with a digest of its own and tells the Dispatcher.
func (b *bench) bind(n int) receipt.Receipt {
	b.t.Helper()
	r := b.bindQuietly(n)
	b.d.Bound(r)
	return r
}

func (b *bench) bindQuietly(n int) receipt.Receipt {
	b.t.Helper()
	canonical := fmt.Sprintf("canonical %d", n)
	bound, err := b.store.Bind(b.t.Context(), receipt.Binding{
		Request:  req(n),
		Body:     receipt.Body{Target: web, Instance: instance, Profile: receipt.Custom, Digest: digestOf(canonical)},
		Declared: declared, AcceptedAt: b.clock.Now(),
	}, []byte("source"), []byte(canonical))
	if err != nil {
		b.t.Fatal(err)
	}
	return bound.Execution
}

func (b *bench) receipt(n int) receipt.Receipt {
	b.t.Helper()
	r, ok := b.store.Receipt(req(n))
	if !ok {
		b.t.Fatalf("no receipt %d", n)
	}
	return r
}

// wantState checks where a receipt is, after everything that can happen now
// has happened.
func (b *bench) wantState(n int, state receipt.State, code problem.Code) receipt.Receipt {
	b.t.Helper()
	synctest.Wait()
	r := b.receipt(n)
	if r.State != state || r.Code != code {
		b.t.Errorf("%s: receipt %d is %s %q, want %s %q\ntrace:\n%s", time.Since(b.began), n, r.State, r.Code, state, code,
			strings.Join(b.trace, "\n"))
	}
	return r
}

// at lets time pass until d after the beginning.
func (b *bench) at(d time.Duration) {
	b.t.Helper()
	left := d - time.Since(b.began)
	if left < 0 {
		b.t.Fatalf("it is past %s", d)
	}
	b.x.changed()
	timer := time.NewTimer(left)
	<-timer.C
	synctest.Wait()
}

// errBroken is a store that can't say what became of a write.
var errBroken = problem.New(problem.NotWritable, "broken")

// gate is the store, broken as a test wants it.
type gate struct {
	*memstore.Store
	b       *bench
	mu      sync.Mutex
	onClaim func(do func() (receipt.Receipt, error)) (receipt.Receipt, error)
	onApply func(e receipt.Event, do func() (receipt.Receipt, error)) (receipt.Receipt, error)
	broken  bool // every call but Bind fails, nothing is written
}

func (g *gate) isBroken() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

func (g *gate) setBroken(broken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = broken
}

func (g *gate) Claim(ctx context.Context, request string, seq int, c receipt.Claim) (receipt.Receipt, error) {
	if g.isBroken() {
		return receipt.Receipt{}, errBroken
	}
	do := func() (receipt.Receipt, error) {
		r, err := g.Store.Claim(ctx, request, seq, c)
		g.b.note("claim %s %s", short(request), r.State)
		return r, err
	}
	if g.onClaim != nil {
		return g.onClaim(do)
	}
	return do()
}

func (g *gate) Apply(ctx context.Context, request string, seq int, e receipt.Event) (receipt.Receipt, error) {
	if g.isBroken() {
		return receipt.Receipt{}, errBroken
	}
	do := func() (receipt.Receipt, error) {
		r, err := g.Store.Apply(ctx, request, seq, e)
		if err == nil {
			g.b.note("write %s %s", short(request), e.To)
		}
		return r, err
	}
	if g.onApply != nil {
		return g.onApply(e, do)
	}
	return do()
}

func (g *gate) Witness(ctx context.Context, w receipt.Witness) error {
	if g.isBroken() {
		return errBroken
	}
	return g.Store.Witness(ctx, w)
}

func (g *gate) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	g.b.note("lookup %s", short(request))
	if g.isBroken() {
		return receipt.Bound{}, errBroken
	}
	return g.Store.Lookup(ctx, request)
}

func short(request string) string { return "r" + strings.TrimLeft(request[len(request)-12:], "0") }

// fakeExchange answers as a healthy executor does, except where a test says
// otherwise.
type fakeExchange struct {
	b     *bench
	mu    sync.Mutex
	tick  int
	asked int // questions under way, and the most there ever were
	most  int
	hints map[string]func()
	late  func(exchange.Late)

	onKey      func(ctx context.Context) (pem, fingerprint string, err error)
	onPrepare  func(ctx context.Context, q exchange.Question) exchange.Reply
	onEvidence func(ctx context.Context, q exchange.Question) exchange.Reply
	onStart    func(ctx context.Context, q exchange.Question, jid string, answers chan<- message.Answer) (exchange.Sending, error)
}

func newFakeExchange(b *bench) *fakeExchange {
	return &fakeExchange{b: b, hints: map[string]func(){}}
}

func (x *fakeExchange) OnLate(f func(exchange.Late)) { x.late = f }

func (x *fakeExchange) Key(ctx context.Context, _ string) (pem, fingerprint string, err error) {
	if x.onKey != nil {
		return x.onKey(ctx)
	}
	return "pem", "fp", nil
}

func (x *fakeExchange) Ask(ctx context.Context, q exchange.Question, _ string) (reply exchange.Reply) {
	x.mu.Lock()
	x.asked++
	x.most = max(x.most, x.asked)
	x.mu.Unlock()
	asked := x.b.clock.Now()
	defer func() {
		x.mu.Lock()
		x.asked--
		x.mu.Unlock()
		if reply.AskedAt.IsZero() {
			reply.AskedAt = asked
		}
		reply.EndedAt = x.b.clock.Now()
	}()
	on := x.onEvidence
	if q.Kind == message.Prepare {
		on = x.onPrepare
		x.b.note("prepare %s", short(q.Request))
	} else {
		x.b.note("evidence %s fence=%t", short(q.Request), q.Body.Fence)
	}
	if on != nil {
		return on(ctx, q)
	}
	if q.Kind == message.Prepare {
		return x.ticket(q)
	}
	return silent(ctx)
}

// changed lets whoever asks from now on see what the test has set.
func (x *fakeExchange) changed() {
	x.mu.Lock()
	defer x.mu.Unlock()
}

// ticket is a healthy answer to a prepare.
func (x *fakeExchange) ticket(q exchange.Question) exchange.Reply {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tick++
	a := answer(q, message.Prepared)
	a.Ticket = fmt.Sprintf("%032x", x.tick)
	return exchange.Reply{Answer: &a}
}

func answer(q exchange.Question, result message.Result) message.Answer {
	return message.Answer{
		Protocol: message.Protocol, Kind: q.Kind, Request: q.Request, Target: q.Target, Result: result,
		Digest: q.Digest, Ledger: ledger, Machine: machine, Instance: q.Instance,
	}
}

func replied(q exchange.Question, result message.Result) exchange.Reply {
	a := answer(q, result)
	return exchange.Reply{Answer: &a}
}

func finished(q exchange.Question, code problem.Code) message.Answer {
	a := answer(q, message.Finished)
	a.Code = code
	a.Counts = &message.Counts{Declared: declared, Passed: declared}
	if code != "" {
		a.Counts = &message.Counts{Declared: declared, Passed: 1, Failed: 1, NotRun: 1}
	}
	return a
}

// silent is an executor that doesn't answer.
func silent(ctx context.Context) exchange.Reply {
	<-ctx.Done()
	return exchange.Reply{}
}

func (x *fakeExchange) NewLaunch(q exchange.Question, _ string) (dispatch.Launch, error) {
	return &fakeLaunch{x: x, q: q, answers: make(chan message.Answer, 1)}, nil
}

func (x *fakeExchange) WatchJID(jid string, wake func()) (stop func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hints[jid] = wake
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.hints, jid)
	}
}

// hint is a return on the bus under a JID, true or forged.
func (x *fakeExchange) hint(jid string) {
	x.mu.Lock()
	wake := x.hints[jid]
	x.mu.Unlock()
	if wake != nil {
		wake()
	}
}

type fakeLaunch struct {
	x       *fakeExchange
	q       exchange.Question
	answers chan message.Answer
	closed  atomic.Bool
}

func (l *fakeLaunch) Publish(ctx context.Context, jid string) (exchange.Sending, error) {
	l.x.b.note("start %s", short(l.q.Request))
	// Durable first: what a start carries is on disk before it goes out.
	r, _ := l.x.b.store.Receipt(l.q.Request)
	if r.State != receipt.Dispatching || r.JID != jid || r.Ticket != l.q.Ticket {
		l.x.b.t.Errorf("the start of %s went out while the store says %s, JID %s", l.q.Request, r.State, r.JID)
	}
	if l.x.onStart != nil {
		return l.x.onStart(ctx, l.q, jid, l.answers)
	}
	l.answers <- finished(l.q, "")
	return exchange.SendingSent, nil
}

func (l *fakeLaunch) Answers() <-chan message.Answer { return l.answers }
func (l *fakeLaunch) Close()                         { l.closed.Store(true) }

// goesOut is a start that the master takes and whose executor says nothing.
func goesOut(context.Context, exchange.Question, string, chan<- message.Answer) (exchange.Sending, error) {
	return exchange.SendingSent, nil
}

var errLost = errors.New("no answer")
