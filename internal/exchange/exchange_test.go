package exchange_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	web      = "web-1"
	instance = "0b5e7a52-6a7e-4a0e-9f0e-2f4d3b1a0001"
	request  = "00000000-0000-4000-8000-000000000001"
)

var (
	secret  = sha256.Sum256([]byte("secret"))
	signing = ed25519.NewKeyFromSeed(secret[:])
	rsaKey  = func() *rsa.PrivateKey {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return k
	}()
	publicPEM = func() string {
		der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
		if err != nil {
			panic(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}()
	opener = message.Opener{
		Target: web, Pinned: signing.Public().(ed25519.PublicKey),
		MinionKeyPEM: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}),
	}
)

// master is Salt's request channel. reply, if set, decides what a publish ends
// with, and when.
type master struct {
	mu    sync.Mutex
	reply func(ctx context.Context) (exchange.Sending, error)
	sent  []sent
	on    func(s sent)
}

type sent struct {
	kind message.Kind
	text string
	jid  string
}

func (m *master) Key(context.Context, string) (string, error) { return publicPEM, nil }

func (m *master) Publish(ctx context.Context, kind message.Kind, _, text, jid string) (exchange.Sending, error) {
	s := sent{kind, text, jid}
	m.mu.Lock()
	m.sent = append(m.sent, s)
	m.mu.Unlock()
	if m.on != nil {
		m.on(s)
	}
	if m.reply != nil {
		return m.reply(ctx)
	}
	return exchange.SendingSent, nil
}

func hangs(ctx context.Context) (exchange.Sending, error) {
	<-ctx.Done()
	return exchange.SendingUnknown, ctx.Err()
}

// answerTo makes an executor's answer to what was sent.
func answerTo(t *testing.T, s sent, change func(*message.Answer)) string {
	t.Helper()
	m, err := opener.Open(s.text, s.kind)
	if err != nil {
		t.Fatal(err)
	}
	body, err := message.DecodeBody(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := message.Answer{
		Protocol: message.Protocol, Kind: m.Kind, Request: m.Request, Target: m.Target, Nonce: m.Nonce,
		Result: message.Prepared, Ticket: "00112233445566778899aabbccddeeff", Ledger: "ledger", Digest: m.Digest,
	}
	if change != nil {
		change(&a)
	}
	text, err := message.EncodeAnswer(a, body.ResultKey)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func newExchange(m *master) *exchange.Exchange {
	return exchange.New(exchange.Config{
		Channel: m, Signing: signing, Secret: secret[:], Now: time.Now, Random: rand.Reader,
		Logger: hclog.NewNullLogger(), NextJID: receipt.NextQuestionJID,
	})
}

func question(kind message.Kind) exchange.Question {
	return exchange.Question{Kind: kind, Target: web, Instance: instance, Request: request, Digest: "d", Body: message.Body{Profile: "custom"}}
}

// ask asks with a limit of 20 s.
func ask(t *testing.T, x *exchange.Exchange, kind message.Kind) exchange.Reply {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return x.Ask(ctx, question(kind), publicPEM)
}

func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		m.on = func(s sent) { x.Deliver(s.jid, web, answerTo(t, s, nil)) }
		began := time.Now()
		r := ask(t, x, message.Prepare)
		if r.Answer == nil || r.Answer.Ticket == "" || r.Silence != "" || time.Since(began) != 0 {
			t.Fatalf("got %+v after %s", r, time.Since(began))
		}
		r = ask(t, x, message.Evidence)
		if r.Answer == nil || m.sent[0].jid >= m.sent[1].jid || len(m.sent[0].jid) != 20 {
			t.Errorf("got %+v, sent under %s and %s", r, m.sent[0].jid, m.sent[1].jid)
		}
		if x.Stats().Verified.Load() != 2 {
			t.Errorf("%d verified", x.Stats().Verified.Load())
		}
	})
}

// A19: the master's own reply may be late or lost; the answer counts when it comes.
func TestAnswerBeforeTheMastersReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{reply: hangs}
		x := newExchange(m)
		m.on = func(s sent) {
			timer := time.AfterFunc(time.Second, func() { x.Deliver(s.jid, web, answerTo(t, s, nil)) })
			t.Cleanup(func() { timer.Stop() })
		}
		began := time.Now()
		if r := ask(t, x, message.Prepare); r.Answer == nil || time.Since(began) != time.Second {
			t.Errorf("got %+v after %s", r, time.Since(began))
		}
	})
}

// An answer of the last moment counts, every time.
func TestAnswerAtTheDeadline(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			m := &master{}
			x := newExchange(m)
			ctx, cancel := context.WithCancel(t.Context())
			m.on = func(s sent) {
				x.Deliver(s.jid, web, answerTo(t, s, nil))
				cancel()
			}
			if r := x.Ask(ctx, question(message.Prepare), publicPEM); r.Answer == nil {
				t.Error("the answer was dropped")
			}
		})
	}
}

