package receipt_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
)

// drawFacts draws what a database could know: its receipts of the same key, the
// target's adoption, a quarantine, what previous stands for.
func drawFacts(t *rapid.T, b receipt.Binding) receipt.Facts {
	var f receipt.Facts
	sameKey := func(name string, states ...receipt.State) *receipt.Receipt {
		if !rapid.Bool().Draw(t, "has "+name) {
			return nil
		}
		r := receipttest.Receipts().Draw(t, name)
		r.Body.Target, r.Body.Instance, r.Body.Profile, r.Body.Digest = b.Body.Target, b.Body.Instance, b.Body.Profile, b.Body.Digest
		r.State = rapid.SampledFrom(states).Draw(t, name+" state")
		r.Settled = r.State == receipt.Succeeded && rapid.Bool().Draw(t, name+" settled")
		r.Ledger = rapid.SampledFrom([]string{"l1", "l2"}).Draw(t, name+" ledger")
		return &r
	}
	if rapid.IntRange(0, 9).Draw(t, "adopted") > 0 {
		target := receipttest.Target(b.Body.Target)
		target.Ledger = rapid.SampledFrom([]string{"l1", "l2"}).Draw(t, "ledger")
		if rapid.IntRange(0, 9).Draw(t, "replaced") == 0 {
			target.Instance = receipttest.Instance("another")
		}
		f.Target = &target
	}
	f.Open = sameKey("open", receipt.Queued, receipt.Dispatching, receipt.Dispatched)
	f.Confirmed = sameKey("confirmed", receipt.Succeeded, receipt.Failed, receipt.Refused)
	if b.Body.Previous != "" {
		if f.Confirmed != nil && rapid.Bool().Draw(t, "previous is confirmed") {
			f.Previous = f.Confirmed
		} else if rapid.Bool().Draw(t, "previous known") {
			p := receipttest.Receipts().Draw(t, "previous receipt")
			f.Previous = &p
		}
	}
	if rapid.Bool().Draw(t, "quarantined") {
		f.Quarantine = &receipt.Blocker{Request: receipttest.Request(99), Profile: receipt.Custom, Since: receipttest.Epoch}
	}
	return f
}

func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := receipttest.Bindings().Draw(t, "binding")
		if rapid.Bool().Draw(t, "claims a digest") {
			b.Claimed = b.Body.Digest
		}
		f := drawFacts(t, b)
		now := receipttest.Epoch
		d, err := receipt.Decide(b, f, now)

		// The same facts, and the request known: always its receipt.
		known := f
		bound := receipttest.Receipts().Draw(t, "known")
		known.Known = &receipt.Known{Body: b.Body, Execution: bound}
		late := b
		late.AcceptUntil, late.Claimed = now.Add(-time.Hour), "anything"
		if k, err := receipt.Decide(late, known, now); err != nil || k.Action != receipt.ActionRepeat || k.Execution.Request != bound.Request {
			t.Fatalf("a known request: %+v, %v", k, err)
		}
		other := b
		other.Body.Revision++
		if _, err := receipt.Decide(other, known, now); problem.CodeOf(err) != problem.RequestConflict {
			t.Fatalf("another body: %v", err)
		}
		if err != nil {
			if problem.RowOf(problem.CodeOf(err)).HTTP != 409 || d.Action != 0 {
				t.Fatalf("%v with %+v", err, d)
			}
			return
		}
		checkDecision(t, b, f, d)
	})
}

