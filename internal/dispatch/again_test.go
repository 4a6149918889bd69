package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// A19: the master's own reply is late, cut or lost. The outcome is there as soon
// as the executor has answered, whatever the reply would have been.
func TestOutcomeDoesNotWaitForTheMastersReply(t *testing.T) {
	for _, sending := range []exchange.Sending{exchange.SendingUnknown, exchange.SendingNothing, exchange.SendingNotTried} {
		run(t, func(b *bench) {
			b.x.onStart = func(ctx context.Context, q exchange.Question, _ string, answers chan<- message.Answer) (exchange.Sending, error) {
				timer := time.AfterFunc(3*time.Second, func() { answers <- finished(q, "") })
				defer timer.Stop()
				<-ctx.Done() // the reply never comes
				return sending, errLost
			}
			b.bind(1)
			b.at(2 * time.Second)
			b.wantState(1, receipt.Dispatching, "")
			b.at(3 * time.Second)
			b.wantState(1, receipt.Succeeded, "")
			b.wantTrace("r1", "0s prepare r1", "0s claim r1 dispatching", "0s start r1", "3s write r1 succeeded")
			b.bind(2)
			b.at(6 * time.Second)
			b.wantState(2, receipt.Succeeded, "")
		})
	}
}

// An answer that decides nothing is no outcome: evidence finds it.
func TestAnswerThatDecidesNothing(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = func(ctx context.Context, q exchange.Question, _ string, answers chan<- message.Answer) (exchange.Sending, error) {
			answers <- answer(q, message.Disregarded)
			<-ctx.Done()
			return exchange.SendingUnknown, errLost
		}
		b.x.onEvidence = fencesWhenAllowed
		b.bind(1)
		b.at(129 * time.Second)
		b.wantState(1, receipt.Dispatching, "")
		b.at(131 * time.Second)
		b.wantState(1, receipt.Failed, problem.NeverStarted)
		b.wantTrace("start", "0s start r1")
	})
}

// asked gives when a request was asked about, in seconds.
func (b *bench) asked(n int) (out []int) {
	for _, line := range b.notes("evidence " + short(req(n)) + " ") {
		at, err := time.ParseDuration(strings.Fields(line)[0])
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, int(at.Seconds()))
	}
	return out
}

// within wants a time for each span.
func (b *bench) within(got []int, spans ...[2]int) {
	b.t.Helper()
	fits := len(got) == len(spans)
	for i := 0; fits && i < len(got); i++ {
		fits = got[i] >= spans[i][0] && got[i] <= spans[i][1]
	}
	if !fits {
		b.t.Errorf("asked at %v, want %v", got, spans)
	}
}

// Issue 5, 6: after a gap the minions may still be on their way back. A question
// that nobody answers is asked again after 5, 15, 45 and 135 s, then the schedule
// goes on; each question is waited for 20 s.
func TestAskedAgainAfterAGap(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(200 * time.Second) // after the looks of 30 and 130 s: the next is at 730 s
		b.d.Gap()
		b.at(740 * time.Second)
		b.within(b.asked(1)[2:], [2]int{200, 202}, [2]int{225, 229}, [2]int{260, 268}, [2]int{325, 344}, [2]int{480, 533}, [2]int{730, 730})
		b.at(1340 * time.Second)
		if n := len(b.asked(1)); n != 9 { // and then as ever
			t.Errorf("asked at %v", b.asked(1))
		}
	})
}

// The first answer ends that, and so does the end.
func TestAnAnswerEndsAskingAgain(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(200 * time.Second)
		var back atomic.Bool
		b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
			if !back.Load() {
				return silent(ctx)
			}
			return replied(q, message.Running)
		}
		b.d.Gap()
		b.at(215 * time.Second)
		back.Store(true)
		b.at(729 * time.Second)
		b.within(b.asked(1)[2:], [2]int{200, 202}, [2]int{225, 229})
		back.Store(false) // without another gap nobody is asked again early
		b.at(1300 * time.Second)
		b.within(b.asked(1)[4:], [2]int{730, 730})
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.d.Gap()
		b.at(1305 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
}

