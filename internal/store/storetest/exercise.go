package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
)

// rig is one exercise's store, with one target adopted.
type rig struct {
	*testing.T
	Store
	clock *Clock
	ctx   context.Context
}

const (
	alpha = "alpha"
	beta  = "beta"
	word  = "one" // the text of most sources
)

// Exercise is what a store of receipts must do. fresh gives an empty one, whose
// clock is the given one.
func Exercise(t *testing.T, fresh func(t *testing.T, clock *Clock) Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(r *rig)
	}{
		{"A13 a request is bound once and found again", bindsOnce},
		{"A19 the same UUID with another body is a conflict", conflicts},
		{"a refusal with 409 stores nothing", storesNothing},
		{"A10 a second UUID of an open receipt is bound to it", aliases},
		{"A10 an identical digest that succeeded is reused", reuses},
		{"A11 again makes another execution", again},
		{"A12 a failure must be named, also by an alias", previous},
		{"A23 a settled success is never reused", settledIsNotReused},
		{"A22 an uncertain receipt quarantines its target for every request", quarantines},
		{"A15 one busy receipt a target", oneBusy},
		{"claims get JIDs that only grow", jids},
		{"a claim after the window is refused", windows},
		{"a write that believes wrong changes nothing", lostRaces},
		{"an event that doesn't fit changes nothing", illegal},
		{"a receipt is what receipt.Apply made of it, on every path", everyPath},
		{"unresolved come in order of acceptance", unresolved},
		{"the newest adoption counts", adoptions},
		{"witnesses are kept as they came", witnesses},
		{"sources are kept once for each digest", sources},
		{"lists are filtered", lists},
		{"the highest generation of each ledger is known", highest},
		{"a ledger that was put back is marked until it is adopted again", putsBack},
		{"an adoption that tells no generation leaves doubts", adoptedUntold},
		{"a ledger that another one followed is still held to what it told", twoLedgers},
		{"a result of a ledger that was put back isn't reused", undone},
		{"blocked_by says since when", blockers},
		{"50 callers with one UUID get one receipt", fiftyCallers},
		{"50 callers with 50 UUIDs of one digest get one execution", fiftyAliases},
		{"50 claims of one target give one busy receipt", fiftyClaims},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := NewClock()
			r := &rig{T: t, Store: fresh(t, clock), clock: clock, ctx: t.Context()}
			r.ok(r.Adopt(r.ctx, receipttest.Target(alpha)))
			r.ok(r.Adopt(r.ctx, receipttest.Target(beta)))
			c.run(r)
		})
	}
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) wantCode(err error, code problem.Code) {
	r.Helper()
	if got := problem.CodeOf(err); got != code {
		r.Fatalf("got code %q (%v), want %q", got, err, code)
	}
}

func equal[T any](t testing.TB, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got\n%+v\nwant\n%+v", got, want)
	}
}

func (r *rig) bind(b receipt.Binding, text string) receipt.Bound {
	r.Helper()
	bound, err := Bind(r.ctx, r.Store, b, text)
	r.ok(err)
	return bound
}

func (r *rig) read(request string) receipt.Receipt {
	r.Helper()
	b, err := r.Lookup(r.ctx, request)
	r.ok(err)
	return b.Execution
}

func (r *rig) apply(x receipt.Receipt, e receipt.Event) receipt.Receipt {
	r.Helper()
	next, err := r.Apply(r.ctx, x.Request, x.Seq, e)
	r.ok(err)
	equal(r, r.read(x.Request), next)
	return next
}

func (r *rig) claim(x receipt.Receipt) receipt.Receipt {
	r.Helper()
	next, err := r.Claim(r.ctx, x.Request, x.Seq, receipttest.Claim(x.Body.Target))
	r.ok(err)
	equal(r, r.read(x.Request), next)
	return next
}

// dispatched binds and claims.
func (r *rig) dispatched(n int, target, text string) receipt.Receipt {
	r.Helper()
	x := r.claim(r.bind(receipttest.Binding(n, target, text), text).Execution)
	equal(r, x.State, receipt.Dispatching)
	return x
}

