package sim_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/test/sim"
)

var (
	schedules = flag.Int("schedules", envInt("ODUFLOW_SCHEDULES", 300), "how many schedules to run (ODUFLOW_SCHEDULES)")
	first     = flag.Uint64("first", 1, "the first seed")
	seed      = flag.Uint64("seed", 0, "run this seed alone, and print its trace")
	reports   = flag.Int("reports", 5, "how many violations to print")
	strict    = flag.Bool("strict", false, "overlook no known defect")
	broken    = flag.String("broken", "", "the defect to run -seed with")
	planOf    = flag.String("plan", "", "the defect whose plan to run -seed with")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// run runs one schedule in a bubble of its own.
func run(t *testing.T, o sim.Options) (r sim.Result) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("seed %d: %v", o.Seed, p)
			panic(p)
		}
	}()
	synctest.Test(t, func(*testing.T) { r = sim.Run(o) })
	return r
}

func report(t *testing.T, o sim.Options, r sim.Result) {
	t.Helper()
	trace := r.Trace
	if len(trace) > 400 {
		trace = trace[len(trace)-400:]
	}
	t.Errorf("seed %d: %s\nagain: go test ./test/sim -run TestSeed -seed %d%s\n%s", o.Seed, r.Violation, o.Seed,
		func() string {
			if o.Broken == "" {
				return ""
			}
			return fmt.Sprintf(" -broken %q", o.Broken)
		}(), strings.Join(trace, "\n"))
}

// TestSeed runs one seed again, with -seed N.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -seed")
	}
	o := sim.Options{Seed: *seed, Broken: sim.Broken(*broken), Strict: *strict}
	if d := defectOf(sim.Broken(cmp.Or(*planOf, *broken))); d != nil {
		o.Plan = d.plan
	}
	r := run(t, o)
	if r.Violation != "" {
		report(t, o, r)
		return
	}
	t.Logf("%v, %d starts, %d effects\n%s", r.Statuses, r.Starts, r.Effects, strings.Join(r.Trace, "\n"))
}

// A10 to A24, B3, B11: whatever is lost, late, doubled, killed, restored or
// lied about, every invariant of design.md holds after every step.
func TestSchedules(t *testing.T) {
	if *seed != 0 {
		t.Skip("-seed")
	}
	began := time.Now()
	var next atomic.Uint64
	next.Store(*first - 1)
	var mu sync.Mutex
	total := map[receipt.State]int{}
	known := map[sim.Known]int{}
	starts, effects, failures := 0, 0, 0
	t.Run("all", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1)
					if n >= *first+uint64(*schedules) {
						return
					}
					o := sim.Options{Seed: n, Strict: *strict}
					r := run(t, o)
					mu.Lock()
					for state, count := range r.Statuses {
						total[state] += count
					}
					for _, k := range r.Known {
						known[k]++
					}
					starts, effects = starts+r.Starts, effects+r.Effects
					if r.Violation != "" {
						failures++
						if failures <= *reports {
							report(t, o, r)
						}
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d schedules in %s: %v, %d starts, %d effects, %d violated, known %v", *schedules, time.Since(began).Round(time.Millisecond), total, starts, effects, failures, known)
	// The schedules must be worth something: each end is reached.
	for _, state := range []receipt.State{receipt.Succeeded, receipt.Failed, receipt.Refused, receipt.Uncertain} {
		if *schedules >= 200 && total[state] == 0 {
			t.Errorf("no receipt ever ended %s", state)
		}
	}
}

// The same on internal/ledger itself, and with every message opened: what the
// models stand for is what is real.
func TestSchedulesOnTheRealLedger(t *testing.T) {
	if *seed != 0 {
		t.Skip("-seed")
	}
	dir, err := os.MkdirTemp("/dev/shm", "oduflow-sim")
	if err != nil {
		dir = t.TempDir()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	began := time.Now()
	n := max(20, *schedules/100)
	messages := 0
	for i := range uint64(n) {
		o := sim.Options{Seed: 500_000 + i, Ledgers: sim.RealLedgers(fmt.Sprintf("%s/%d", dir, i)), Open: i%2 == 0}
		r := run(t, o)
		messages += r.Opened
		if r.Violation != "" {
			report(t, o, r)
		}
	}
	t.Logf("%d schedules in %s, %d messages opened", n, time.Since(began).Round(time.Millisecond), messages)
	if messages == 0 {
		t.Error("no message was opened")
	}
}

// A seed gives the same schedule again, or a failure could not be looked into.
// Events of one and the same nanosecond may change places, which is rare.
func TestSeedsReplay(t *testing.T) {
	if *seed != 0 {
		t.Skip("-seed")
	}
	const seeds, rare = 60, 6
	differ := 0
	for n := range uint64(seeds) {
		one, two := run(t, sim.Options{Seed: 900 + n}), run(t, sim.Options{Seed: 900 + n})
		if !slices.Equal(one.Trace, two.Trace) {
			differ++
		}
	}
	t.Logf("%d of %d seeds differ", differ, seeds)
	if differ > rare {
		t.Errorf("%d of %d seeds gave another schedule", differ, seeds)
	}
}