// Proof or nothing: what carries no valid MAC, or answers another question,
// changes nothing and is counted.
func TestWhatProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		old := ""
		m.on = func(s sent) { old = answerTo(t, s, nil) }
		_ = ask(t, x, message.Prepare)
		m.on = func(s sent) {
			good := answerTo(t, s, nil)
			x.Deliver(s.jid, web, good[:len(good)-2]+"AA")
			x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Kind = message.Evidence }))
			x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Request = "other" }))
			x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Target = "other" }))
			x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Nonce = "other" }))
			forged, _ := message.EncodeAnswer(message.Answer{Kind: s.kind, Request: request, Target: web, Nonce: "other"}, secret[:])
			x.Deliver(s.jid, web, forged)
			x.Deliver(s.jid, web, old)
			x.Deliver(s.jid, web, "")
			x.Deliver(s.jid, web, "{}")
			x.Deliver(s.jid, web, "odf1.")
		}
		r := ask(t, x, message.Prepare)
		if r.Answer != nil || r.Silence != exchange.SilenceUnverified {
			t.Errorf("got %+v", r)
		}
		if x.Stats().Verified.Load() != 1 || x.Stats().BadAnswers.Load() != 4 || x.Stats().Strays.Load() != 2 {
			t.Errorf("verified %d, bad %d, strays %d", x.Stats().Verified.Load(), x.Stats().BadAnswers.Load(), x.Stats().Strays.Load())
		}
	})
}

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		text    string
		sending exchange.Sending
		want    exchange.Silence
		after   time.Duration
	}{
		{"", exchange.SendingSent, exchange.SilenceNothing, 20 * time.Second},
		{"", exchange.SendingUnknown, exchange.SilenceNothing, 20 * time.Second},
		{"", exchange.SendingNothing, exchange.SilenceUnpublished, 0},
		{"", exchange.SendingNotTried, exchange.SilenceNoListener, 0},
		{"'oduflow.prepare' is not available.", exchange.SendingSent, exchange.SilenceUnavailable, 20 * time.Second},
		{"Minion in blackout mode.", exchange.SendingSent, exchange.SilenceBlackout, 20 * time.Second},
		{"oduflow: rejected message_unsigned", exchange.SendingSent, exchange.SilenceRejected, 20 * time.Second},
		{"Traceback", exchange.SendingSent, exchange.SilenceUnverified, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &master{reply: func(context.Context) (exchange.Sending, error) { return c.sending, errors.New("x") }}
			x := newExchange(m)
			m.on = func(s sent) {
				x.Deliver(s.jid, "web-2", "Traceback") // another minion's
				x.Deliver(s.jid, web, c.text)
			}
			began := time.Now()
			r := ask(t, x, message.Prepare)
			if r.Answer != nil || r.Silence != c.want || time.Since(began) != c.after {
				t.Errorf("%q: got %+v after %s", c.text, r, time.Since(began))
			}
			if c.want != "" && c.want != exchange.SilenceUnpublished && exchange.Hint(r.Silence) == "" {
				t.Errorf("no hint for %q", r.Silence)
			}
		})
	}
}

// A start is published once, whoever asks for it how often.
func TestLaunchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		l, err := x.NewLaunch(question(message.Start), publicPEM)
		if err != nil || len(m.sent) != 0 {
			t.Fatalf("%v, %d sent", err, len(m.sent))
		}
		if s, err := l.Publish(t.Context(), "20260101000000000000"); s != exchange.SendingSent || err != nil {
			t.Fatalf("%v %v", s, err)
		}
		if s, err := l.Publish(t.Context(), "20260101000000000000"); s != exchange.SendingNotTried || problem.CodeOf(err) != problem.Internal {
			t.Errorf("%v %v", s, err)
		}
		if len(m.sent) != 1 || m.sent[0].jid != "20260101000000000000" || m.sent[0].kind != message.Start {
			t.Errorf("sent %+v", m.sent)
		}
		x.Deliver("another", web, answerTo(t, m.sent[0], func(a *message.Answer) { a.Result = message.Interrupted }))
		if a := <-l.Answers(); a.Result != message.Interrupted {
			t.Errorf("got %+v", a)
		}
		l.Close()
		l.Close()
	})
}

// lates collects what nobody waited for.
func lates(x *exchange.Exchange) *[]exchange.Late {
	var all []exchange.Late
	x.OnLate(func(l exchange.Late) { all = append(all, l) })
	return &all
}

