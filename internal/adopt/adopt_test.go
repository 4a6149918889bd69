package adopt_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
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
