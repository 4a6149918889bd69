package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

const web = "web"

// room is a Service on a real database, with a target that answers what a test
// says: nil is silence.
type room struct {
	*testing.T
	db      *store.DB
	clock   *storetest.Clock
	s       *reconcile.Service
	answers func(q exchange.Question) *message.Answer
	asked   []message.Kind
	moved   []receipt.State
	deaf    bool
}

func newRoom(t *testing.T) *room {
	t.Helper()
	clock := storetest.NewClock()
	r := &room{T: t, clock: clock, db: storetest.Create(t, storetest.Config(t, clock))}
	r.ok(r.db.Adopt(t.Context(), receipttest.Target(web)))
	r.s = reconcile.New(reconcile.Config{
		Store: r.db, Exchange: r, Look: r.look, Moved: func(x receipt.Receipt) { r.moved = append(r.moved, x.State) },
		Joined: func() bool { return !r.deaf }, Now: clock.Now, Logger: hclog.NewNullLogger(),
	})
	return r
}

func (r *room) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// Key is part of reconcile.Exchange.
func (r *room) Key(context.Context, string) (string, string, error) { return "pem", "SHA256:web", nil }

// Ask is part of reconcile.Exchange.
func (r *room) Ask(_ context.Context, q exchange.Question, _ string) exchange.Reply {
	r.asked = append(r.asked, q.Kind)
	return exchange.Reply{Answer: r.answers(q), AskedAt: r.clock.Now(), EndedAt: r.clock.Now()}
}

// look does what a lane does.
func (r *room) look(ctx context.Context, request string) (receipt.Receipt, exchange.Reply, error) {
	bound, err := r.db.Lookup(ctx, request)
	r.ok(err)
	x := bound.Execution
	reply := r.Ask(ctx, exchange.Question{Kind: message.Evidence, Target: web, Request: request, Digest: x.Body.Digest}, "")
	if a := reply.Answer; a != nil {
		v := evidence.Decide(x, *a, r.clock.Now())
		r.ok(r.db.Witness(ctx, receipt.Witness{Request: request, At: r.clock.Now(), Kind: "evidence", Result: string(a.Result), Code: a.Code, Conflict: v.Conflict}))
		if v.Event != nil {
			x, err = r.db.Apply(ctx, request, x.Seq, *v.Event)
			r.ok(err)
		}
	}
	return x, reply, nil
}

// says makes the target answer every question the same.
func (r *room) says(result message.Result, change ...func(*message.Answer)) {
	r.answers = func(q exchange.Question) *message.Answer {
		a := message.Answer{Kind: q.Kind, Request: q.Request, Target: q.Target, Result: result, Digest: q.Digest, Ledger: "ledger-web"}
		for _, f := range change {
			f(&a)
		}
		return &a
	}
}

func (r *room) silent() { r.answers = func(exchange.Question) *message.Answer { return nil } }

// settles answers evidence as before, and that a settlement is recorded.
func (r *room) settles(before message.Result) {
	r.answers = func(q exchange.Question) *message.Answer {
		a := message.Answer{Kind: q.Kind, Request: q.Request, Result: before, Digest: q.Digest, Ledger: "ledger-web"}
		if q.Kind == message.Settle {
			a.Result, a.Outcome = message.Settled, q.Body.Outcome
		}
		return &a
	}
}

func (r *room) dispatched(n int) receipt.Receipt {
	r.Helper()
	b, err := storetest.Bind(r.Context(), r.db, receipttest.Binding(n, web, "text"), "text")
	r.ok(err)
	x, err := r.db.Claim(r.Context(), b.Execution.Request, 0, receipttest.Claim(web))
	r.ok(err)
	return x
}

func (r *room) lost(n int) receipt.Receipt {
	r.Helper()
	x := r.dispatched(n)
	x, err := r.db.Apply(r.Context(), x.Request, x.Seq, evidence.Lose(r.clock.Now(), problem.Interrupted))
	r.ok(err)
	return x
}

func order(x receipt.Receipt, outcome receipt.State) reconcile.Order {
	return reconcile.Order{
		Request: x.Request, Outcome: outcome, Reason: "power", Observed: "half of it is there", Confirm: web, By: "uid 0",
	}
}

