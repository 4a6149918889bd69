package store_test

import (
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// desk is a database with one adopted target.
type desk struct {
	*testing.T
	*store.DB
	clock *storetest.Clock
	cfg   store.Config
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	clock := storetest.NewClock()
	cfg := storetest.Config(t, clock)
	d := &desk{T: t, DB: storetest.Create(t, cfg), clock: clock, cfg: cfg}
	d.ok(d.Adopt(t.Context(), receipttest.Target("web")))
	return d
}

func (d *desk) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *desk) bind(n int, text string) receipt.Receipt {
	d.Helper()
	b, err := storetest.Bind(d.Context(), d.DB, receipttest.Binding(n, "web", text), text)
	d.ok(err)
	return b.Execution
}

func (d *desk) claim(r receipt.Receipt) receipt.Receipt {
	d.Helper()
	r, err := d.Claim(d.Context(), r.Request, r.Seq, receipttest.Claim("web"))
	d.ok(err)
	return r
}

func (d *desk) apply(r receipt.Receipt, e receipt.Event) receipt.Receipt {
	d.Helper()
	r, err := d.Apply(d.Context(), r.Request, r.Seq, e)
	d.ok(err)
	return r
}

func (d *desk) read(n int) receipt.Receipt {
	d.Helper()
	b, err := d.Lookup(d.Context(), receipttest.Request(n))
	d.ok(err)
	return b.Execution
}

// A23: a settlement keeps who, why and what was seen; it is owed to the ledger
// until the ledger has it; the same receipt is never settled twice.
func TestSettlementIsKeptAndOwed(t *testing.T) {
	d := newDesk(t)
	r := d.apply(d.claim(d.bind(1, "one")), receipttest.Lose(d.clock.Now()))
	if s, err := d.Settlement(t.Context(), r.Request); s != nil || err != nil {
		t.Fatalf("%+v %v", s, err)
	}
	r = d.apply(r, receipttest.Settle(d.clock.Now(), receipt.Failed))
	if r.State != receipt.Failed || !r.Settled || r.Code != problem.SettledFailed {
		t.Errorf("%+v", r)
	}
	s, err := d.Settlement(t.Context(), r.Request)
	d.ok(err)
	if s.Outcome != receipt.Failed || s.Reason == "" || s.Observed == "" || s.By != "uid 0" || !s.Owed() || !s.At.Equal(d.clock.Now()) {
		t.Errorf("%+v", s)
	}
	want := receipt.Debt{Request: r.Request, Digest: r.Body.Digest, Outcome: receipt.Failed}
	owed, err := d.Owed(t.Context(), "web", r.Body.Instance)
	d.ok(err)
	if len(owed) != 1 || owed[0] != want {
		t.Errorf("owed %+v", owed)
	}
	if owed, err := d.Owed(t.Context(), "web", receipttest.Instance("another")); err != nil || len(owed) != 0 {
		t.Errorf("owed to another server: %+v %v", owed, err)
	}
	if stats, err := d.Stats(t.Context()); err != nil || stats.Owed != 1 {
		t.Errorf("%+v %v", stats, err)
	}
	list, err := d.List(t.Context(), store.Filter{Owed: true})
	d.ok(err)
	if len(list) != 1 {
		t.Errorf("%d owed in the list", len(list))
	}
	d.ok(d.Delivered(t.Context(), r.Request))
	d.ok(d.Delivered(t.Context(), r.Request)) // said twice is no error
	if owed, err := d.Owed(t.Context(), "web", r.Body.Instance); err != nil || len(owed) != 0 {
		t.Errorf("still owed: %+v %v", owed, err)
	}
	if _, err := d.Apply(t.Context(), r.Request, r.Seq, receipttest.Settle(d.clock.Now(), receipt.Succeeded)); err == nil {
		t.Error("settled twice")
	}
	if err := d.Delivered(t.Context(), receipttest.Request(77)); err == nil {
		t.Error("delivered what was never settled")
	}
}