func (r *rig) ended(n int, target, text string, passed int) receipt.Receipt {
	r.Helper()
	x := r.dispatched(n, target, text)
	return r.apply(x, receipttest.Finish(r.clock.Now(), x.Declared, passed))
}

func bindsOnce(r *rig) {
	b := receipttest.Binding(1, alpha, word)
	b.AcceptUntil = r.clock.Now().Add(time.Hour)
	b.Claimed = b.Body.Digest
	got := r.bind(b, word)
	b.Claimed = "" // isn't kept
	equal(r, got, receipt.Bound{Request: b.Request, Body: b.Body, Execution: receipt.New(b)})

	// The first call's values stay; accept_until doesn't matter any more.
	second := b
	second.Requester, second.AcceptUntil = "somebody else", r.clock.Now().Add(-time.Hour)
	second.AcceptedAt = b.AcceptedAt.Add(time.Minute)
	equal(r, r.bind(second, word), got)
	found, err := r.Lookup(r.ctx, b.Request)
	r.ok(err)
	equal(r, found, got)

	_, err = r.Lookup(r.ctx, receipttest.Request(2))
	r.wantCode(err, problem.UnknownRequest)
}

func conflicts(r *rig) {
	b := receipttest.Binding(1, alpha, word)
	r.bind(b, word)
	for name, change := range map[string]func(*receipt.Body){
		"target":   func(b *receipt.Body) { b.Target, b.Instance = beta, receipttest.Instance(beta) },
		"instance": func(b *receipt.Body) { b.Instance = receipttest.Instance(beta) },
		"revision": func(b *receipt.Body) { b.Revision++ },
		"previous": func(b *receipt.Body) { b.Previous = receipttest.Request(9) },
		"again":    func(b *receipt.Body) { b.Again = true },
	} {
		other := b
		change(&other.Body)
		_, err := Bind(r.ctx, r.Store, other, word)
		if got := problem.CodeOf(err); got != problem.RequestConflict {
			r.Errorf("another %s: %q (%v)", name, got, err)
		}
	}
	_, err := Bind(r.ctx, r.Store, receipttest.Binding(1, alpha, "two"), "two")
	r.wantCode(err, problem.RequestConflict)
	equal(r, r.read(b.Request), receipt.New(b))
}

func storesNothing(r *rig) {
	try := func(code problem.Code, change func(*receipt.Binding)) {
		r.Helper()
		b := receipttest.Binding(1, alpha, word)
		change(&b)
		_, err := Bind(r.ctx, r.Store, b, word)
		r.wantCode(err, code)
		_, err = r.Lookup(r.ctx, b.Request)
		r.wantCode(err, problem.UnknownRequest)
		if _, err := r.Source(r.ctx, b.Body.Digest); err == nil {
			r.Errorf("%s stored its source", code)
		}
	}
	try(problem.NotConfigured, func(b *receipt.Binding) { b.Body.Target = "gamma" })
	try(problem.InstanceMismatch, func(b *receipt.Binding) { b.Body.Instance = receipttest.Instance(beta) })
	try(problem.AcceptUntilPassed, func(b *receipt.Binding) { b.AcceptUntil = r.clock.Now().Add(-time.Microsecond) })
	try(problem.PreviousNotFailed, func(b *receipt.Binding) { b.Body.Previous = receipttest.Request(8) })
	try(problem.DigestMismatch, func(b *receipt.Binding) { b.Claimed = strings.Repeat("0", 64) })
}

func aliases(r *rig) {
	first := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	second := receipttest.Binding(2, alpha, word)
	second.Body.Again, second.Body.Revision = true, 5
	got := r.bind(second, word)
	equal(r, got, receipt.Bound{Request: second.Request, Body: second.Body, Execution: first, Reused: true})
	equal(r, r.bind(second, word), got) // durably

	running := r.claim(first)
	third := r.bind(receipttest.Binding(3, alpha, word), word)
	equal(r, third.Execution, running)
	equal(r, third.Reused, true)

	// Another digest, target or instance isn't the same.
	equal(r, r.bind(receipttest.Binding(4, alpha, "two"), "two").Reused, false)
	equal(r, r.bind(receipttest.Binding(5, beta, word), word).Reused, false)

	// All of them follow the one execution to its end.
	done := r.apply(running, receipttest.Finish(r.clock.Now(), 3, 3))
	for _, n := range []int{1, 2, 3} {
		equal(r, r.read(receipttest.Request(n)), done)
	}
}

