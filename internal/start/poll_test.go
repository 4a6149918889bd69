package start_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// A18: 250 polls cover the 90 s before a start and the 7,250 s after it,
// whatever the states are in between, and they see a short run soon. A clock
// that is set forward, or back by less than a minute, doesn't change that. One
// set back by hours costs polls, and never more than half as many again.
func TestPollBudget(t *testing.T) {
	const all = receipt.CustomWindow + receipt.DispatchDeadline
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 18))
		request := fmt.Sprintf("00000000-0000-4000-8000-%012d", seed)
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		x := receipt.Receipt{Binding: receipt.Binding{AcceptedAt: began}, State: receipt.Queued}
		started := time.Duration(r.Int64N(int64(receipt.CustomWindow)))
		stepAt, step := time.Duration(r.Int64N(int64(all))), time.Duration(0)
		switch seed % 4 {
		case 1:
			step = -time.Duration(r.Int64N(int64(time.Minute)))
		case 2:
			step = -time.Duration(r.Int64N(int64(3 * time.Hour)))
		case 3:
			step = time.Duration(r.Int64N(int64(400 * 24 * time.Hour)))
		}
		gone, polls := time.Duration(0), 0
		for ; gone < all && polls < 10_000; polls++ {
			if gone >= started {
				x.State = []receipt.State{receipt.Dispatching, receipt.Dispatched}[r.IntN(2)]
			}
			now := began.Add(gone)
			if gone >= stepAt {
				now = now.Add(step)
			}
			wait := start.PollAfter(x, request, now)
			if wait < time.Second || wait > 70*time.Second {
				t.Fatalf("seed %d: wait %s after %s", seed, wait, gone)
			}
			if step == 0 && gone < 40*time.Second && wait > 3*time.Second {
				t.Fatalf("seed %d: a short run is seen %s late", seed, wait)
			}
			gone += wait
		}
		budget := receipt.PollBudget
		if step < -time.Minute {
			budget += budget / 2
		}
		if polls > budget {
			t.Fatalf("seed %d: %d polls for %s (clock set by %s after %s)", seed, polls, all, step, stepAt)
		}
	}
}

// Callers of one moment don't stay in step, and nobody polls what has ended.
func TestPollSpread(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, state := range []receipt.State{receipt.Queued, receipt.Dispatched, receipt.Uncertain} {
		seen := map[time.Duration]bool{}
		for n := range 200 {
			x := receipt.Receipt{Binding: receipt.Binding{AcceptedAt: now.Add(-time.Hour)}, State: state}
			seen[start.PollAfter(x, fmt.Sprint(n), now)] = true
		}
		if len(seen) < 50 {
			t.Errorf("%s: %d different waits of 200", state, len(seen))
		}
	}
	for _, state := range receipt.States() {
		x := receipt.Receipt{State: state}
		if got := start.PollAfter(x, "", now); (got == 0) != state.Terminal() {
			t.Errorf("%s: %s", state, got)
		}
	}
}
