package evidence_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
)

var results = []message.Result{
	message.Prepared, message.Refused, message.Finished, message.Fenced, message.Running, message.Interrupted,
	message.NeverBegan, message.NotStartedYet, message.Absent, message.Disregarded, message.Updated,
}

// silent results state nothing about a record: they prove nothing, ever.
var silent = map[message.Result]bool{
	message.Prepared: true, message.Refused: true, message.NotStartedYet: true, message.Absent: true,
	message.Disregarded: true, message.Updated: true,
}

func anyCode(t *rapid.T, name string) problem.Code {
	codes := []problem.Code{"", "", "", "invented", problem.StateFailed}
	for _, row := range problem.Table() {
		codes = append(codes, row.Code)
	}
	return rapid.SampledFrom(codes).Draw(t, name)
}

// answers draws what an executor may state, true or not, about r.
func answers(t *rapid.T, r receipt.Receipt) message.Answer {
	a := message.Answer{
		Request: r.Request, Target: r.Body.Target, Digest: r.Body.Digest, Ledger: r.Ledger,
		Result: rapid.SampledFrom(results).Draw(t, "result"), Code: anyCode(t, "code"),
	}
	if rapid.IntRange(0, 9).Draw(t, "another digest") == 0 {
		a.Digest = "00"
	}
	if rapid.IntRange(0, 4).Draw(t, "another ledger") == 0 {
		a.Ledger = "another"
	}
	if rapid.IntRange(0, 9).Draw(t, "has counts") > 0 {
		c := receipttest.Split(r.Declared).Draw(t, "counts")
		if a.Code == "" && rapid.Bool().Draw(t, "all passed") {
			c = receipt.Counts{Declared: r.Declared, Passed: r.Declared}
		}
		a.Counts = &message.Counts{Declared: c.Declared, Passed: c.Passed, Failed: c.Failed, NotRun: c.NotRun}
		if rapid.IntRange(0, 4).Draw(t, "counts lie") == 0 {
			a.Counts.Passed += rapid.IntRange(-5, 5).Draw(t, "by")
			a.Counts.Declared += rapid.IntRange(-1, 1).Draw(t, "declared by")
		}
	}
	return a
}

// Invariant 3: proof or uncertain.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := receipttest.Receipts().Draw(t, "receipt")
		a := answers(t, r)
		v := evidence.Decide(r, a, receipttest.Epoch)
		if silent[a.Result] && (v.Event != nil || v.Conflict) {
			t.Fatalf("%s says nothing about a record, and did %+v", a.Result, v)
		}
		if v.Event == nil {
			return
		}
		if r.State.Terminal() {
			t.Fatalf("%s changed by %s", r.State, a.Result)
		}
		next, err := receipt.Apply(r, *v.Event)
		if err != nil {
			t.Fatalf("an event that can't be applied: %v", err)
		}
		if next.Settled != r.Settled {
			t.Fatal("evidence has settled something")
		}
		checkProof(t, r, a, next)
	})
}

// checkProof wants a proof for the state that a came to.
func checkProof(t *rapid.T, r receipt.Receipt, a message.Answer, next receipt.Receipt) {
	if a.Digest != r.Body.Digest {
		if r.State != receipt.Queued || next.State != receipt.Refused || next.Code != problem.RequestConflict {
			t.Fatalf("%s by another digest: %s, %s", r.State, next.State, next.Code)
		}
		return
	}
	if r.Ledger != "" && a.Ledger != r.Ledger {
		t.Fatalf("changed by another ledger: %+v", a)
	}
	switch next.State {
	case receipt.Succeeded:
		if a.Result != message.Finished || a.Code != "" || a.Counts == nil || a.Counts.Passed != r.Declared ||
			next.Counts != (receipt.Counts{Declared: r.Declared, Passed: r.Declared}) {
			t.Fatalf("a success from %+v", a)
		}
	case receipt.Failed:
		if a.Result != message.Finished && a.Result != message.Fenced && a.Result != message.NeverBegan {
			t.Fatalf("a failure from %s", a.Result)
		}
		if problem.RowOf(next.Code).Kind != problem.KindFailed || !problem.Known(next.Code) {
			t.Fatalf("a failure with code %q", next.Code)
		}
		if a.Result != message.Finished && next.Counts.NotRun != r.Declared {
			t.Fatalf("%s, and something ran: %+v", a.Result, next.Counts)
		}
	case receipt.Uncertain:
		if problem.RowOf(next.Code).Kind != problem.KindUncertain {
			t.Fatalf("uncertain with code %q", next.Code)
		}
	case receipt.Dispatched:
		if r.State != receipt.Queued || a.Result != message.Running {
			t.Fatalf("%s became dispatched by %s", r.State, a.Result)
		}
	case receipt.Queued, receipt.Refused, receipt.Dispatching:
		t.Fatalf("%s became %s by %+v", r.State, next.State, a)
	}
}