func (r *room) wantCode(err error, code problem.Code) {
	r.Helper()
	if problem.CodeOf(err) != code {
		r.Fatalf("%v, want %s", err, code)
	}
	if problem.Outer(err).Hint == "" {
		r.Errorf("%s doesn't say what to do", code)
	}
}

func (r *room) unchanged(x receipt.Receipt) {
	r.Helper()
	b, err := r.db.Lookup(r.Context(), x.Request)
	r.ok(err)
	if b.Execution != x {
		r.Errorf("changed to %+v", b.Execution)
	}
	if s, err := r.db.Settlement(r.Context(), x.Request); s != nil || err != nil {
		r.Errorf("settled: %+v %v", s, err)
	}
}

// A23: the operator's word settles what nobody can prove, the ledger is told,
// and others are free again.
func TestSettles(t *testing.T) {
	for _, outcome := range []receipt.State{receipt.Succeeded, receipt.Failed} {
		r := newRoom(t)
		x := r.lost(1)
		r.settles(message.Interrupted)
		got, err := r.s.Reconcile(t.Context(), order(x, outcome))
		r.ok(err)
		y := got.Finding.Receipt
		if got.How != reconcile.ByOperator || y.State != outcome || !y.Settled || got.Settlement.Owed() || got.Settlement.By != "uid 0" {
			t.Errorf("%+v", got)
		}
		if len(r.moved) != 1 || r.moved[0] != outcome || r.asked[len(r.asked)-1] != message.Settle {
			t.Errorf("moved %v, asked %v", r.moved, r.asked)
		}
		// A10: it is never reused.
		again := receipttest.Binding(2, web, "text")
		if outcome == receipt.Failed {
			again.Body.Previous = x.Request
		}
		b, err := storetest.Bind(t.Context(), r.db, again, "text")
		if err != nil || b.Reused || b.Execution.State != receipt.Queued {
			t.Errorf("after it: %+v %v", b, err)
		}
		// The same again is no error, another outcome is.
		if got, err := r.s.Reconcile(t.Context(), order(x, outcome)); err != nil || got.How != reconcile.Already {
			t.Errorf("again: %+v %v", got, err)
		}
		other := map[receipt.State]receipt.State{receipt.Succeeded: receipt.Failed, receipt.Failed: receipt.Succeeded}[outcome]
		_, err = r.s.Reconcile(t.Context(), order(x, other))
		r.wantCode(err, problem.NotUncertain)
	}
}

// What the ledger proves stands: it is adopted, and another outcome is refused.
func TestTheLedgerComesFirst(t *testing.T) {
	finished := func(a *message.Answer) { a.Counts = &message.Counts{Declared: 3, Passed: 3} }
	r := newRoom(t)
	x := r.lost(1)
	r.says(message.Finished, finished)
	_, err := r.s.Reconcile(t.Context(), order(x, receipt.Failed))
	r.wantCode(err, problem.OutcomeProved)
	b, err := r.db.Lookup(t.Context(), x.Request)
	if err != nil || b.Execution.State != receipt.Succeeded || b.Execution.Settled {
		t.Errorf("%+v %v", b.Execution, err)
	}
	// Agreeing is no error, and isn't a settlement.
	y := r.lost2(t)
	got, err := r.s.Reconcile(t.Context(), order(y, receipt.Succeeded))
	if err != nil || got.How != reconcile.ByEvidence || got.Settlement != nil {
		t.Errorf("%+v %v", got, err)
	}
}

// lost2 is a second lost receipt, of another text.
func (r *room) lost2(t *testing.T) receipt.Receipt {
	t.Helper()
	b, err := storetest.Bind(t.Context(), r.db, receipttest.Binding(2, web, "two"), "two")
	r.ok(err)
	x, err := r.db.Claim(t.Context(), b.Execution.Request, 0, receipttest.Claim(web))
	r.ok(err)
	x, err = r.db.Apply(t.Context(), x.Request, x.Seq, evidence.Lose(r.clock.Now(), problem.NoAnswer))
	r.ok(err)
	return x
}

