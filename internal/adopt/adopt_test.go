package adopt_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const instance = "0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a0001"

type fake struct {
	recorded []receipt.Target
	storeErr error
	keyErr   error
	asked    []exchange.Question
	reply    func(ctx context.Context, q exchange.Question) exchange.Reply
}

func (f *fake) Adopt(_ context.Context, t receipt.Target) error {
	f.recorded = append(f.recorded, t)
	return f.storeErr
}

func (f *fake) Key(context.Context, string) (string, string, error) {
	return "pem", "fingerprint", f.keyErr
}

func (f *fake) Ask(ctx context.Context, q exchange.Question, _ string) exchange.Reply {
	f.asked = append(f.asked, q)
	return f.reply(ctx, q)
}

func updated(_ context.Context, q exchange.Question) exchange.Reply {
	return exchange.Reply{Answer: &message.Answer{
		Protocol: message.Protocol, Kind: q.Kind, Request: q.Request, Target: q.Target, Result: message.Updated,
		Instance: q.Instance, Ledger: "ledger", Machine: "machine",
	}}
}

func service(f *fake, joined bool) *adopt.Service {
	return adopt.New(adopt.Config{
		Store: f, Exchange: f, Now: time.Now, Random: rand.Reader, Joined: func() bool { return joined },
		NewUUID: func(io.Reader) (string, error) { return "00000000-0000-4000-8000-000000000001", nil },
	})
}

func TestAdopt(t *testing.T) {
	f := &fake{reply: updated}
	got, err := service(f, true).Adopt(t.Context(), "web-1", instance, "moved here", "root")
	if err != nil || len(f.recorded) != 1 || f.recorded[0] != got {
		t.Fatalf("%+v %v, recorded %+v", got, err, f.recorded)
	}
	if got.ID != "web-1" || got.Instance != instance || got.Fingerprint != "fingerprint" || got.Ledger != "ledger" ||
		got.Machine != "machine" || got.Reason != "moved here" || got.AdoptedBy != "root" || got.AdoptedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	if q := f.asked[0]; q.Kind != message.Update || q.Body.Update != message.UpdateIdentity || q.Target != "web-1" || q.Digest != "" {
		t.Errorf("asked %+v", q)
	}
}

// Nothing is recorded unless an authentic answer came that can be used.
func TestNothingIsRecorded(t *testing.T) {
	changed := func(change func(*message.Answer)) func(context.Context, exchange.Question) exchange.Reply {
		return func(ctx context.Context, q exchange.Question) exchange.Reply {
			r := updated(ctx, q)
			change(r.Answer)
			return r
		}
	}
	for _, c := range []struct {
		name  string
		deaf  bool
		key   error
		reply func(context.Context, exchange.Question) exchange.Reply
		code  problem.Code
		hint  string
	}{
		{name: "deaf", deaf: true, code: problem.Deaf},
		{name: "no key", key: problem.New(problem.TargetUnknown, "no"), code: problem.TargetUnknown},
		{name: "silent", code: problem.ExecutorSilent, hint: "no oduflow module", reply: func(ctx context.Context, _ exchange.Question) exchange.Reply {
			<-ctx.Done()
			return exchange.Reply{Silence: exchange.SilenceUnavailable}
		}},
		{name: "not sent", code: problem.TargetUnknown, reply: func(context.Context, exchange.Question) exchange.Reply {
			return exchange.Reply{Silence: exchange.SilenceUnpublished}
		}},
		{name: "old", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Protocol = 0 })},
		{name: "busy", code: problem.TargetBusy, reply: changed(func(a *message.Answer) { a.Result, a.Code = message.Refused, problem.TargetBusy })},
		{name: "refused with a code of no list", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Result, a.Code = message.Refused, "surprise" })},
		{name: "refused without a code", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Result = message.Refused })},
		{name: "another result", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Result = message.Prepared })},
		{name: "another instance", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Instance = "other" })},
		{name: "no ledger", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Ledger = "" })},
		{name: "no machine", code: problem.ExecutorOutdated, reply: changed(func(a *message.Answer) { a.Machine = "" })},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{reply: c.reply, keyErr: c.key}
				began := time.Now()
				_, err := service(f, !c.deaf).Adopt(t.Context(), "web-1", instance, "r", "root")
				if problem.CodeOf(err) != c.code || len(f.recorded) != 0 {
					t.Errorf("%v, recorded %+v", err, f.recorded)
				}
				var p *problem.Error
				if c.hint != "" && (!errors.As(err, &p) || !strings.Contains(p.Hint, c.hint)) {
					t.Errorf("hint of %v", err)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// The caller hangs up once the minion has answered: it is recorded all the same.
func TestRecordedThoughTheCallerIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{reply: func(ctx context.Context, q exchange.Question) exchange.Reply {
		cancel()
		return updated(ctx, q)
	}}
	if _, err := service(f, true).Adopt(ctx, "web-1", instance, "r", "root"); err != nil || len(f.recorded) != 1 {
		t.Errorf("%v, recorded %+v", err, f.recorded)
	}
	f = &fake{reply: updated, storeErr: problem.New(problem.NotWritable, "no")}
	if _, err := service(f, true).Adopt(t.Context(), "web-1", instance, "r", "root"); problem.CodeOf(err) != problem.NotWritable {
		t.Errorf("%v", err)
	}
}

// books is a Holders by hand.
type books struct {
	holder *receipt.Target
	open   []receipt.Receipt
	owed   []receipt.Debt
	err    error
}

func (b *books) Holder(context.Context, string) (*receipt.Target, error) { return b.holder, b.err }
func (b *books) Unresolved(context.Context) ([]receipt.Receipt, error)   { return b.open, b.err }
func (b *books) Owed(context.Context, string, string) ([]receipt.Debt, error) {
	return b.owed, b.err
}