// A gap while a question is under way: its answer may be lost, so it isn't waited
// for, and asked again at once, with all its tries left.
func TestGapDuringAQuestion(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(200 * time.Second)
		b.d.Gap()
		b.at(210 * time.Second)
		b.d.Gap()
		b.at(440 * time.Second)
		b.within(b.asked(1)[2:], [2]int{200, 202}, [2]int{210, 212}, [2]int{235, 239}, [2]int{270, 278}, [2]int{335, 354})
	})
}

// A gap may take the answer to a prepare too. A prepare has no effect: it is
// repeated, and the request isn't refused for it.
func TestGapDuringAPrepare(t *testing.T) {
	lostUntil := func(b *bench, until time.Duration) {
		b.x.onPrepare = func(ctx context.Context, q exchange.Question) exchange.Reply {
			if time.Since(b.began) < until {
				return silent(ctx)
			}
			return b.x.ticket(q)
		}
	}
	run(t, func(b *bench) {
		lostUntil(b, 2*time.Second)
		b.bind(1)
		b.at(3 * time.Second)
		b.d.Gap()
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("prepare", "0s prepare r1", "3s prepare r1")
		b.wantTrace("start", "3s start r1")
	})
	run(t, func(b *bench) { // a bus that comes and goes: three times more, and the last one is waited for
		lostUntil(b, time.Hour)
		b.bind(1)
		for n := range 40 {
			b.at(time.Duration(n+1) * time.Second)
			b.d.Gap()
			if n == 21 {
				b.wantState(1, receipt.Queued, "")
			}
		}
		b.wantState(1, receipt.Refused, problem.ExecutorSilent)
		b.wantTrace("prepare", "0s prepare r1", "1s prepare r1", "2s prepare r1", "3s prepare r1")
		b.wantTrace("write r1", "23s write r1 refused")
	})
	run(t, func(b *bench) { // nobody is refused for silence while nobody can be heard
		lostUntil(b, 30*time.Second)
		b.bind(1)
		b.at(10 * time.Second)
		b.deaf.Store(true)
		b.at(40 * time.Second)
		b.wantState(1, receipt.Queued, "")
		b.deaf.Store(false)
		b.d.Gap()
		b.at(41 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("prepare", "0s prepare r1", "40s prepare r1")
	})
	run(t, func(b *bench) { // but never is the start's window missed
		lostUntil(b, time.Hour)
		b.bind(1)
		b.at(10 * time.Second)
		b.deaf.Store(true)
		b.at(89 * time.Second)
		b.wantState(1, receipt.Queued, "")
		b.at(91 * time.Second)
		b.wantState(1, receipt.Refused, problem.StartWindowPassed)
	})
	run(t, func(b *bench) { // an answer that came in the same moment counts
		b.x.onPrepare = func(_ context.Context, q exchange.Question) exchange.Reply {
			b.d.Gap()
			return b.x.ticket(q)
		}
		b.bind(1)
		b.wantState(1, receipt.Succeeded, "")
		b.wantTrace("prepare", "0s prepare r1")
	})
}

// A restart of masterd is a gap too, also where the bus was joined before its
// receipts were read; an answer that was lost around it isn't waited for until
// the next tick of 10 minutes.
func TestRestartIsAGap(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(200 * time.Second)
		b.restart()
		b.at(225 * time.Second)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.at(230 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
	run(t, func(b *bench) { // soon after the dispatch: before the first look of the schedule
		b.x.onStart = goesOut
		b.bind(1)
		b.at(5 * time.Second)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.restart()
		b.at(8 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
}

// Asking again is never in the way of the schedule: the fence comes at 130 s.
func TestAskingAgainKeepsTheSchedule(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(5 * time.Second)
		b.restart()
		b.at(150 * time.Second)
		b.within(b.asked(1), [2]int{5, 7}, [2]int{30, 30}, [2]int{55, 57}, [2]int{90, 96}, [2]int{130, 130})
		b.wantTrace("fence=true", "2m10s evidence r1 fence=true")
	})
}

// While no answer can be learned nothing is asked in vain, for half a minute;
// then it is, since a prepared record has to be fenced some time.
func TestNothingIsAskedInVainWhileDeaf(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.x.onEvidence = func(ctx context.Context, q exchange.Question) exchange.Reply {
			if b.deaf.Load() || time.Since(b.began) < 205*time.Second {
				return silent(ctx)
			}
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.bind(1)
		b.at(200 * time.Second)
		b.kill()
		b.deaf.Store(true)
		b.start()
		b.at(210 * time.Second)
		b.deaf.Store(false)
		b.d.Gap()
		b.at(213 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
		if n := len(b.asked(1)); n != 3 {
			t.Errorf("asked at %v", b.asked(1))
		}
	})
	run(t, func(b *bench) { // and never is the deadline missed
		b.x.onStart = goesOut
		b.bind(1)
		b.at(time.Second)
		b.deaf.Store(true)
		b.at(170 * time.Second)
		b.within(b.asked(1), [2]int{60, 60}, [2]int{160, 160})
		b.at(7251 * time.Second)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}

// A minion that says that it has just started is asked at once about what it
// slept through; saying so again and again is one question in 5 s, as all hints.
func TestUpIsAHint(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(200 * time.Second)
		b.d.Up("another")
		b.at(201 * time.Second)
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply { return replied(q, message.Running) }
		for i := range 40 {
			b.at(210*time.Second + time.Duration(i)*100*time.Millisecond)
			b.d.Up(web)
		}
		b.at(218 * time.Second)
		b.within(b.asked(1)[2:], [2]int{210, 210}, [2]int{215, 215})
		b.x.onEvidence = func(_ context.Context, q exchange.Question) exchange.Reply {
			a := finished(q, "")
			return exchange.Reply{Answer: &a}
		}
		b.d.Up(web)
		b.at(221 * time.Second)
		b.wantState(1, receipt.Succeeded, "")
	})
}

// Hundreds of targets whose minions are all silent after a gap: the questions
// are a steady few a second, each is asked soon, and those that answer don't wait
// for those that don't.
func TestHundredsAreSilentAfterAGap(t *testing.T) {
	run(t, func(b *bench) {
		const targets = 300
		b.x.onStart = goesOut
		for n := range targets {
			id := fmt.Sprintf("web-%d", n+2)
			if err := b.store.Adopt(t.Context(), receipt.Target{ID: id, Instance: instance, Fingerprint: "fp", Ledger: ledger, Machine: machine}); err != nil {
				t.Fatal(err)
			}
			bound, err := b.store.Bind(t.Context(), receipt.Binding{
				Request: req(n + 1), Body: receipt.Body{Target: id, Instance: instance, Profile: receipt.Custom, Digest: digestOf("canonical")},
				Declared: declared, AcceptedAt: b.clock.Now(),
			}, nil, []byte("canonical"))
			if err != nil {
				t.Fatal(err)
			}
			b.d.Bound(bound.Execution)
		}
		synctest.Wait()
		b.at(250 * time.Second) // the looks of 30 and 130 s are over
		before := len(b.notes("evidence"))
		for range 3 {
			b.d.Gap()
		}
		b.at(350 * time.Second)
		var at []int
		soon := map[string]bool{}
		for _, line := range b.notes("evidence")[before:] {
			fields := strings.Fields(line)
			d, err := time.ParseDuration(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, int(d.Seconds()))
			if d <= 335*time.Second {
				soon[fields[2]] = true
			}
		}
		if len(soon) != targets {
			t.Errorf("%d of %d were asked within 85 s", len(soon), targets)
		}
		slices.Sort(at)
		most := 0
		for i := range at {
			end := i
			for end < len(at) && at[end] < at[i]+10 {
				end++
			}
			most = max(most, end-i)
		}
		if most > 48 { // 8 places of 2 s
			t.Errorf("%d questions in 10 s", most)
		}
		b.at(1150 * time.Second) // it ends: 1 + 4 for the gap, one by the schedule
		for n := range targets {
			if times := b.asked(n + 1); len(times) > 2+5+1 {
				t.Fatalf("%s was asked at %v", short(req(n+1)), times)
			}
		}
	})
}