// Nothing is settled while the run, or what it left, may still work; also not
// where that was the last that was heard.
func TestRefusesWhatStillRuns(t *testing.T) {
	for what, say := range map[string]func(r *room){
		"running":   func(r *room) { r.says(message.Running) },
		"survivors": func(r *room) { r.says(message.Running, func(a *message.Answer) { a.Survivors = 2 }) },
		"prepared":  func(r *room) { r.says(message.NotStartedYet) },
		"silent since it ran": func(r *room) {
			r.says(message.Running)
			_, err := r.s.Ask(r.Context(), receipttest.Request(1))
			r.ok(err)
			r.silent()
		},
		"its ledger lost since it ran": func(r *room) {
			r.says(message.Running)
			_, err := r.s.Ask(r.Context(), receipttest.Request(1))
			r.ok(err)
			r.says(message.Refused, func(a *message.Answer) { a.Code = problem.LedgerChanged })
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRoom(t)
			x := r.lost(1)
			say(r)
			_, err := r.s.Reconcile(t.Context(), order(x, receipt.Failed))
			r.wantCode(err, problem.JobRunning)
			r.unchanged(x)
		})
	}
}

func TestRefusesWhatCantBeSettled(t *testing.T) {
	r := newRoom(t)
	_, err := r.s.Reconcile(t.Context(), order(receipttestUnknown(), receipt.Failed))
	r.wantCode(err, problem.UnknownRequest)

	x := r.dispatched(1)
	r.silent()
	_, err = r.s.Reconcile(t.Context(), order(x, receipt.Failed))
	r.wantCode(err, problem.NotUncertain) // it is still looked for

	x, err = r.db.Apply(t.Context(), x.Request, x.Seq, evidence.Lose(r.clock.Now(), problem.NoAnswer))
	r.ok(err)
	r.says(message.Absent)
	for _, confirm := range []string{"", "web-2"} {
		o := order(x, receipt.Failed)
		o.Confirm = confirm
		_, err = r.s.Reconcile(t.Context(), o)
		r.wantCode(err, problem.NotConfirmed)
	}
	r.deaf = true
	_, err = r.s.Reconcile(t.Context(), order(x, receipt.Failed))
	r.wantCode(err, problem.Deaf)
	_, err = r.s.Ask(t.Context(), x.Request)
	r.wantCode(err, problem.Deaf)
	r.unchanged(x)
}

func receipttestUnknown() (x receipt.Receipt) {
	x.Request = receipttest.Request(99)
	return x
}

// A destroyed server is settled without being asked, once its successor is
// adopted, and is owed nothing.
func TestServerGone(t *testing.T) {
	r := newRoom(t)
	x := r.lost(1)
	r.answers = func(exchange.Question) *message.Answer { t.Error("asked"); return nil }
	o := order(x, receipt.Failed)
	o.ServerGone = true
	_, err := r.s.Reconcile(t.Context(), o)
	r.wantCode(err, problem.NotReplaced)
	r.unchanged(x)
	successor := receipttest.Target(web)
	successor.Instance = receipttest.Instance("successor")
	r.ok(r.db.Adopt(t.Context(), successor))
	got, err := r.s.Reconcile(t.Context(), o)
	if err != nil || got.Finding.Receipt.State != receipt.Failed || got.Settlement.Owed() || !got.Settlement.ServerGone {
		t.Fatalf("%+v %v", got, err)
	}
	if owed := r.s.Owed(t.Context(), web, x.Body.Instance); len(owed) != 0 {
		t.Errorf("owed %v", owed)
	}
}

// A settlement that can't be delivered stays owed, and travels with a prepare
// until its answer is final. A final answer that disagrees is raised.
func TestOwedTravelsWithThePrepare(t *testing.T) {
	r := newRoom(t)
	x := r.lost(1)
	r.silent()
	got, err := r.s.Reconcile(t.Context(), order(x, receipt.Succeeded))
	r.ok(err)
	if !got.Settlement.Owed() {
		t.Fatal("not owed")
	}
	owed := r.s.Owed(t.Context(), web, x.Body.Instance)
	if len(owed) != 1 || owed[0] != (message.Settlement{Request: x.Request, Digest: x.Body.Digest, Outcome: message.OutcomeSucceeded}) {
		t.Fatalf("%+v", owed)
	}
	state := message.SettlementState{Request: x.Request, Result: message.Running}
	r.s.Paid(t.Context(), web, []message.SettlementState{state})
	if len(r.s.Owed(t.Context(), web, x.Body.Instance)) != 1 {
		t.Error("paid while it runs")
	}
	// While it is owed the ledger's own record is no contradiction.
	r.s.Unfinished(t.Context(), x, x.Request)
	state.Result, state.Code = message.Finished, problem.StateFailed
	r.s.Paid(t.Context(), web, []message.SettlementState{state, {Request: receipttest.Request(50), Result: message.Settled}})
	if len(r.s.Owed(t.Context(), web, x.Body.Instance)) != 0 {
		t.Error("still owed")
	}
	conflicts, err := r.db.List(t.Context(), store.Filter{Conflicts: true})
	if err != nil || len(conflicts) != 1 || conflicts[0].State != receipt.Succeeded {
		t.Errorf("conflicts: %+v %v", conflicts, err)
	}
	// Told, and unfinished all the same: now it is one.
	r.s.Unfinished(t.Context(), x, x.Request)
	log, err := r.db.Witnesses(t.Context(), x.Request)
	if err != nil || !log[len(log)-1].Conflict || log[len(log)-1].Code != problem.RecordUnfinished {
		t.Errorf("%+v %v", log, err)
	}
}

