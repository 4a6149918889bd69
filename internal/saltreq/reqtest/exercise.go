package reqtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/saltreq"
)

// Bench is a master, fake or real, with what the suite needs to know of it.
type Bench struct {
	Client *saltreq.Client
	// Accepted is a minion with an accepted key, which need not be connected;
	// PEM is that key.
	Accepted, PEM string
	// Pending is an ID whose key waits for acceptance; Unknown has none.
	Pending, Unknown string
	// Forbidden is a function that the login's ACL doesn't have.
	Forbidden saltreq.Function
	// SpoilKey puts another key into the key's file, and gives back the way
	// to put the right one there again.
	SpoilKey func(t *testing.T) (restore func())
	// NextJID gives a JID that wasn't used.
	NextJID func() string
}

// Exercise is the contract of the request channel. open makes a Bench for the
// whole suite.
func Exercise(t *testing.T, open func(t *testing.T) Bench) {
	b := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	publish := func(t *testing.T, fun saltreq.Function, target string, want saltreq.Published) {
		t.Helper()
		p := saltreq.Publish{Fun: fun, Target: target, JID: b.NextJID()}
		if fun != saltreq.PillarRefresh {
			p.Arg = "ZXhlcmNpc2U"
		}
		got, err := b.Client.Publish(ctx, p)
		if got != want {
			t.Fatalf("publish %v to %q: %v %q (%v), want %v %q", fun, target, got.Outcome, got.Reason, err, want.Outcome, want.Reason)
		}
		if (err == nil) != (want.Outcome == saltreq.Sent) {
			t.Fatalf("publish %v to %q: %v with error %v", fun, target, got.Outcome, err)
		}
	}
	notSent := func(r saltreq.Reason) saltreq.Published {
		return saltreq.Published{Outcome: saltreq.NotSent, Reason: r}
	}

	t.Run("sent to an accepted target", func(t *testing.T) {
		for _, fun := range []saltreq.Function{saltreq.Prepare, saltreq.Start, saltreq.Evidence} {
			publish(t, fun, b.Accepted, saltreq.Published{Outcome: saltreq.Sent})
		}
	})
	t.Run("a JID is taken as it is, also twice", func(t *testing.T) {
		p := saltreq.Publish{Fun: saltreq.Evidence, Target: b.Accepted, Arg: "dHdpY2U", JID: b.NextJID()}
		for range 2 {
			if got, err := b.Client.Publish(ctx, p); got.Outcome != saltreq.Sent {
				t.Fatalf("%v %q: %v", got.Outcome, got.Reason, err)
			}
		}
	})
	t.Run("the largest argument", func(t *testing.T) {
		p := saltreq.Publish{Fun: saltreq.Prepare, Target: b.Accepted, Arg: strings.Repeat("QUJD", 350<<10/4), JID: b.NextJID()}
		if got, err := b.Client.Publish(ctx, p); got.Outcome != saltreq.Sent {
			t.Fatalf("%v %q: %v", got.Outcome, got.Reason, err)
		}
	})
	t.Run("not sent to an unknown target", func(t *testing.T) {
		publish(t, saltreq.Prepare, b.Unknown, notSent(saltreq.ReasonTargetUnmatched))
		publish(t, saltreq.Prepare, b.Pending, notSent(saltreq.ReasonTargetUnmatched))
	})
	t.Run("not sent beyond the ACL", func(t *testing.T) {
		publish(t, b.Forbidden, b.Accepted, notSent(saltreq.ReasonAuthorization))
	})
	t.Run("not sent with another key", func(t *testing.T) {
		restore := b.SpoilKey(t)
		defer restore()
		publish(t, saltreq.Start, b.Accepted, notSent(saltreq.ReasonAuthentication))
		if _, err := b.Client.KeyPrint(ctx, b.Accepted); problem.CodeOf(err) != problem.ExecutorSilent {
			t.Fatalf("key.print with another key: %v", err)
		}
	})
	t.Run("the key is read anew", func(t *testing.T) {
		publish(t, saltreq.Prepare, b.Accepted, saltreq.Published{Outcome: saltreq.Sent})
	})
	t.Run("key.print", func(t *testing.T) {
		pem, err := b.Client.KeyPrint(ctx, b.Accepted)
		if err != nil {
			t.Fatal(err)
		}
		got, err := message.Fingerprint(pem)
		if err != nil {
			t.Fatal(err)
		}
		want, err := message.Fingerprint(b.PEM)
		if err != nil || got != want {
			t.Fatalf("another key: %s, want %s (%v)", got, want, err)
		}
	})
	t.Run("key.print takes accepted keys of the exact ID only", func(t *testing.T) {
		for _, id := range []string{b.Unknown, b.Pending} {
			if _, err := b.Client.KeyPrint(ctx, id); problem.CodeOf(err) != problem.TargetUnknown {
				t.Fatalf("%s: %v", id, err)
			}
		}
		for _, id := range []string{"*", "", b.Accepted[:1] + "*", "a,b", "[a-z]", "x?", "../x", "all keys"} {
			if _, err := b.Client.KeyPrint(ctx, id); problem.CodeOf(err) != problem.BadField {
				t.Fatalf("%q: %v", id, err)
			}
		}
	})
}