// Issue 5, snapshot and clone: a ledger that may have forgotten proves what it
// remembers, as any other, and never that something hasn't happened.
func TestDoubtfulMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := receipttest.Receipts().Draw(t, "receipt")
		a := answers(t, r)
		whole := evidence.DecideBy(evidence.Whole, r, a, receipttest.Epoch)
		if plain := evidence.Decide(r, a, receipttest.Epoch); !reflect.DeepEqual(plain, whole) {
			t.Fatalf("%+v, and for a whole ledger %+v", plain, whole)
		}
		v := evidence.DecideBy(evidence.Doubtful, r, a, receipttest.Epoch)
		if a.Result != message.Fenced && a.Result != message.NeverBegan {
			if !reflect.DeepEqual(v, whole) {
				t.Fatalf("%s: %+v, of a whole ledger %+v", a.Result, v, whole)
			}
			return
		}
		if v.Event != nil && v.Event.To == receipt.Failed {
			t.Fatalf("%s failed by %s of a ledger that may have forgotten", r.State, a.Result)
		}
		if whole.Event != nil && whole.Event.To == receipt.Failed && !v.Conflict {
			t.Fatalf("%s isn't raised", a.Result)
		}
	})
}

// An answer that changed a receipt and comes again changes nothing, and is no
// conflict.
func TestDecideTwiceIsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := receipttest.Receipts().Draw(t, "receipt")
		a := answers(t, r)
		v := evidence.Decide(r, a, receipttest.Epoch)
		if v.Event == nil || v.Conflict || a.Digest != r.Body.Digest {
			return
		}
		next, err := receipt.Apply(r, *v.Event)
		if err != nil {
			t.Fatal(err)
		}
		again := evidence.Decide(next, a, receipttest.Epoch)
		if again.Event != nil || again.Conflict {
			t.Fatalf("%+v, then %+v on %+v", v, again, next)
		}
	})
}