func reuses(r *rig) {
	done := r.ended(1, alpha, word, 3)
	got := r.bind(receipttest.Binding(2, alpha, word), word)
	equal(r, got.Execution, done)
	equal(r, got.Reused, true)
	equal(r, r.bind(receipttest.Binding(3, beta, word), word).Reused, false)

	// Another ledger: the result isn't that server's any more.
	moved := receipttest.Target(alpha)
	moved.Ledger = "another"
	r.ok(r.Adopt(r.ctx, moved))
	equal(r, r.bind(receipttest.Binding(4, alpha, word), word).Reused, false)
}

func again(r *rig) {
	r.ended(1, alpha, word, 3)
	b := receipttest.Binding(2, alpha, word)
	b.Body.Again = true
	got := r.bind(b, word)
	equal(r, got.Reused, false)
	equal(r, got.Execution, receipt.New(b))
}

func previous(r *rig) {
	failed := r.ended(1, alpha, word, 2)
	equal(r, failed.Code, problem.StateFailed)
	with := func(n int, previous string) (receipt.Bound, error) {
		b := receipttest.Binding(n, alpha, word)
		b.Body.Previous = previous
		return Bind(r.ctx, r.Store, b, word)
	}
	_, err := with(2, "")
	r.wantCode(err, problem.PreviousRequired)
	if !strings.Contains(problem.Outer(err).Hint, failed.Request) {
		r.Errorf("the hint doesn't name %s: %v", failed.Request, problem.Outer(err).Hint)
	}
	second, err := with(3, failed.Request)
	r.ok(err)
	equal(r, second.Execution.State, receipt.Queued)

	// An alias of the second stands for it, once it has failed.
	alias, err := with(4, "")
	r.ok(err)
	equal(r, alias.Execution.Request, second.Request)
	_, err = with(5, alias.Request)
	r.ok(err) // bound to the open one before its previous is looked at
	silent := receipt.Refuse(r.clock.Now(), problem.ExecutorSilent, nil)
	silent.Detail = "no_return"
	refused := r.apply(second.Execution, silent)
	equal(r, refused.Detail, "no_return")
	equal(r, refused.Preflight, receipt.Preflight{Passed: 0, Total: 1})
	_, err = with(6, failed.Request) // a refusal included, and not the last one
	r.wantCode(err, problem.PreviousRequired)
	third, err := with(7, alias.Request)
	r.ok(err)
	equal(r, third.Execution.State, receipt.Queued)

	// Neither running nor of another target.
	other := receipttest.Binding(8, alpha, "two")
	other.Body.Previous = third.Request
	_, err = Bind(r.ctx, r.Store, other, "two")
	r.wantCode(err, problem.PreviousNotFailed)
	elsewhere := receipttest.Binding(9, beta, word)
	elsewhere.Body.Previous = failed.Request
	_, err = Bind(r.ctx, r.Store, elsewhere, word)
	r.wantCode(err, problem.PreviousNotFailed)
	equal(r, r.read(failed.Request), failed)
}

func settledIsNotReused(r *rig) {
	x := r.apply(r.dispatched(1, alpha, word), receipttest.Lose(r.clock.Now()))
	x = r.apply(x, receipttest.Settle(r.clock.Now(), receipt.Succeeded))
	equal(r, x.Settled, true)
	got := r.bind(receipttest.Binding(2, alpha, word), word)
	equal(r, got.Reused, false)
}

func quarantines(r *rig) {
	at := r.clock.Now().Add(time.Minute)
	lost := r.apply(r.dispatched(1, alpha, word), receipttest.Lose(at))
	waiting := r.bind(receipttest.Binding(2, beta, word), word).Execution
	for n, text := range map[int]string{3: word, 4: "two"} {
		b := receipttest.Binding(n, alpha, text)
		got := r.bind(b, text)
		equal(r, got.Execution.State, receipt.Refused)
		equal(r, got.Execution.Code, problem.TargetQuarantined)
		equal(r, got.Execution.BlockedBy, &receipt.Blocker{Request: lost.Request, Profile: receipt.Custom, Since: at})
		equal(r, got.Reused, false)
		equal(r, r.read(b.Request), got.Execution)
	}
	equal(r, r.claim(waiting).State, receipt.Dispatching) // another target is free

	// A24: a confirmed failure doesn't quarantine. It is newer than the
	// refusals, and so what previous must name.
	r.apply(lost, receipttest.Finish(at, 3, 0))
	b := receipttest.Binding(5, alpha, word)
	b.Body.Previous = lost.Request
	equal(r, r.bind(b, word).Execution.State, receipt.Queued)
}

