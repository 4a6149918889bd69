package minion_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// twinOf is a second minion with the same Salt key, programs and ledger, and, as
// in a container that was copied, the same folder for this boot.
func twinOf(t *testing.T, k *miniontest.Kit) *miniontest.Kit {
	t.Helper()
	twin := *k
	twin.Root = t.TempDir()
	for _, dir := range []*string{&twin.Facts.StateDir, &twin.Facts.RunDir, &twin.Facts.EtcDir} {
		from := *dir
		*dir = filepath.Join(twin.Root, filepath.Base(from))
		must(t, os.CopyFS(*dir, os.DirFS(from)))
		must(t, os.Chmod(*dir, 0o700))
	}
	return &twin
}

// bus is masterd's exchange over executors without Salt. Each message that it
// publishes is run by every minion in to, in their order.
type bus struct {
	t         *testing.T
	x         *exchange.Exchange
	to        []*miniontest.Kit
	last      string // text of the last message
	duplicate bool   // masterd has seen a duplicate_target
}

func newBus(t *testing.T, k *miniontest.Kit) *bus {
	b := &bus{t: t, to: []*miniontest.Kit{k}}
	b.x = exchange.New(exchange.Config{
		Channel: b, Signing: k.Masterd, Secret: k.Secret, Random: rand.Reader, NextJID: receipt.NextQuestionJID,
		Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }, Logger: hclog.NewNullLogger(),
	})
	b.x.OnLate(func(l exchange.Late) { b.duplicate = b.duplicate || l.Duplicate })
	return b
}

func (b *bus) Key(context.Context, string) (string, error) { return b.to[0].Public, nil }

func (b *bus) Publish(_ context.Context, _ message.Kind, _, text, jid string) (exchange.Sending, error) {
	b.last = text
	for _, k := range b.to {
		b.deliver(k, text, jid)
	}
	return exchange.SendingSent, nil
}

func (b *bus) deliver(k *miniontest.Kit, text, jid string) {
	said, err := k.TrySend(message.Prepare, text, miniontest.Shim{})
	if err != nil {
		b.t.Error(err)
	}
	b.x.Deliver(jid, k.ID, said.Text)
}

func (b *bus) prepare(request string, canonical []byte) message.Answer {
	b.t.Helper()
	k := b.to[0]
	reply := b.x.Ask(b.t.Context(), exchange.Question{
		Kind: message.Prepare, Target: k.ID, Instance: k.Instance, Request: request, Digest: miniontest.Digest(canonical),
		Body: message.Body{Profile: "custom"},
	}, k.Public)
	if reply.Answer == nil || reply.Answer.Result != message.Prepared {
		b.t.Fatalf("not prepared: %+v", reply)
	}
	return *reply.Answer
}

// Protocol, duplicate_target: Salt may run one prepare twice on one minion,
// right away or late. That is one minion, and the ticket that masterd has got is
// still good. Two minions are two, whatever they have in common.
func TestPrepareDeliveredTwice(t *testing.T) {
	k := newKit(t)
	canonical, _ := k.Document(threeStates)
	t.Run("at once", func(t *testing.T) {
		b := newBus(t, k)
		b.to = []*miniontest.Kit{k, k, k}
		request := miniontest.NewUUID()
		a := b.prepare(request, canonical)
		if b.duplicate {
			t.Error("one minion looks like two")
		}
		expect(t, k.Start(request, a.Ticket, canonical, succeed(canonical)), message.Finished, "")
	})
	t.Run("after another prepare", func(t *testing.T) {
		b := newBus(t, k)
		request := miniontest.NewUUID()
		b.prepare(request, canonical)
		first := b.last
		a := b.prepare(request, canonical)
		b.deliver(k, first, "")
		if b.duplicate {
			t.Error("one minion looks like two")
		}
		expect(t, k.Start(request, a.Ticket, canonical, succeed(canonical)), message.Finished, "")
		b.deliver(k, first, "")
		if b.duplicate {
			t.Error("one minion looks like two after its run")
		}
	})
	t.Run("to a clone", func(t *testing.T) {
		b := newBus(t, k)
		request := miniontest.NewUUID()
		b.prepare(request, canonical)
		b.to = append(b.to, twinOf(t, k))
		b.prepare(request, canonical)
		if !b.duplicate {
			t.Error("two minions look like one, for a request that was prepared before")
		}
		b.duplicate = false
		b.prepare(miniontest.NewUUID(), canonical)
		if !b.duplicate {
			t.Error("two minions look like one")
		}
	})
}