// The closed vocabulary, line by line.
func TestDecideTable(t *testing.T) {
	at := receipttest.Epoch
	apply := func(r receipt.Receipt, events ...receipt.Event) receipt.Receipt {
		t.Helper()
		for _, e := range events {
			var err error
			if r, err = receipt.Apply(r, e); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	claim := receipttest.Claim("a")
	claim.JID = receipt.NextJID("", at)
	queued := receipt.New(receipttest.Binding(1, "a", "one"))
	claimed := receipt.ClaimStart(at, claim)
	dispatching := apply(queued, claimed)
	dispatched := apply(dispatching, receipt.Acknowledge(at))
	noAnswer := apply(dispatching, receipttest.Lose(at))
	interrupted := apply(dispatching, evidence.Lose(at, problem.Interrupted))
	succeeded := apply(dispatching, receipttest.Finish(at, 3, 3))
	failed := apply(dispatching, receipttest.Finish(at, 3, 1))
	notSent := apply(dispatching, receipt.SentNothing(at))
	refused := apply(queued, receipt.Refuse(at, problem.ExecutorSilent, nil))
	settledFailed := apply(noAnswer, receipttest.Settle(at, receipt.Failed))
	settledSucceeded := apply(noAnswer, receipttest.Settle(at, receipt.Succeeded))

	all := &message.Counts{Declared: 3, Passed: 3}
	some := &message.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}
	success := message.Answer{Result: message.Finished, Counts: all}
	failure := message.Answer{Result: message.Finished, Counts: some, Code: problem.StateFailed}
	fenced := message.Answer{Result: message.Fenced, Code: problem.NeverStarted}
	neverBegan := message.Answer{Result: message.NeverBegan}
	running := message.Answer{Result: message.Running}
	stopped := message.Answer{Result: message.Interrupted}

	const nothing = receipt.State("")
	for _, c := range []struct {
		name     string
		r        receipt.Receipt
		a        message.Answer
		to       receipt.State
		code     problem.Code
		conflict bool
	}{
		{"queued, finished well", queued, success, receipt.Succeeded, "", false},
		{"queued, finished badly", queued, failure, receipt.Failed, problem.StateFailed, false},
		{"queued, fenced", queued, fenced, receipt.Failed, problem.NeverStarted, false},
		{"queued, never began", queued, neverBegan, receipt.Failed, problem.NeverBegan, false},
		{"queued, running", queued, running, receipt.Dispatched, "", false},
		{"queued, interrupted", queued, stopped, receipt.Uncertain, problem.Interrupted, false},
		{"dispatching, finished well", dispatching, success, receipt.Succeeded, "", false},
		{"dispatching, running", dispatching, running, nothing, "", false},
		{"dispatching, interrupted", dispatching, stopped, receipt.Uncertain, problem.Interrupted, false},
		{"dispatched, finished badly", dispatched, failure, receipt.Failed, problem.StateFailed, false},
		{"dispatched, fenced", dispatched, fenced, receipt.Failed, problem.NeverStarted, false},
		{"dispatched, never began", dispatched, neverBegan, receipt.Failed, problem.NeverBegan, false},
		{"uncertain, finished well", noAnswer, success, receipt.Succeeded, "", false},
		{"uncertain, fenced", noAnswer, fenced, receipt.Failed, problem.NeverStarted, false},
		{"uncertain, running", noAnswer, running, nothing, "", false},
		{"uncertain, interrupted", noAnswer, stopped, nothing, "", false},
		{"interrupted, finished after all", interrupted, success, receipt.Succeeded, "", false},
		{"interrupted, fenced", interrupted, fenced, nothing, "", true},
		{"interrupted, never began", interrupted, neverBegan, nothing, "", true},
		{"succeeded, finished well", succeeded, success, nothing, "", false},
		{"succeeded, finished badly", succeeded, failure, nothing, "", true},
		{"succeeded, fenced", succeeded, fenced, nothing, "", true},
		{"succeeded, running", succeeded, running, nothing, "", true},
		{"failed, finished badly", failed, failure, nothing, "", false},
		{"failed, finished well", failed, success, nothing, "", true},
		{"failed, never began", failed, neverBegan, nothing, "", true},
		{"not sent, finished badly", notSent, failure, nothing, "", true},
		{"not sent, finished well", notSent, success, nothing, "", true},
		{"not sent, fenced", notSent, fenced, nothing, "", false},
		{"refused, finished badly", refused, failure, nothing, "", true},
		{"refused, running", refused, running, nothing, "", true},
		{"refused, fenced", refused, fenced, nothing, "", false},
		{"settled failed, finished well", settledFailed, success, nothing, "", true},
		{"settled failed, finished badly", settledFailed, failure, nothing, "", false},
		{"settled succeeded, finished well", settledSucceeded, success, nothing, "", false},
		{"settled succeeded, fenced", settledSucceeded, fenced, nothing, "", true},
		{"settled failed, interrupted", settledFailed, stopped, nothing, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.a.Digest, c.a.Ledger = c.r.Body.Digest, claim.Ledger
			v := evidence.Decide(c.r, c.a, at)
			if v.Conflict != c.conflict {
				t.Errorf("conflict is %v", v.Conflict)
			}
			if c.to == nothing {
				if v.Event != nil {
					t.Errorf("changes to %s", v.Event.To)
				}
				return
			}
			if v.Event == nil {
				t.Fatal("changes nothing")
			}
			next := apply(c.r, *v.Event)
			if next.State != c.to || next.Code != c.code {
				t.Errorf("%s, %q", next.State, next.Code)
			}
			if c.a.Counts != nil && next.Counts != (receipt.Counts(*c.a.Counts)) {
				t.Errorf("counts %+v", next.Counts)
			}
		})
	}
}