func oneBusy(r *rig) {
	first := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	second := r.bind(receipttest.Binding(2, alpha, "two"), "two").Execution
	third := r.bind(receipttest.Binding(3, alpha, "three"), "three").Execution
	first = r.claim(first)
	got := r.claim(second)
	equal(r, got.State, receipt.Refused)
	equal(r, got.Code, problem.TargetBusy)
	equal(r, got.BlockedBy, &receipt.Blocker{Request: first.Request, Profile: receipt.Custom, Since: first.DispatchedAt})

	// Nor by any other way into a busy state.
	adopt := receipt.Event{
		Name: receipt.EventAdopt, To: receipt.Dispatched, At: r.clock.Now(), Actor: receipt.ActorMasterd, Ledger: "ledger-alpha",
	}
	_, err := r.Apply(r.ctx, third.Request, third.Seq, adopt)
	r.wantCode(err, problem.TargetBusy)
	equal(r, r.read(third.Request), third)
	r.apply(first, receipttest.Finish(r.clock.Now(), 3, 3))
	equal(r, r.apply(third, adopt).State, receipt.Dispatched)
}

func jids(r *rig) {
	last := ""
	for n := 1; n <= 6; n++ {
		switch n { // forth, standing still, and back
		case 3:
			r.clock.Set(r.clock.Now().Add(time.Second))
		case 5:
			r.clock.Set(receipttest.Epoch.Add(-time.Hour))
		}
		b := receipttest.Binding(n, alpha, fmt.Sprint(n))
		b.AcceptedAt = r.clock.Now()
		x := r.claim(r.bind(b, fmt.Sprint(n)).Execution)
		if len(x.JID) != 20 || x.JID <= last {
			r.Fatalf("JID %s after %s", x.JID, last)
		}
		last = x.JID
		r.apply(x, receipttest.Finish(r.clock.Now(), 3, 3))
	}
}

func windows(r *rig) {
	x := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	y := r.bind(receipttest.Binding(2, beta, word), word).Execution
	r.clock.Set(x.AcceptedAt.Add(receipt.CustomWindow))
	equal(r, r.claim(x).State, receipt.Dispatching)
	r.clock.Set(y.AcceptedAt.Add(receipt.CustomWindow + time.Microsecond))
	late := r.claim(y)
	equal(r, late.State, receipt.Refused)
	equal(r, late.Code, problem.StartWindowPassed)
	equal(r, late.JID, "")
}

func lostRaces(r *rig) {
	x := r.bind(receipttest.Binding(1, alpha, word), word).Execution
	now := r.claim(x)
	var lost *store.LostRaceError
	_, err := r.Claim(r.ctx, x.Request, x.Seq, receipttest.Claim(alpha))
	if !errors.As(err, &lost) {
		r.Fatalf("got %v", err)
	}
	equal(r, lost.Current, now)
	_, err = r.Apply(r.ctx, x.Request, x.Seq+5, receipt.Acknowledge(r.clock.Now()))
	if !errors.As(err, &lost) {
		r.Fatalf("got %v", err)
	}
	equal(r, r.read(x.Request), now)
	_, err = r.Apply(r.ctx, receipttest.Request(99), 0, receipt.Acknowledge(r.clock.Now()))
	r.wantCode(err, problem.UnknownRequest)
}