func open(target string, state receipt.State) receipt.Receipt {
	r := receipt.Receipt{State: state}
	r.Request, r.Body.Target = "00000000-0000-4000-8000-000000000007", target
	return r
}

// keyed is a fake whose Salt master accepts the keys of some targets only.
type keyed struct {
	*fake
	accepted []string
}

func (k keyed) Key(ctx context.Context, target string) (string, string, error) {
	if !slices.Contains(k.accepted, target) {
		return "", "", problem.New(problem.TargetUnknown, "no accepted key")
	}
	return k.fake.Key(ctx, target)
}

// An instance is one server. One that is recorded for another target is refused
// before the minion writes anything, with what to do; a renamed server is taken
// once nothing is left of its old name, and no quarantine is lifted by it.
func TestOneInstanceOneTarget(t *testing.T) {
	web1 := &receipt.Target{ID: "web-1", Instance: instance}
	both := []string{"web-1", "web-2"}
	for _, c := range []struct {
		name     string
		books    books
		old      string
		accepted []string
		code     problem.Code
		says     []string
	}{
		{name: "nobody's", accepted: both},
		{name: "its own, repeated", books: books{holder: &receipt.Target{ID: "web-2", Instance: instance}}, accepted: both},
		{name: "its own, the renaming repeated", books: books{holder: &receipt.Target{ID: "web-2"}}, old: "web-1", accepted: both},
		{name: "another's", books: books{holder: web1}, accepted: []string{"web-2"}, code: problem.InstanceTaken,
			says: []string{"web-1", "clone", "salt-key -d web-1", "--replaces web-1"}},
		{name: "renamed, by a wrong name", books: books{holder: web1}, old: "web-9", accepted: both, code: problem.InstanceTaken, says: []string{"web-1"}},
		{name: "renamed, and nobody's", old: "web-1", accepted: both, code: problem.NotReplaced, says: []string{"leave --replaces out"}},
		{name: "renamed, the old key accepted", books: books{holder: web1}, old: "web-1", accepted: both, code: problem.InstanceTaken,
			says: []string{"salt-key -d web-1"}},
		{name: "renamed under quarantine", books: books{holder: web1, open: []receipt.Receipt{open("web-1", receipt.Uncertain)}}, old: "web-1",
			accepted: []string{"web-2"}, code: problem.TargetQuarantined, says: []string{"masterd evidence 00000000-0000-4000-8000-000000000007"}},
		{name: "renamed in a run", books: books{holder: web1, open: []receipt.Receipt{open("web-1", receipt.Dispatched)}}, old: "web-1",
			accepted: []string{"web-2"}, code: problem.TargetBusy, says: []string{"receipts show"}},
		{name: "renamed, and the ledger isn't told", books: books{holder: web1, owed: []receipt.Debt{{Request: "r"}}}, old: "web-1",
			accepted: []string{"web-2"}, code: problem.RecordUnfinished, says: []string{"masterd reconcile r"}},
		{name: "renamed, others are open", books: books{holder: web1, open: []receipt.Receipt{open("db-1", receipt.Uncertain)}}, old: "web-1",
			accepted: []string{"web-2"}},
		{name: "the store fails", books: books{err: problem.New(problem.NotWritable, "no")}, accepted: both, code: problem.NotWritable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{reply: updated}
			s := adopt.New(adopt.Config{
				Store: f, Holders: &c.books, Exchange: keyed{f, c.accepted}, Now: time.Now, Random: rand.Reader, Joined: func() bool { return true },
				NewUUID: func(io.Reader) (string, error) { return "00000000-0000-4000-8000-000000000001", nil },
			})
			_, err := s.Replace(t.Context(), "web-2", c.old, instance, "r", "root")
			if problem.CodeOf(err) != c.code || (err == nil) != (len(f.recorded) == 1) || (err == nil) != (len(f.asked) == 1) {
				t.Errorf("%v, recorded %+v, asked %d times", err, f.recorded, len(f.asked))
			}
			for _, text := range c.says {
				if p := problem.Outer(err); !strings.Contains(p.Message+p.Hint, text) {
					t.Errorf("%q isn't said in %q, %q", text, p.Message, p.Hint)
				}
			}
		})
	}
}

// Two adoptions as one instance at the same moment: one of them is recorded.
func TestOneInstanceAtTheSameMoment(t *testing.T) {
	clock := storetest.NewClock()
	db := storetest.Create(t, storetest.Config(t, clock))
	const n = 8
	var asked, done sync.WaitGroup
	asked.Add(n)
	f := &fake{}
	together := func(ctx context.Context, q exchange.Question) exchange.Reply {
		asked.Done()
		asked.Wait() // all have looked, none is recorded
		return updated(ctx, q)
	}
	s := adopt.New(adopt.Config{
		Store: db, Holders: db, Exchange: answering{f, together}, Now: clock.Now, Random: rand.Reader, Joined: func() bool { return true },
		NewUUID: func(io.Reader) (string, error) { return "00000000-0000-4000-8000-000000000001", nil },
	})
	var errs [n]error
	for i := range n {
		done.Go(func() { _, errs[i] = s.Adopt(t.Context(), fmt.Sprintf("web-%d", i), instance, "r", "root") })
	}
	done.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else if problem.CodeOf(err) != problem.InstanceTaken {
			t.Error(err)
		}
	}
	if taken != 1 {
		t.Errorf("%d targets were adopted as one instance", taken)
	}
}

// answering is a fake that may be asked several things at once.
type answering struct {
	*fake
	reply func(ctx context.Context, q exchange.Question) exchange.Reply
}

func (a answering) Ask(ctx context.Context, q exchange.Question, _ string) exchange.Reply {
	return a.reply(ctx, q)
}