// A lie that couldn't be true settles nothing.
func TestDecideDoesNotTakeTheImplausible(t *testing.T) {
	at := receipttest.Epoch
	claim := receipttest.Claim("a")
	claim.JID = receipt.NextJID("", at)
	r, err := receipt.Apply(receipt.New(receipttest.Binding(1, "a", "one")), receipt.ClaimStart(at, claim))
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]message.Answer{
		"no counts":                  {Result: message.Finished},
		"not all passed":             {Result: message.Finished, Counts: &message.Counts{Declared: 3, Passed: 2, NotRun: 1}},
		"another number":             {Result: message.Finished, Counts: &message.Counts{Declared: 2, Passed: 2}},
		"negative":                   {Result: message.Finished, Code: problem.StateFailed, Counts: &message.Counts{Declared: 3, Passed: 4, Failed: -1}},
		"doesn't add up":             {Result: message.Finished, Code: problem.StateFailed, Counts: &message.Counts{Declared: 3, Passed: 1}},
		"an invented code":           {Result: message.Finished, Code: "rm_rf", Counts: &message.Counts{Declared: 3, Failed: 3}},
		"a code of another list":     {Result: message.Finished, Code: problem.NoAnswer, Counts: &message.Counts{Declared: 3, Failed: 3}},
		"masterd's own code":         {Result: message.Finished, Code: problem.NotSent, Counts: &message.Counts{Declared: 3, NotRun: 3}},
		"an operator's code":         {Result: message.Finished, Code: problem.SettledFailed, Counts: &message.Counts{Declared: 3, NotRun: 3}},
		"finished, never started":    {Result: message.Finished, Code: problem.NeverStarted, Counts: &message.Counts{Declared: 3, NotRun: 3}},
		"fenced, not sent":           {Result: message.Fenced, Code: problem.NotSent},
		"fenced, and states failed":  {Result: message.Fenced, Code: problem.StateFailed},
		"fenced without a code":      {Result: message.Fenced},
		"fenced with another code":   {Result: message.Fenced, Code: problem.TargetBusy},
		"fenced with an invented":    {Result: message.Fenced, Code: "x"},
		"another ledger's success":   {Result: message.Finished, Ledger: "another", Counts: &message.Counts{Declared: 3, Passed: 3}},
		"another digest's success":   {Result: message.Finished, Digest: "00", Counts: &message.Counts{Declared: 3, Passed: 3}},
		"a success without a ledger": {Result: message.Finished, Ledger: "-", Counts: &message.Counts{Declared: 3, Passed: 3}},
	} {
		if a.Digest == "" {
			a.Digest = r.Body.Digest
		}
		if a.Ledger == "" {
			a.Ledger = r.Ledger
		}
		if v := evidence.Decide(r, a, at); v.Event != nil || !v.Conflict {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Silence at the deadline: uncertain, always, and never anything else.
func TestAtDeadline(t *testing.T) {
	for _, c := range []struct {
		last *message.Answer
		want problem.Code
	}{
		{nil, problem.NoAnswer},
		{&message.Answer{Result: message.Running}, problem.StillRunning},
		{&message.Answer{Result: message.Absent}, problem.LedgerAbsent},
		{&message.Answer{Result: message.NotStartedYet}, problem.NoAnswer},
		{&message.Answer{Result: message.Finished, Counts: &message.Counts{}}, problem.NoAnswer},
	} {
		e := evidence.AtDeadline(c.last, receipttest.Epoch)
		want := evidence.Lose(receipttest.Epoch, c.want)
		if !reflect.DeepEqual(e, want) {
			t.Errorf("%+v: %+v", c.last, e)
		}
	}
}