func illegal(r *rig) {
	done := r.ended(1, alpha, word, 3)
	var wrong *receipt.IllegalError
	for _, e := range []receipt.Event{
		receipttest.Lose(r.clock.Now()), receipttest.Finish(r.clock.Now(), 3, 0),
		receipttest.Settle(r.clock.Now(), receipt.Failed), receipt.Refuse(r.clock.Now(), problem.TargetBusy, nil),
	} {
		if _, err := r.Apply(r.ctx, done.Request, done.Seq, e); !errors.As(err, &wrong) {
			r.Errorf("%s: %v", e.Name, err)
		}
	}
	equal(r, r.read(done.Request), done)
}

// everyPath walks every transition of the table, from every state that leads
// to it, and compares what the store gives with the pure function.
func everyPath(r *rig) {
	at := r.clock.Now().Add(time.Second)
	claim := receipttest.Claim(alpha)
	paths := map[receipt.State][]receipt.Event{
		receipt.Queued:      {},
		receipt.Dispatching: {receipt.ClaimStart(at, claim)},
		receipt.Dispatched:  {receipt.ClaimStart(at, claim), receipt.Acknowledge(at)},
		receipt.Uncertain:   {receipt.ClaimStart(at, claim), receipttest.Lose(at)},
	}
	n := 0
	for _, tr := range receipt.Transitions() {
		n++
		text := fmt.Sprint(n)
		target := fmt.Sprintf("target-%d", n)
		r.ok(r.Adopt(r.ctx, receipttest.Target(target)))
		x := r.bind(receipttest.Binding(n, target, text), text).Execution
		for _, e := range append(paths[tr.From], completeEvent(tr, at, claim)) {
			if e.Claim != nil {
				c := *e.Claim
				c.JID = receipt.NextJID("", at.Add(time.Duration(n)*time.Millisecond))
				e.Claim = &c
			}
			want, err := receipt.Apply(x, e)
			r.ok(err)
			x = r.apply(x, e)
			equal(r, x, want)
		}
		equal(r, x.State, tr.To)
		history, err := r.Transitions(r.ctx, x.Request)
		r.ok(err)
		equal(r, len(history), x.Seq)
		equal(r, history[x.Seq-1].Transition, tr)
		equal(r, history[x.Seq-1].At, at)
	}
}

func completeEvent(tr receipt.Transition, at time.Time, claim receipt.Claim) receipt.Event {
	e := receipt.Event{Name: tr.Event, To: tr.To, At: at, Actor: receipt.ActorMasterd, Ledger: "ledger-alpha"}
	switch tr.To {
	case receipt.Refused:
		e.Code = problem.ExecutorSilent
	case receipt.Failed:
		e.Code = problem.StateFailed
	case receipt.Uncertain:
		e.Code = problem.Interrupted
	case receipt.Queued, receipt.Dispatching, receipt.Dispatched, receipt.Succeeded:
	}
	if tr.Event == receipt.EventClaim {
		e.Claim = &claim
	}
	if tr.Event == receipt.EventSettle {
		return receipttest.Settle(at, tr.To)
	}
	if tr.To == receipt.Succeeded {
		e.Counts = &receipt.Counts{Declared: 3, Passed: 3}
	}
	return e
}

func unresolved(r *rig) {
	// Bound in another order than accepted, and two at the same time.
	for n, offset := range map[int]int{1: 30, 2: 10, 3: 20} {
		b := receipttest.Binding(n, alpha, fmt.Sprint(n))
		b.AcceptedAt = receipttest.Epoch.Add(time.Duration(offset) * time.Millisecond)
		r.bind(b, fmt.Sprint(n))
	}
	b := receipttest.Binding(4, beta, "same time as 1")
	b.AcceptedAt = receipttest.Epoch.Add(30 * time.Millisecond)
	r.bind(b, "same time as 1")
	r.claim(r.read(receipttest.Request(3)))
	lost := r.claim(r.read(receipttest.Request(4)))
	r.apply(lost, receipttest.Lose(r.clock.Now()))
	r.bind(receipttest.Binding(5, alpha, "2"), "2") // an alias is no receipt of its own

	got, err := r.Unresolved(r.ctx)
	r.ok(err)
	var order []string
	for _, x := range got {
		order = append(order, x.Request)
		equal(r, x, r.read(x.Request))
	}
	equal(r, order, []string{receipttest.Request(2), receipttest.Request(3), receipttest.Request(1), receipttest.Request(4)})

	stats, err := r.Stats(r.ctx)
	r.ok(err)
	equal(r, stats, store.Stats{Queued: 2, Running: 1, Uncertain: 1})

	r.apply(r.read(receipttest.Request(2)), receipt.Refuse(r.clock.Now(), problem.TargetBusy, nil))
	got, err = r.Unresolved(r.ctx)
	r.ok(err)
	equal(r, len(got), 3)
}