// checkDecision is the protocol's "Starting twice", said the other way round:
// what must be true of the facts where Decide has done something.
func checkDecision(t *rapid.T, b receipt.Binding, f receipt.Facts, d receipt.Decision) {
	if f.Target == nil || f.Target.Instance != b.Body.Instance {
		t.Fatalf("something is bound on a target that wasn't adopted as this instance: %+v", d)
	}
	failed := f.Confirmed != nil && f.Confirmed.State != receipt.Succeeded
	switch d.Action {
	case receipt.ActionAlias:
		if f.Open != nil {
			if d.Execution.Request != f.Open.Request {
				t.Fatal("bound to another than the open one")
			}
			return
		}
		c := f.Confirmed
		if c == nil || d.Execution.Request != c.Request || c.State != receipt.Succeeded || c.Settled ||
			c.Ledger != f.Target.Ledger || b.Body.Again || b.Body.Profile != receipt.Custom {
			t.Fatalf("reused what mustn't be: %+v", c)
		}
	case receipt.ActionNew, receipt.ActionRefuse:
		if f.Open != nil {
			t.Fatal("a second open receipt of one key")
		}
		if failed && (f.Previous == nil || f.Previous.Request != f.Confirmed.Request) {
			t.Fatal("a failure wasn't named")
		}
		if (d.Action == receipt.ActionRefuse) != (f.Quarantine != nil) {
			t.Fatalf("action %d, quarantine %v", d.Action, f.Quarantine)
		}
		if d.Action == receipt.ActionRefuse {
			r, err := receipt.Apply(receipt.New(b), *d.Refusal)
			if err != nil || r.State != receipt.Refused || r.Code != problem.TargetQuarantined || r.BlockedBy != f.Quarantine {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	case receipt.ActionRepeat:
		t.Fatal("an unknown request was repeated")
	default:
		t.Fatalf("action %d", d.Action)
	}
}

// A10, A11, A23: what an identical digest that has ended gives.
func TestReuse(t *testing.T) {
	at := receipttest.Epoch
	claim := receipttest.Claim("a")
	claim.JID = receipt.NextJID("", at)
	apply := func(r receipt.Receipt, events ...receipt.Event) *receipt.Receipt {
		t.Helper()
		for _, e := range events {
			var err error
			if r, err = receipt.Apply(r, e); err != nil {
				t.Fatal(err)
			}
		}
		return &r
	}
	old := receipt.New(receipttest.Binding(1, "a", "one"))
	older := receipt.New(receipttest.Binding(3, "a", "one"))
	done := apply(old, receipt.ClaimStart(at, claim), receipttest.Finish(at, 3, 3))
	failed := apply(old, receipt.ClaimStart(at, claim), receipttest.Finish(at, 3, 1))
	before := apply(older, receipt.Refuse(at, problem.ExecutorSilent, nil))
	settled := apply(old, receipt.ClaimStart(at, claim), receipttest.Lose(at), receipttest.Settle(at, receipt.Succeeded))
	settledFailed := apply(old, receipt.ClaimStart(at, claim), receipttest.Lose(at), receipttest.Settle(at, receipt.Failed))
	waiting := apply(older)
	elsewhere := apply(receipt.New(receipttest.Binding(4, "b", "one")), receipt.Refuse(at, problem.ExecutorSilent, nil))
	for _, c := range []struct {
		name      string
		confirmed *receipt.Receipt
		previous  *receipt.Receipt
		change    func(*receipt.Binding, *receipt.Target)
		action    receipt.Action
		code      problem.Code
	}{
		{"the first", nil, nil, nil, receipt.ActionNew, ""},
		{"succeeded", done, nil, nil, receipt.ActionAlias, ""},
		{"succeeded, again", done, nil, func(b *receipt.Binding, _ *receipt.Target) { b.Body.Again = true }, receipt.ActionNew, ""},
		{"succeeded on a ledger that was replaced", done, nil, func(_ *receipt.Binding, t *receipt.Target) { t.Ledger = "new" }, receipt.ActionNew, ""},
		{"succeeded, another profile", done, nil, func(b *receipt.Binding, _ *receipt.Target) { b.Body.Profile = receipt.Configure }, receipt.ActionNew, ""},
		{"settled as succeeded", settled, nil, nil, receipt.ActionNew, ""},
		{"failed, not named", failed, nil, nil, 0, problem.PreviousRequired},
		{"failed, not named, again", failed, nil, func(b *receipt.Binding, _ *receipt.Target) { b.Body.Again = true }, 0, problem.PreviousRequired},
		{"failed, named", failed, failed, nil, receipt.ActionNew, ""},
		{"failed, an older failure named", failed, before, nil, 0, problem.PreviousRequired},
		{"refused, not named", before, nil, nil, 0, problem.PreviousRequired},
		{"refused, named", before, before, nil, receipt.ActionNew, ""},
		{"settled as failed, named", settledFailed, settledFailed, nil, receipt.ActionNew, ""},
		{"one that waits, named", nil, waiting, nil, 0, problem.PreviousNotFailed},
		{"one that succeeded, named", done, done, nil, 0, problem.PreviousNotFailed},
		{"another target's, named", nil, elsewhere, nil, 0, problem.PreviousNotFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, target := receipttest.Binding(2, "a", "one"), receipttest.Target("a")
			if c.previous != nil {
				b.Body.Previous = c.previous.Request
			}
			if c.change != nil {
				c.change(&b, &target)
			}
			d, err := receipt.Decide(b, receipt.Facts{Target: &target, Confirmed: c.confirmed, Previous: c.previous}, at)
			if d.Action != c.action || problem.CodeOf(err) != c.code {
				t.Errorf("action %d, %v", d.Action, err)
			}
		})
	}
}

func TestAcceptUntilAndDigest(t *testing.T) {
	b := receipttest.Binding(1, "a", "one")
	target := receipttest.Target("a")
	f := receipt.Facts{Target: &target}
	now := receipttest.Epoch
	for _, c := range []struct {
		name   string
		change func(*receipt.Binding)
		want   problem.Code
	}{
		{"neither", func(*receipt.Binding) {}, ""},
		{"to the last moment", func(b *receipt.Binding) { b.AcceptUntil = now }, ""},
		{"passed", func(b *receipt.Binding) { b.AcceptUntil = now.Add(-1) }, problem.AcceptUntilPassed},
		{"the digest", func(b *receipt.Binding) { b.Claimed = b.Body.Digest }, ""},
		{"another digest", func(b *receipt.Binding) { b.Claimed = "00" }, problem.DigestMismatch},
	} {
		b := b
		c.change(&b)
		if _, err := receipt.Decide(b, f, now); problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDecideClaimProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := receipt.New(receipttest.Bindings().Draw(t, "binding"))
		now := receipttest.Times().Draw(t, "now")
		var f receipt.ClaimFacts
		if rapid.Bool().Draw(t, "had a jid") {
			f.LastJID = receipt.NextJID("", receipttest.Times().Draw(t, "last"))
		}
		if rapid.Bool().Draw(t, "busy") {
			f.Busy = &receipt.Blocker{Request: receipttest.Request(98), Profile: receipt.Custom, Since: now}
		}
		if rapid.Bool().Draw(t, "quarantined") {
			f.Quarantine = &receipt.Blocker{Request: receipttest.Request(99), Profile: receipt.Custom, Since: now}
		}
		next, err := receipt.Apply(r, receipt.DecideClaim(r, receipttest.Claim(r.Body.Target), f, now))
		if err != nil {
			t.Fatal(err)
		}
		checkWhole(t, next)
		inTime := !now.After(r.AcceptedAt.Add(receipt.CustomWindow))
		if (next.State == receipt.Dispatching) != (f.Busy == nil && f.Quarantine == nil && inTime) {
			t.Fatalf("%s with %+v, in time %v", next.State, f, inTime)
		}
		if next.State == receipt.Dispatching && next.JID <= f.LastJID {
			t.Fatalf("JID %s after %s", next.JID, f.LastJID)
		}
	})
}

// JIDs of 20 digits that only grow, whatever the clock does; a start never has
// the JID of a question.
func TestNextJIDOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last, lastQuestion := "", ""
		starts, questions := map[string]bool{}, map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "claims") {
			now := receipttest.Times().Draw(t, "now")
			jid, question := receipt.NextJID(last, now), receipt.NextQuestionJID(lastQuestion, now)
			for _, j := range []string{jid, question} {
				if len(j) != 20 {
					t.Fatalf("%q has %d digits", j, len(j))
				}
				for _, digit := range j {
					if digit < '0' || digit > '9' {
						t.Fatalf("%q", j)
					}
				}
			}
			if jid <= last || question <= lastQuestion {
				t.Fatalf("%s after %s, %s after %s", jid, last, question, lastQuestion)
			}
			last, lastQuestion = jid, question
			starts[jid], questions[question] = true, true
		}
		for jid := range starts {
			if questions[jid] {
				t.Fatalf("%s is both", jid)
			}
		}
	})
}
