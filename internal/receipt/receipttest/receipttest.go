// Package receipttest makes receipts, requests and events for tests, by hand
// and by generator.
package receipttest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Epoch is when tests begin.
var Epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// UUID gives the n-th UUID of a kind; kinds never share one.
func UUID(kind, n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, n)
}

// Kinds of UUID.
const (
	kindRequest = iota + 1
	kindInstance
)

// Request gives the n-th request UUID.
func Request(n int) string { return UUID(kindRequest, n) }

// Instance gives the instance of a target's name.
func Instance(target string) string {
	sum := sha256.Sum256([]byte(target))
	return UUID(kindInstance, int(sum[0])<<16|int(sum[1])<<8|int(sum[2]))
}

// Source gives a source, its canonical form and its digest. They aren't of the
// state language: nothing here looks inside.
func Source(text string) (source, canonical []byte, digest string) {
	canonical = []byte(`{"v":1,"text":"` + text + `"}`)
	sum := sha256.Sum256(canonical)
	return []byte("# " + text + "\n"), canonical, hex.EncodeToString(sum[:])
}

// Binding gives the n-th request, for a target and a source's text.
func Binding(n int, target, text string) receipt.Binding {
	_, _, digest := Source(text)
	return receipt.Binding{
		Request: Request(n),
		Body: receipt.Body{
			Target: target, Instance: Instance(target), Profile: receipt.Custom, Digest: digest, Revision: 1,
		},
		Requester: "tests", Declared: 3, AcceptedAt: Epoch.Add(time.Duration(n) * time.Millisecond),
	}
}

// Target gives an adoption.
func Target(id string) receipt.Target {
	return receipt.Target{
		ID: id, Instance: Instance(id), Fingerprint: "SHA256:" + id, Ledger: "ledger-" + id, Machine: "machine-" + id,
		AdoptedAt: Epoch.Add(-time.Hour), AdoptedBy: "root", Reason: "was configured before",
	}
}

// Claim gives a claim of a target's ledger, without its JID.
func Claim(target string) receipt.Claim {
	return receipt.Claim{
		Ticket: "0123456789abcdef0123456789abcdef", Fingerprint: "SHA256:" + target, Ledger: "ledger-" + target,
		TicketAt: Epoch,
	}
}

// Finish gives the event of an outcome that the ledger recorded: success where
// all declared states passed.
func Finish(at time.Time, declared, passed int) receipt.Event {
	e := receipt.Event{
		Name: receipt.EventFinish, To: receipt.Succeeded, At: at, Actor: receipt.ActorMasterd,
		Counts: &receipt.Counts{Declared: declared, Passed: passed, Failed: declared - passed},
	}
	if passed < declared {
		e.To, e.Code = receipt.Failed, problem.StateFailed
	}
	return e
}

// Lose gives the event of a receipt whose outcome nobody knows.
func Lose(at time.Time) receipt.Event {
	return receipt.Event{
		Name: receipt.EventLose, To: receipt.Uncertain, At: at, Actor: receipt.ActorMasterd, Code: problem.NoAnswer,
	}
}

// Settle gives an operator's settlement.
func Settle(at time.Time, to receipt.State) receipt.Event {
	return receipt.Settle(receipt.Settlement{
		Outcome: to, Reason: "the disk was full", Observed: "the package is installed", By: "uid 0", At: at,
	})
}

// codesOf gives the codes that a receipt in a state may carry.
func codesOf(s receipt.State) []problem.Code {
	kinds := map[receipt.State]problem.Kind{
		receipt.Refused: problem.KindRefused, receipt.Failed: problem.KindFailed, receipt.Uncertain: problem.KindUncertain,
	}
	kind, ok := kinds[s]
	if !ok {
		return []problem.Code{""}
	}
	var codes []problem.Code
	for _, row := range problem.Table() {
		if row.Kind == kind {
			codes = append(codes, row.Code)
		}
	}
	return codes
}

// Times draws a time near Epoch, with nanoseconds and in any zone.
func Times() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		zone := time.FixedZone("", rapid.IntRange(-12, 14).Draw(t, "zone")*3600)
		return Epoch.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(3*time.Hour)).Draw(t, "offset"))).In(zone)
	})
}

// Bindings draws a request for one of a few targets and sources, so that
// requests meet each other.
func Bindings() *rapid.Generator[receipt.Binding] {
	return rapid.Custom(func(t *rapid.T) receipt.Binding {
		target := rapid.SampledFrom([]string{"alpha", "beta"}).Draw(t, "target")
		text := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "text")
		b := Binding(rapid.IntRange(1, 40).Draw(t, "request"), target, text)
		b.Declared = rapid.IntRange(1, 5).Draw(t, "declared")
		b.AcceptedAt = Times().Draw(t, "accepted")
		b.Body.Again = rapid.Bool().Draw(t, "again")
		if rapid.Bool().Draw(t, "has previous") {
			b.Body.Previous = Request(rapid.IntRange(1, 40).Draw(t, "previous"))
		}
		return b
	})
}

// Split draws counts that account for all declared states.
func Split(declared int) *rapid.Generator[receipt.Counts] {
	return rapid.Custom(func(t *rapid.T) receipt.Counts {
		passed := rapid.IntRange(0, declared).Draw(t, "passed")
		failed := rapid.IntRange(0, declared-passed).Draw(t, "failed")
		return receipt.Counts{Declared: declared, Passed: passed, Failed: failed, NotRun: declared - passed - failed}
	})
}

// Events draws a complete event for a receipt, one that its state allows or
// not. JID is what a claim carries.
func Events(r receipt.Receipt, jid string) *rapid.Generator[receipt.Event] {
	return rapid.Custom(func(t *rapid.T) receipt.Event {
		tr := rapid.SampledFrom(receipt.Transitions()).Draw(t, "transition")
		e := receipt.Event{Name: tr.Event, To: tr.To, At: Times().Draw(t, "at"), Actor: receipt.ActorMasterd}
		e.Code = rapid.SampledFrom(codesOf(e.To)).Draw(t, "code")
		switch e.Name {
		case receipt.EventRefuse:
			if rapid.Bool().Draw(t, "blocked") {
				e.Blocker = &receipt.Blocker{Request: Request(77), Profile: receipt.Custom, Since: Times().Draw(t, "since")}
			}
		case receipt.EventClaim:
			c := Claim(r.Body.Target)
			c.JID, c.TicketAt = jid, e.At
			e.Claim = &c
		case receipt.EventSettle:
			e = Settle(e.At, e.To)
		case receipt.EventAdopt, receipt.EventFinish:
			e.Ledger = "ledger-" + r.Body.Target
			if e.To.Terminal() {
				counts := Split(r.Declared).Draw(t, "counts")
				if e.To == receipt.Succeeded {
					counts = receipt.Counts{Declared: r.Declared, Passed: r.Declared}
				}
				e.Counts = &counts
			}
		case receipt.EventAcknowledge, receipt.EventNotSent, receipt.EventLose:
		}
		return e
	})
}

// Receipts draws a receipt that a few allowed events have brought to where it
// is.
func Receipts() *rapid.Generator[receipt.Receipt] {
	return rapid.Custom(func(t *rapid.T) receipt.Receipt {
		r := receipt.New(Bindings().Draw(t, "binding"))
		jid := receipt.NextJID("", r.AcceptedAt)
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			// An event that isn't allowed changes nothing.
			r, _ = receipt.Apply(r, Events(r, jid).Draw(t, "event"))
		}
		return r
	})
}