func adoptions(r *rig) {
	none, err := r.Target(r.ctx, "gamma")
	r.ok(err)
	equal(r, none, nil)
	t := receipttest.Target(alpha)
	got, err := r.Target(r.ctx, alpha)
	r.ok(err)
	equal(r, got, &t)
	t.Instance, t.Fingerprint, t.AdoptedAt = receipttest.Instance("new"), "SHA256:new", r.clock.Now()
	r.ok(r.Adopt(r.ctx, t))
	got, err = r.Target(r.ctx, alpha)
	r.ok(err)
	equal(r, got, &t)
}

func witnesses(r *rig) {
	x := r.dispatched(1, alpha, word)
	log := []receipt.Witness{
		{Request: x.Request, At: r.clock.Now(), Kind: "evidence", Result: "running", Ledger: "ledger-alpha"},
		{
			Request: x.Request, At: r.clock.Now().Add(-time.Hour), Kind: "start", Result: "finished", Code: problem.StateFailed,
			Counts: &receipt.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}, Conflict: true,
		},
	}
	for _, w := range log {
		r.ok(r.Witness(r.ctx, w))
	}
	got, err := r.Witnesses(r.ctx, x.Request)
	r.ok(err)
	equal(r, got, log)
	equal(r, r.read(x.Request), x)
	got, err = r.Witnesses(r.ctx, receipttest.Request(9))
	r.ok(err)
	equal(r, len(got), 0)
	// A7: no raw text.
	bad := log[0]
	bad.Result = "Traceback (most recent call last)"
	if err := r.Witness(r.ctx, bad); err == nil {
		r.Error("raw text was kept")
	}
}

func sources(r *rig) {
	source, canonical, digest := receipttest.Source(word)
	r.bind(receipttest.Binding(1, alpha, word), word)
	_, err := r.Bind(r.ctx, receipttest.Binding(2, beta, word), []byte("# the same, with another comment"), canonical)
	r.ok(err)
	got, err := r.Source(r.ctx, digest)
	r.ok(err)
	equal(r, string(got), string(source))
	got, err = r.Canonical(r.ctx, digest)
	r.ok(err)
	equal(r, string(got), string(canonical))

	_, err = r.Canonical(r.ctx, strings.Repeat("0", 64))
	if err == nil {
		r.Error("there is no such source")
	}
	// A digest that isn't its canonical form's is never stored.
	_, err = r.Bind(r.ctx, receipttest.Binding(3, alpha, "two"), source, canonical)
	r.wantCode(err, problem.Internal)

	big := bytes.Repeat([]byte("a"), 64<<10)
	_, bigCanonical, _ := receipttest.Source(string(big))
	_, err = r.Bind(r.ctx, receipttest.Binding(4, alpha, string(big)), big, bigCanonical)
	r.ok(err)
}

func lists(r *rig) {
	r.ended(1, alpha, word, 3)
	r.ended(2, alpha, "two", 2)
	r.dispatched(3, beta, word)
	r.bind(receipttest.Binding(4, alpha, "four"), "four")
	for _, c := range []struct {
		filter store.Filter
		want   []int
	}{
		{store.Filter{}, []int{4, 3, 2, 1}},
		{store.Filter{Target: alpha}, []int{4, 2, 1}},
		{store.Filter{States: []receipt.State{receipt.Succeeded, receipt.Dispatching}}, []int{3, 1}},
		{store.Filter{Target: beta, States: []receipt.State{receipt.Queued}}, nil},
		{store.Filter{Limit: 2}, []int{4, 3}},
	} {
		got, err := r.List(r.ctx, c.filter)
		r.ok(err)
		var requests, want []string
		for _, x := range got {
			requests = append(requests, x.Request)
		}
		for _, n := range c.want {
			want = append(want, receipttest.Request(n))
		}
		equal(r, requests, want)
	}
}
