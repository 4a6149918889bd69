package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/test/sim/memstore"
	"github.com/oduflow/oduflow-salt/test/sim/wallclock"
)

// Options of one schedule.
type Options struct {
	Seed   uint64
	Broken Broken
	// Plan, if set, changes what was drawn, to look for one kind of trouble.
	Plan func(*Plan)
	// Ledgers makes a minion's ledger in a folder; nil is the model.
	Ledgers func(name string, m *minion) ledgerStore
	// Strict overlooks no known defect.
	Strict bool
	// Open makes minions open what masterd sealed, and compare.
	Open bool
}

// Result of one schedule. Violation is "" where every invariant held.
type Result struct {
	Violation string
	Trace     []string
	Statuses  map[receipt.State]int
	Effects   int
	Starts    int
	Opened    int // messages, where Options.Open says so
	Known     []Known
}

// World is one schedule while it runs.
type World struct {
	opts  Options
	plan  Plan
	began time.Time
	clock *wallclock.Clock // masterd's machine
	store *memstore.Store
	stop  chan struct{} // closed at the end: everything ends
	wg    sync.WaitGroup

	mu        sync.Mutex
	counters  map[string]uint64
	trace     []string
	violation string
	healed    bool

	timeline int                      // of the database: put back how often
	checked  int                      // transitions looked at
	starts   map[startKey]int         // publishes of starts
	runs     map[string][]*run        // by request
	carried  map[string]receipt.State // what the copy of the database that was put back holds
	floors   map[string]uint64        // what that copy knows of its targets' generations, until they are adopted again
	seen     map[string]seen          // what operators' questions have brought
	blind    map[string]bool          // settled while nobody answered
	copies   []memstore.Copy          // of the database
	master   *masterd                 // the one that runs, nil if none does
	masterUp bool                     // salt-master
	deaf     bool                     // the bus can't be heard
	minions  []*minion
	recorded []recorded // what was on the bus
	stats    struct {
		starts, effects, opened int
		known                   []Known
	}
	held     bool          // masterd doesn't start
	adopting chan struct{} // capacity 1: one operator adopts at a time
}

type startKey struct {
	timeline int
	request  string
}

type recorded struct{ minion, text string }

func newWorld(o Options) *World {
	w := &World{
		opts: o, began: time.Now(), clock: wallclock.New(time.Now), stop: make(chan struct{}), adopting: make(chan struct{}, 1),
		counters: map[string]uint64{}, starts: map[startKey]int{}, runs: map[string][]*run{},
		carried: map[string]receipt.State{}, floors: map[string]uint64{}, seen: map[string]seen{}, blind: map[string]bool{}, masterUp: true,
	}
	w.store = memstore.New(w.clock.Now)
	w.store.Defects = memstore.Defects{
		IgnoreQuarantine: o.Broken == QuarantineForgotten, IgnoreRecords: o.Broken == RecordIsNoObstacle,
		IgnoreEpochs: o.Broken == WaitingStarts, ReuseSettled: o.Broken == SettledIsReused,
	}
	w.plan = w.drawPlan()
	if o.Plan != nil {
		o.Plan(&w.plan)
	}
	return w
}

// draw gives randomness for one use of a name.
func (w *World) draw(name string) *rand.Rand {
	w.mu.Lock()
	w.counters[name]++
	n := w.counters[name]
	w.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.opts.Seed, h.Sum64()+n*0x9e3779b97f4a7c15))
}

// chance says yes with probability p. After the healing nothing goes wrong.
func (w *World) chance(name string, p float64) bool {
	if p <= 0 || w.isHealed() {
		return false
	}
	return w.draw(name).Float64() < p
}

// span draws a time between from and to.
func (w *World) span(name string, from, to time.Duration) time.Duration {
	return from + time.Duration(w.draw(name).Int64N(int64(to-from)))
}

func (w *World) isHealed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.healed
}

// sleep is false where the schedule ended meanwhile.
func (w *World) sleep(d time.Duration) bool {
	if d <= 0 {
		d = 1
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.stop:
		return false
	}
}

// after does something later, beside everything else.
func (w *World) after(d time.Duration, f func()) {
	w.wg.Go(func() {
		if w.sleep(d) {
			f()
		}
	})
}

func (w *World) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *World) noteLocked(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%12.6f  ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// violate notes that an invariant doesn't hold. The first one counts.
func (w *World) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

func (w *World) violateLocked(format string, args ...any) {
	w.noteLocked("VIOLATED: "+format, args...)
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// current gives the masterd that runs, or nil.
func (w *World) current() *masterd {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.master
}

// requestName is what a trace calls a request.
func requestName(request string) string { return "r" + request[len(request)-2:] }