// A settlement that says too little, or another thing than its event, isn't
// taken, and leaves nothing.
func TestSettlementMustBeWhole(t *testing.T) {
	d := newDesk(t)
	r := d.apply(d.claim(d.bind(1, "one")), receipttest.Lose(d.clock.Now()))
	for what, change := range map[string]func(*receipt.Event){
		"none":            func(e *receipt.Event) { e.Settlement = nil },
		"no reason":       func(e *receipt.Event) { e.Settlement.Reason = "" },
		"nothing seen":    func(e *receipt.Event) { e.Settlement.Observed = "" },
		"another outcome": func(e *receipt.Event) { e.Settlement.Outcome = receipt.Succeeded },
		"another actor":   func(e *receipt.Event) { e.Actor = "masterd" },
	} {
		e := receipttest.Settle(d.clock.Now(), receipt.Failed)
		change(&e)
		if _, err := d.Apply(t.Context(), r.Request, r.Seq, e); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if s, err := d.Settlement(t.Context(), r.Request); s != nil || err != nil {
		t.Errorf("left behind: %+v %v", s, err)
	}
}

func record(n int, digest string) receipt.Record {
	return receipt.Record{
		Request: receipttest.Request(n), Target: "web", Instance: receipttest.Instance("web"), Profile: receipt.Custom,
		Digest: digest, Ledger: "ledger-web", Code: problem.Interrupted,
	}
}

// A22: a record that only the ledger knows quarantines its target, also where a
// receipt of the same key waits: that one is refused in the same step.
func TestFromLedger(t *testing.T) {
	d := newDesk(t)
	waiting := d.bind(1, "one")
	r, err := d.FromLedger(t.Context(), record(9, waiting.Body.Digest))
	d.ok(err)
	if r.State != receipt.Uncertain || r.Code != problem.Interrupted || !r.FromLedger || r.JID != "" || r.Ledger != "ledger-web" {
		t.Errorf("%+v", r)
	}
	if got := d.read(9); got != r {
		t.Errorf("read %+v, was %+v", got, r)
	}
	if got := d.read(1); got.State != receipt.Refused || got.Code != problem.TargetQuarantined || got.BlockedBy.Request != r.Request {
		t.Errorf("the waiting one: %+v", got)
	}
	if again, err := d.FromLedger(t.Context(), record(9, waiting.Body.Digest)); err != nil || again != r {
		t.Errorf("again: %+v %v", again, err)
	}
	if got := d.bind(2, "two"); got.Code != problem.TargetQuarantined {
		t.Errorf("not quarantined: %+v", got)
	}
	// Its caller repeats it: of its body the key alone is known.
	repeat := receipttest.Binding(9, "web", "one")
	if b, err := storetest.Bind(t.Context(), d.DB, repeat, "one"); err != nil || b.Execution != r || b.Reused {
		t.Errorf("repeated: %+v %v", b, err)
	}
	repeat = receipttest.Binding(9, "web", "two")
	if _, err := storetest.Bind(t.Context(), d.DB, repeat, "two"); problem.CodeOf(err) != problem.RequestConflict {
		t.Errorf("another body: %v", err)
	}
	if _, err := d.Apply(t.Context(), r.Request, r.Seq, receipttest.Finish(d.clock.Now(), 5, 5)); err != nil {
		t.Errorf("evidence, with the ledger's own count: %v", err)
	}
	if _, err := d.Source(t.Context(), record(9, "").Digest); err == nil {
		t.Error("a source of nothing")
	}
	// A digest that nobody here has seen is no hindrance, and it can be bound
	// with its source later.
	_, _, digest := receipttest.Source("unseen")
	if _, err := d.FromLedger(t.Context(), record(10, digest)); err != nil {
		t.Error(err)
	}
}

// The duplicate mark is made of the log of evidence, until the next adoption.
func TestDuplicateTargetIsRemembered(t *testing.T) {
	d := newDesk(t)
	r := d.bind(1, "one")
	d.ok(d.Witness(t.Context(), receipt.Witness{Request: r.Request, At: d.clock.Now(), Kind: "prepare", Result: "prepared", Code: problem.DuplicateTarget, Conflict: true}))
	target, err := d.Target(t.Context(), "web")
	d.ok(err)
	if !target.Duplicate {
		t.Error("forgotten")
	}
	if stats, err := d.Stats(t.Context()); err != nil || stats.Conflicts != 1 {
		t.Errorf("%+v %v", stats, err)
	}
	again := receipttest.Target("web")
	again.AdoptedAt = d.clock.Now().Add(time.Minute)
	d.ok(d.Adopt(t.Context(), again))
	if target, err = d.Target(t.Context(), "web"); err != nil || target.Duplicate {
		t.Errorf("an adoption doesn't end it: %+v %v", target, err)
	}
}
