package start_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
	"github.com/oduflow/oduflow-salt/test/sim/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	instance = "0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a0001"
	first    = "00000000-0000-4000-8000-000000000001"
	second   = "00000000-0000-4000-8000-000000000002"
)

type bench struct {
	*start.Service
	store *gate
	deaf  bool
	mu    sync.Mutex
	told  []string // requests, with their states
}

type gate struct {
	*memstore.Store
	toldFalse bool // Bind is done, and told failed
	fails     bool // and not done
}

var errBroken = problem.New(problem.NotWritable, "broken")

func (g *gate) Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	if g.fails {
		return receipt.Bound{}, errBroken
	}
	bound, err := g.Store.Bind(ctx, b, source, canonical)
	if g.toldFalse {
		return receipt.Bound{}, errBroken
	}
	return bound, err
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{store: &gate{Store: memstore.New(time.Now)}}
	if err := b.store.Adopt(t.Context(), receipt.Target{ID: "web-1", Instance: instance, Ledger: "ledger"}); err != nil {
		t.Fatal(err)
	}
	b.Service = start.New(start.Config{
		Store: b.store, Now: time.Now, Logger: hclog.NewNullLogger(), Joined: func() bool { return !b.deaf },
		Bound: func(r receipt.Receipt) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, r.Request+" "+string(r.State))
		},
	})
	return b
}

func request(id string) start.CustomRequest {
	return start.CustomRequest{Request: id, Target: "web-1", Instance: instance, Source: []byte("a:\n  test.nop: []\n"), Revision: 1}
}

// move changes a receipt as dispatch does.
func (b *bench) move(t *testing.T, id string, e receipt.Event) {
	t.Helper()
	r, _ := b.store.Receipt(id)
	next, err := b.store.Apply(t.Context(), id, r.Seq, e)
	if err != nil {
		t.Fatal(err)
	}
	b.Changed(next)
}

// A13: bound before anything is done, and then told of.
func TestStartBindsAndTells(t *testing.T) {
	b := newBench(t)
	a, err := b.CustomStart(t.Context(), request(first))
	if err != nil || a.Request != first || a.Status != receipt.StatusQueued || a.Reused || a.PollAfter < 2*time.Second {
		t.Fatalf("%+v %v", a, err)
	}
	again, err := b.CustomStart(t.Context(), request(first)) // A19
	if err != nil || again.Execution != a.Execution {
		t.Errorf("%+v %v", again, err)
	}
	alias, err := b.CustomStart(t.Context(), request(second)) // A10
	if err != nil || !alias.Reused || alias.Execution.Request != first {
		t.Errorf("%+v %v", alias, err)
	}
	if !slices.Equal(b.told, []string{first + " queued", first + " queued", first + " queued"}) {
		t.Errorf("told of %q", b.told)
	}
}

func TestRefusedSourceStoresNothing(t *testing.T) {
	b := newBench(t)
	q := request(first)
	q.Source = []byte("{{ jinja }}")
	if _, err := b.CustomStart(t.Context(), q); problem.RowOf(problem.CodeOf(err)).HTTP != 422 {
		t.Errorf("%v", err)
	}
	if len(b.told) != 0 || len(b.store.Receipts()) != 0 {
		t.Error("something was stored or told of")
	}
}

// A19: while deaf, a known request is answered as always, and no new one taken.
func TestDeaf(t *testing.T) {
	b := newBench(t)
	b.deaf = true
	if _, err := b.CustomStart(t.Context(), request(first)); problem.CodeOf(err) != problem.Deaf {
		t.Errorf("%v", err)
	}
	b.deaf = false
	_, _ = b.CustomStart(t.Context(), request(first))
	b.deaf = true
	if a, err := b.CustomStart(t.Context(), request(first)); err != nil || a.Status != receipt.StatusQueued {
		t.Errorf("%+v %v", a, err)
	}
	other := request(first)
	other.Revision++
	if _, err := b.CustomStart(t.Context(), other); problem.CodeOf(err) != problem.RequestConflict {
		t.Errorf("%v", err)
	}
}

// A19: bound, and told that the store failed: whoever asks for it next, by start
// or by status, deaf or not, sees it and sets it going.
func TestBoundButToldFailed(t *testing.T) {
	for name, ask := range map[string]func(b *bench) error{
		"start":            func(b *bench) error { _, err := b.CustomStart(t.Context(), request(first)); return err },
		"start while deaf": func(b *bench) error { b.deaf = true; _, err := b.CustomStart(t.Context(), request(first)); return err },
		"status":           func(b *bench) error { _, err := b.CustomStatus(t.Context(), first, 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.store.toldFalse = true
			if _, err := b.CustomStart(t.Context(), request(first)); problem.CodeOf(err) != problem.NotWritable {
				t.Fatalf("%v", err)
			}
			b.store.toldFalse = false
			if err := ask(b); err != nil || !slices.Equal(b.told, []string{first + " queued"}) {
				t.Errorf("%v, told of %q", err, b.told)
			}
		})
	}
}

func TestNotWritable(t *testing.T) {
	b := newBench(t)
	b.store.fails = true
	if _, err := b.CustomStart(t.Context(), request(first)); problem.CodeOf(err) != problem.NotWritable {
		t.Errorf("%v", err)
	}
	if _, err := b.CustomStatus(t.Context(), first, time.Minute); problem.CodeOf(err) != problem.UnknownRequest {
		t.Errorf("%v", err)
	}
}

// wait_s: the answer comes with the change, or when the wait is over.
func TestStatusWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, _ = b.CustomStart(t.Context(), request(first))
		began := time.Now()
		a, err := b.CustomStatus(t.Context(), first, 30*time.Second)
		if err != nil || a.Status != receipt.StatusQueued || time.Since(began) != 30*time.Second {
			t.Errorf("%+v %v after %s", a, err, time.Since(began))
		}
		began = time.Now()
		timer := time.AfterFunc(7*time.Second, func() {
			b.move(t, first, receipt.Refuse(time.Now(), problem.ExecutorSilent, nil))
		})
		defer timer.Stop()
		a, err = b.CustomStatus(t.Context(), first, 30*time.Second)
		if err != nil || a.Status != receipt.StatusFailed || a.PollAfter != 0 || time.Since(began) != 7*time.Second {
			t.Errorf("%+v %v after %s", a, err, time.Since(began))
		}
		began = time.Now()
		if _, err := b.CustomStatus(t.Context(), first, 30*time.Second); err != nil || time.Since(began) != 0 {
			t.Errorf("a terminal receipt is waited for")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := request(second)
		q.Source = []byte("b:\n  test.nop: []\n")
		_, _ = b.CustomStart(t.Context(), q)
		if _, err := b.CustomStatus(ctx, second, 30*time.Second); err == nil {
			t.Error("a caller that is gone is answered")
		}
	})
}
