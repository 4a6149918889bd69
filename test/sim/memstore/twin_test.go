package memstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
	"github.com/oduflow/oduflow-salt/test/sim/memstore"
)

// ledgers is what both stores know of settlements and of ledgers' records.
type ledgers interface {
	storetest.Store
	Settlement(ctx context.Context, request string) (*receipt.Settlement, error)
	Owed(ctx context.Context, target, instance string) ([]receipt.Debt, error)
	Delivered(ctx context.Context, request string) error
	FromLedger(ctx context.Context, rec receipt.Record) (receipt.Receipt, error)
}

// twins are a real database and one in memory, that are told the same.
type twins struct {
	*testing.T
	r      *mrand.Rand
	clock  *storetest.Clock
	cfg    store.Config
	db     *store.DB
	memory *memstore.Store
	backup string
	copied memstore.Copy
	step   string
}

const (
	target   = "web"
	requests = 6
)

var texts = []string{"one", "two"}

// Settlements, debts, records that only a ledger knows, and epochs are in
// memory what they are on disk.
func TestLikeTheStore(t *testing.T) {
	for seed := range uint64(12) {
		x := &twins{T: t, r: mrand.New(mrand.NewPCG(seed, 1)), clock: storetest.NewClock()}
		x.cfg = storetest.Config(t, x.clock)
		x.cfg.Random = rand.Reader
		x.db = storetest.Create(t, x.cfg)
		x.memory = memstore.New(x.clock.Now)
		for _, s := range x.both() {
			if err := s.Adopt(t.Context(), receipttest.Target(target)); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 40 {
			x.step = fmt.Sprintf("seed %d step %d", seed, n)
			x.clock.Set(x.clock.Now().Add(time.Second))
			x.act()
			x.compare()
			if t.Failed() {
				return
			}
		}
	}
}

func (x *twins) both() [2]ledgers { return [2]ledgers{x.db, adapter{x.memory}} }

func (x *twins) act() {
	n, text, what := 1+x.r.IntN(requests), texts[x.r.IntN(len(texts))], x.r.IntN(14)
	to := []receipt.State{receipt.Succeeded, receipt.Failed}[x.r.IntN(2)]
	again := x.r.IntN(2) == 0
	if what < 2 {
		x.putBack(what == 0)
		return
	}
	var said [2]string
	for i, s := range x.both() {
		said[i] = class(x.actOn(s, what, n, text, to, again))
	}
	if said[0] != said[1] {
		x.Errorf("%s (%d): the store says %q, the memory %q", x.step, what, said[0], said[1])
	}
}

func (x *twins) actOn(s ledgers, what, n int, text string, to receipt.State, again bool) error {
	ctx, now, request := x.Context(), x.clock.Now(), receipttest.Request(n)
	b, err := s.Lookup(ctx, request)
	r := b.Execution
	switch {
	case what < 5:
		b := receipttest.Binding(n, target, text)
		b.AcceptedAt, b.Body.Again = now, again
		_, err = storetest.Bind(ctx, s, b, text)
	case what < 7:
		_, _, digest := receipttest.Source(text)
		_, err = s.FromLedger(ctx, receipt.Record{
			Request: request, Target: target, Instance: receipttest.Instance(target), Profile: receipt.Custom,
			Digest: digest, Ledger: "ledger-" + target, Code: problem.Interrupted,
		})
	case err != nil:
	case what < 9:
		_, err = s.Claim(ctx, r.Request, r.Seq, receipttest.Claim(target))
	case what < 11:
		_, err = s.Apply(ctx, r.Request, r.Seq, receipttest.Lose(now))
	case what < 13:
		_, err = s.Apply(ctx, r.Request, r.Seq, receipttest.Settle(now, to))
	default:
		err = s.Delivered(ctx, r.Request)
	}
	return err
}

// putBack takes a copy, or puts the last one back.
func (x *twins) putBack(take bool) {
	var err error
	switch {
	case take:
		x.backup, x.copied = filepath.Join(x.TempDir(), "copy"), x.memory.Copy()
		err = store.Backup(x.Context(), x.cfg.Path, x.backup)
	case x.backup != "":
		if err = x.db.Close(); err == nil {
			_, err = store.Restore(x.Context(), x.cfg, x.backup)
		}
		x.db = storetest.Open(x, x.cfg)
		x.memory.Restore(x.copied)
	}
	if err != nil {
		x.Fatalf("%s: %v", x.step, err)
	}
}

func (x *twins) compare() {
	var say [2][]any
	for i, s := range x.both() {
		for n := 1; n <= requests; n++ {
			b, err := s.Lookup(x.Context(), receipttest.Request(n))
			word, settledErr := s.Settlement(x.Context(), receipttest.Request(n))
			say[i] = append(say[i], b, class(err), word, class(settledErr))
		}
		debts, err := s.Owed(x.Context(), target, receipttest.Instance(target))
		open, openErr := s.Unresolved(x.Context())
		say[i] = append(say[i], debts, class(err), open, class(openErr))
	}
	for i := range say[0] {
		if !reflect.DeepEqual(say[0][i], say[1][i]) {
			x.Errorf("%s: the store says\n%+v\nthe memory\n%+v", x.step, say[0][i], say[1][i])
		}
	}
}

func class(err error) string {
	var lost *store.LostRaceError
	var illegal *receipt.IllegalError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &lost):
		return "lost"
	case errors.As(err, &illegal):
		return "illegal"
	}
	return string(problem.CodeOf(err))
}
