// Package storetest holds what every store of receipts must do (Exercise), and
// a real one on a real disk for other tests.
package storetest

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
)

// Clock is a clock that tests move.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at receipttest.Epoch.
func NewClock() *Clock { return &Clock{now: receipttest.Epoch} }

// Now tells the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set moves the clock, forth or back.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// Config gives a database in a folder of the test's own.
func Config(t testing.TB, clock *Clock) store.Config {
	t.Helper()
	return store.Config{
		Path: filepath.Join(t.TempDir(), "receipts.db"), Now: clock.Now,
		Random: bytes.NewReader(bytes.Repeat([]byte{7, 1, 3, 9}, 64)),
	}
}

// Create makes an empty database and opens it; the test's end closes it.
func Create(t testing.TB, cfg store.Config) *store.DB {
	t.Helper()
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return Open(t, cfg)
}

// Open opens an existing database; the test's end closes it.
func Open(t testing.TB, cfg store.Config) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// Store is what is exercised.
type Store interface {
	Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error)
	Lookup(ctx context.Context, request string) (receipt.Bound, error)
	Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error)
	Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error)
	Canonical(ctx context.Context, digest string) ([]byte, error)
	Source(ctx context.Context, digest string) ([]byte, error)
	Unresolved(ctx context.Context) ([]receipt.Receipt, error)
	Target(ctx context.Context, id string) (*receipt.Target, error)
	Adopt(ctx context.Context, t receipt.Target) error
	Witness(ctx context.Context, w receipt.Witness) error
	Witnesses(ctx context.Context, request string) ([]receipt.Witness, error)
	Transitions(ctx context.Context, request string) ([]store.Transition, error)
	List(ctx context.Context, f store.Filter) ([]receipt.Receipt, error)
	Stats(ctx context.Context) (store.Stats, error)
	Lines(ctx context.Context, target string) (receipt.Lines, error)
	Told(ctx context.Context, told receipt.Told) error
	Forgotten(ctx context.Context, request, ledger string) (bool, error)
}

// Bind binds a request to a source's text.
func Bind(ctx context.Context, s Store, b receipt.Binding, text string) (receipt.Bound, error) {
	source, canonical, _ := receipttest.Source(text)
	return s.Bind(ctx, b, source, canonical)
}
