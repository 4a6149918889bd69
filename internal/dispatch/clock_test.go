package dispatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// A15, A17: a step of masterd's wall clock, at any time, changes no wait: not
// the 60 s, not the 130 s before a fence, not the 7,250 s.
func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-30 * time.Minute, -400 * 24 * time.Hour, 30 * time.Minute, 400 * 24 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			run(t, func(b *bench) {
				b.x.onStart = goesOut
				b.bind(1)
				b.at(time.Second)
				b.bind(2)
				synctest.Wait()
				b.clock.Step(step)
				b.at(60 * time.Second)
				b.wantState(2, receipt.Queued, "")
				b.at(62 * time.Second)
				b.wantState(2, receipt.Refused, problem.TargetBusy)
				b.at(160 * time.Second)
				b.wantTrace("evidence", "30s evidence r1 fence=false", "2m10s evidence r1 fence=true")
				b.at(7249 * time.Second)
				b.wantState(1, receipt.Dispatched, "")
				b.at(7251 * time.Second)
				b.wantState(1, receipt.Uncertain, problem.NoAnswer)
				b.at(12 * time.Hour)
				if n := len(b.notes("evidence")); n < 60 || n > 80 {
					t.Errorf("%d questions in 12 hours", n)
				}
			})
		})
	}
}

// A clock that was set back while masterd was down makes waits begin anew; it
// never makes them last as long as the step.
func TestClockSetBackWhileDown(t *testing.T) {
	run(t, func(b *bench) {
		b.x.onStart = goesOut
		b.bind(1)
		b.at(10 * time.Second)
		b.kill()
		b.clock.Step(-400 * 24 * time.Hour)
		b.start()
		b.at(150 * time.Second)
		if len(b.notes("fence=true")) != 1 {
			t.Errorf("no fence: %q", b.notes("evidence"))
		}
		b.at(7270 * time.Second)
		b.wantState(1, receipt.Uncertain, problem.NoAnswer)
	})
}