// duplicate_target: a second valid answer to one nonce with another ticket or
// ledger. A repeat, and one message run twice, are none.
func TestSecondAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		got := lates(x)
		m.on = func(s sent) { x.Deliver(s.jid, web, answerTo(t, s, nil)) }
		_ = ask(t, x, message.Prepare)
		s := m.sent[0]
		x.Deliver(s.jid, web, answerTo(t, s, nil))
		if len(*got) != 0 {
			t.Errorf("a repeat is told of: %+v", *got)
		}
		x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Result, a.Ticket = message.Fenced, "" }))
		if len(*got) != 1 || (*got)[0].Duplicate {
			t.Errorf("got %+v", *got)
		}
		x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Ticket = "ffeeddccbbaa99887766554433221100" }))
		x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Ledger = "other" }))
		if len(*got) != 3 || !(*got)[1].Duplicate || !(*got)[2].Duplicate || x.Stats().Duplicates.Load() != 2 {
			t.Errorf("got %+v", *got)
		}
		for n := range 100 { // a compromised minion can say anything to its own nonce
			x.Deliver(s.jid, web, answerTo(t, s, func(a *message.Answer) { a.Ledger = fmt.Sprint(n) }))
		}
		if len(*got) != 4 {
			t.Errorf("told %d times", len(*got))
		}
	})
}

// A valid answer that comes too late is handed on, for an hour.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		got := lates(x)
		if r := ask(t, x, message.Evidence); r.Answer != nil {
			t.Fatal(r)
		}
		hint := 0
		stop := x.WatchJID("jid", func() { hint++ })
		defer stop()
		x.Deliver("jid", web, answerTo(t, m.sent[0], nil))
		if len(*got) != 1 || (*got)[0].Request != request || (*got)[0].Kind != message.Evidence || (*got)[0].Duplicate || hint != 1 {
			t.Errorf("got %+v, %d hints", *got, hint)
		}
		_ = ask(t, x, message.Evidence)
		timer := time.NewTimer(time.Hour + time.Second)
		<-timer.C
		_ = ask(t, x, message.Evidence) // makes room
		x.Deliver("jid", web, answerTo(t, m.sent[1], nil))
		if len(*got) != 1 {
			t.Errorf("understood after an hour: %+v", *got)
		}
	})
}

// A late answer is judged by what was known of the ledger when its question was
// asked, whatever was asked and told since.
func TestLateAnswerComesWithWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		got := lates(x)
		asked := func(generation uint64) {
			q := question(message.Evidence)
			q.Lines = receipt.Lines{"ledger": {Adoption: 1, Generation: generation}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = x.Ask(ctx, q, publicPEM)
		}
		asked(5)
		asked(9)
		for _, s := range []int{1, 0} {
			x.Deliver("jid", web, answerTo(t, m.sent[s], func(a *message.Answer) { a.Generation = 7 }))
		}
		if len(*got) != 2 {
			t.Fatalf("%+v", *got)
		}
		for i, behind := range []bool{true, false} {
			l := (*got)[i]
			if told := l.Lines.Tell(l.Answer.Ledger, l.Answer.Generation); told.Behind() != behind || told.Adoption != 1 {
				t.Errorf("%+v: %+v", l, told)
			}
		}
	})
}

// Two copies of a ledger may give one and the same answer to a question. That
// their generations differ is news.
func TestSecondAnswerOfAnotherGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		got := lates(x)
		says := func(generation uint64) string {
			return answerTo(t, m.sent[0], func(a *message.Answer) { a.Result, a.Ticket, a.Generation = message.Finished, "", generation })
		}
		m.on = func(s sent) { x.Deliver(s.jid, web, says(9)) }
		_ = ask(t, x, message.Evidence)
		x.Deliver("jid", web, says(9))
		x.Deliver("jid", web, says(4))
		if len(*got) != 1 || (*got)[0].Answer.Generation != 4 || (*got)[0].Duplicate {
			t.Errorf("%+v", *got)
		}
	})
}

// An answer that came and that nobody took any more isn't lost.
func TestUntakenAnswerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		got := lates(x)
		l, err := x.NewLaunch(question(message.Start), publicPEM)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Publish(t.Context(), "20260101000000000000")
		x.Deliver("jid", web, answerTo(t, m.sent[0], nil))
		l.Close()
		if len(*got) != 1 {
			t.Errorf("got %+v", *got)
		}
	})
}

// A hint is every return under a JID but the answer that was waited for.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &master{}
		x := newExchange(m)
		l, err := x.NewLaunch(question(message.Start), publicPEM)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		hints := 0
		stop := x.WatchJID("jid", func() { hints++ })
		_, _ = l.Publish(t.Context(), "jid")
		x.Deliver("jid", web, answerTo(t, m.sent[0], nil))
		if hints != 0 {
			t.Errorf("%d hints for the answer itself", hints)
		}
		x.Deliver("jid", "web-9", "forged")
		x.Deliver("other", web, "forged")
		if hints != 1 {
			t.Errorf("%d hints", hints)
		}
		stop()
		x.Deliver("jid", web, "forged")
		if hints != 1 {
			t.Errorf("a hint after the end")
		}
	})
}