// A22, issue 5: a record that the database doesn't know quarantines the target.
func TestUnknownRecord(t *testing.T) {
	for result, code := range map[message.Result]problem.Code{
		message.Interrupted: problem.Interrupted, message.Running: problem.StillRunning,
	} {
		r := newRoom(t)
		asked := r.dispatched(1)
		_, _, digest := receipttest.Source("of the past")
		r.says(result, func(a *message.Answer) { a.Digest = digest })
		r.s.Unfinished(t.Context(), asked, receipttest.Request(9))
		b, err := r.db.Lookup(t.Context(), receipttest.Request(9))
		r.ok(err)
		x := b.Execution
		if x.State != receipt.Uncertain || x.Code != code || !x.FromLedger || x.Body.Digest != digest || len(r.moved) != 1 {
			t.Errorf("%s: %+v, moved %v", result, x, r.moved)
		}
		// And it is reconciled as any other.
		r.settles(message.Interrupted)
		r.answers = wrapDigest(r.answers, digest)
		got, err := r.s.Reconcile(t.Context(), order(x, receipt.Failed))
		if err != nil || got.Finding.Receipt.State != receipt.Failed {
			t.Errorf("%s: %+v %v", result, got, err)
		}
	}
	for _, result := range []message.Result{message.Finished, message.Absent, message.NeverBegan} {
		r := newRoom(t)
		r.says(result)
		r.s.Unfinished(t.Context(), r.dispatched(1), receipttest.Request(9))
		if _, err := r.db.Lookup(t.Context(), receipttest.Request(9)); problem.CodeOf(err) != problem.UnknownRequest {
			t.Errorf("%s made a receipt: %v", result, err)
		}
	}
	r := newRoom(t)
	r.silent()
	r.s.Unfinished(t.Context(), r.dispatched(1), receipttest.Request(9))
	if _, err := r.db.Lookup(t.Context(), receipttest.Request(9)); problem.CodeOf(err) != problem.UnknownRequest {
		t.Errorf("silence made a receipt: %v", err)
	}
}

// toldFailed is a store that writes and then tells an error.
type toldFailed struct{ *store.DB }

func (s toldFailed) Apply(ctx context.Context, request string, seq int, e receipt.Event) (receipt.Receipt, error) {
	_, err := s.DB.Apply(ctx, request, seq, e)
	return receipt.Receipt{}, errors.Join(err, problem.New(problem.NotWritable, "broken"))
}

func (s toldFailed) FromLedger(ctx context.Context, r receipt.Record) (receipt.Receipt, error) {
	_, err := s.DB.FromLedger(ctx, r)
	return receipt.Receipt{}, errors.Join(err, problem.New(problem.NotWritable, "broken"))
}

