package adopt_test

import (
	"context"
	"crypto/rand"
	"io"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// Issue 5, a ledger put back: an adoption takes the ledger as it is now, and
// begins what is known of it anew. Where it tells less than it had told before,
// what was bound by then stays in doubt.
func TestAdoptionBeginsTheGenerationAnew(t *testing.T) {
	for now, forgotten := range map[uint64]bool{21: false, 20: false, 19: true, 0: true} {
		db := storetest.Create(t, storetest.Config(t, storetest.NewClock()))
		ctx := t.Context()
		target := receipttest.Target("web-1")
		target.Instance, target.Ledger, target.Generation = instance, "ledger", 7
		b := receipttest.Binding(1, "web-1", "one")
		b.Body.Instance = instance
		if err := db.Adopt(ctx, target); err != nil {
			t.Fatal(err)
		}
		if _, err := storetest.Bind(ctx, db, b, "one"); err != nil {
			t.Fatal(err)
		}
		known := func() uint64 {
			lines, err := db.Lines(ctx, "web-1")
			if err != nil {
				t.Fatal(err)
			}
			return lines["ledger"].Generation
		}
		lines, err := db.Lines(ctx, "web-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Told(ctx, lines.Tell("ledger", 20)); err != nil || known() != 20 {
			t.Fatalf("%d known (%v)", known(), err)
		}
		f := &fake{reply: func(ctx context.Context, q exchange.Question) exchange.Reply {
			if q.Lines["ledger"].Generation != 20 {
				t.Errorf("asked with %+v known", q.Lines)
			}
			r := updated(ctx, q)
			r.Answer.Generation = now
			return r
		}}
		s := adopt.New(adopt.Config{
			Store: db, Ledgers: db, Exchange: f, Now: time.Now, Random: rand.Reader, Joined: func() bool { return true },
			NewUUID: func(io.Reader) (string, error) { return receipttest.Request(2), nil },
		})
		if _, err := s.Adopt(ctx, "web-1", instance, "put back", "root"); err != nil {
			t.Fatal(err)
		}
		if known() != now {
			t.Errorf("%d known, told %d", known(), now)
		}
		if got, err := db.Forgotten(ctx, b.Request, "ledger"); err != nil || got != forgotten {
			t.Errorf("%d: what was bound before is in doubt: %t (%v)", now, got, err)
		}
		if rec, err := db.Target(ctx, "web-1"); err != nil || rec.PutBack || rec.Generation != now {
			t.Errorf("%d: %+v (%v)", now, rec, err)
		}
	}
}