// What was written, and told as failed, is told to the lane all the same: else it
// would refuse everything for a quarantine that is settled, or ask nobody about
// what a ledger knows, until masterd is started again.
func TestWrittenButToldFailed(t *testing.T) {
	r := newRoom(t)
	x := r.lost(1)
	s := reconcile.New(reconcile.Config{
		Store: toldFailed{r.db}, Exchange: r, Look: r.look, Moved: func(x receipt.Receipt) { r.moved = append(r.moved, x.State) },
		Joined: func() bool { return true }, Now: r.clock.Now, Logger: hclog.NewNullLogger(),
	})
	r.settles(message.Interrupted)
	if _, err := s.Reconcile(t.Context(), order(x, receipt.Failed)); err == nil {
		t.Error("no error")
	}
	if !slices.Equal(r.moved, []receipt.State{receipt.Failed}) {
		t.Errorf("settled: moved %v", r.moved)
	}
	r.moved = nil
	_, _, digest := receipttest.Source("of the past")
	r.says(message.Interrupted, func(a *message.Answer) { a.Digest = digest })
	s.Unfinished(t.Context(), x, receipttest.Request(9))
	if !slices.Equal(r.moved, []receipt.State{receipt.Uncertain}) {
		t.Errorf("of a ledger: moved %v", r.moved)
	}
}

// A ledger that was put back to before a run's end, and adopted again, is told of it
// again: else the record would keep every other request from the target, and nothing
// could be settled. That nothing ran is no such end, and another server has another
// ledger.
func TestALedgerIsRemindedOfAnEnd(t *testing.T) {
	none := &receipt.Counts{Declared: 3, NotRun: 3}
	for name, c := range map[string]struct {
		event    receipt.Event
		instance string
		reminds  message.Outcome
	}{
		"succeeded":   {event: receipt.Event{To: receipt.Succeeded, Counts: &receipt.Counts{Declared: 3, Passed: 3}}, reminds: message.OutcomeSucceeded},
		"failed":      {event: receipt.Event{To: receipt.Failed, Code: problem.StateFailed, Counts: none}, reminds: message.OutcomeFailed},
		"never began": {event: receipt.Event{To: receipt.Failed, Code: problem.NeverBegan, Counts: none}},
		"fenced":      {event: receipt.Event{To: receipt.Failed, Code: problem.StartRefusedTicket, Counts: none}},
		"another server": {
			event: receipt.Event{To: receipt.Succeeded, Counts: &receipt.Counts{Declared: 3, Passed: 3}}, instance: "another",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			x := r.dispatched(1)
			e := c.event
			e.Name, e.At, e.Actor = receipt.EventFinish, r.clock.Now(), receipt.ActorMasterd
			e.Counts.Declared, e.Counts.Passed = x.Declared, min(e.Counts.Passed, x.Declared)
			e.Counts.NotRun = x.Declared - e.Counts.Passed
			x, err := r.db.Apply(t.Context(), x.Request, x.Seq, e)
			r.ok(err)
			r.says(message.Settled)
			inner, told := r.answers, message.Outcome("")
			r.answers = func(q exchange.Question) *message.Answer {
				if q.Kind == message.Settle && q.Request == x.Request {
					told = q.Body.Outcome
				}
				return inner(q)
			}
			asked := x
			if c.instance != "" {
				asked.Body.Instance = c.instance
			}
			r.s.Unfinished(t.Context(), asked, x.Request)
			if told != c.reminds {
				t.Errorf("told %q, want %q", told, c.reminds)
			}
			log, err := r.db.Witnesses(t.Context(), x.Request)
			if err != nil || len(log) == 0 || !log[len(log)-1].Conflict {
				t.Errorf("not kept: %+v %v", log, err)
			}
		})
	}
}

// A lane may have missed that there is a receipt at all: it is told again.
func TestUnfinishedTellsTheLane(t *testing.T) {
	r := newRoom(t)
	x := r.lost(1)
	r.s.Unfinished(t.Context(), x, x.Request)
	if !slices.Equal(r.moved, []receipt.State{receipt.Uncertain}) {
		t.Errorf("moved %v", r.moved)
	}
}

func wrapDigest(f func(exchange.Question) *message.Answer, digest string) func(exchange.Question) *message.Answer {
	return func(q exchange.Question) *message.Answer {
		a := f(q)
		a.Digest = digest
		return a
	}
}

// Every state has a next step, and it names what it speaks of.
func TestNextIsNeverEmpty(t *testing.T) {
	for _, state := range receipt.States() {
		for _, last := range []message.Result{"", message.Running, message.Interrupted, message.Absent} {
			x := receipt.New(receipttest.Binding(1, web, "text"))
			x.State = state
			next := reconcile.Next(x, last, nil)
			if next == "" || state == receipt.Uncertain && !strings.Contains(next, x.Request) {
				t.Errorf("%s %s: %q", state, last, next)
			}
		}
	}
}
