package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

var errInjected = errors.New("injected")

// faultOnce fails one step once, in one phase.
type faultOnce struct {
	mu    sync.Mutex
	step  string
	phase store.Phase
}

func (f *faultOnce) arm(step string, phase store.Phase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step, f.phase = step, phase
}

func (f *faultOnce) at(step string, phase store.Phase) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if step != f.step || phase != f.phase {
		return nil
	}
	f.step = ""
	return errInjected
}

func faulty(t *testing.T) (*store.DB, *faultOnce) {
	t.Helper()
	faults := &faultOnce{}
	cfg := storetest.Config(t, storetest.NewClock())
	cfg.Steps = faults.at
	db := storetest.Create(t, cfg)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	return db, faults
}

// A commit that fails, before, after, or done and told failed: 503, and the
// same UUID again gives the one receipt.
func TestBindThroughFailedCommit(t *testing.T) {
	for _, c := range []struct {
		step    string
		phase   store.Phase
		stored  bool // whether it is on disk although the caller was told that it failed
		reopens bool
	}{
		{"store.bind", store.Before, false, false},
		{"store.bind", store.After, true, false},
		{"store.commit", store.Before, false, true},
		{"store.commit", store.After, true, true},
	} {
		t.Run(fmt.Sprintf("%s %s", c.phase, c.step), func(t *testing.T) {
			db, faults := faulty(t)
			faults.arm(c.step, c.phase)
			b := receipttest.Binding(1, "a", "one")
			_, err := storetest.Bind(t.Context(), db, b, "one")
			wantCode(t, err, problem.NotWritable)
			if !errors.Is(err, errInjected) {
				t.Errorf("another fault: %v", err)
			}
			if c.reopens != (problem.CodeOf(db.Writable()) == problem.NotWritable) {
				t.Errorf("writable: %v", db.Writable())
			}
			// Another writer finds it open again, and in order.
			if err := db.Adopt(t.Context(), receipttest.Target("b")); err != nil {
				t.Fatal(err)
			}
			if err := db.Writable(); err != nil {
				t.Error(err)
			}
			_, err = db.Lookup(t.Context(), b.Request)
			if stored := err == nil; stored != c.stored {
				t.Errorf("on disk: %v (%v)", stored, err)
			}
			got, err := storetest.Bind(t.Context(), db, b, "one")
			if err != nil {
				t.Fatal(err)
			}
			if want := (receipt.Bound{Request: b.Request, Body: b.Body, Execution: receipt.New(b)}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if all, err := db.List(t.Context(), store.Filter{}); err != nil || len(all) != 1 {
				t.Errorf("%d receipts (%v)", len(all), err)
			}
		})
	}
}

// A claim that was done and told failed is there, with its JID; it is not made
// a second time.
func TestClaimDoneButToldFailed(t *testing.T) { // A19
	for _, step := range []string{"store.claim", "store.commit"} {
		db, faults := faulty(t)
		b, err := storetest.Bind(t.Context(), db, receipttest.Binding(1, "a", "one"), "one")
		if err != nil {
			t.Fatal(err)
		}
		faults.arm(step, store.After)
		_, err = db.Claim(t.Context(), b.Request, 0, receipttest.Claim("a"))
		wantCode(t, err, problem.NotWritable)
		var lost *store.LostRaceError
		if _, err := db.Claim(t.Context(), b.Request, 0, receipttest.Claim("a")); !errors.As(err, &lost) {
			t.Fatalf("claimed twice: %v", err)
		}
		if lost.Current.State != receipt.Dispatching || lost.Current.JID == "" {
			t.Errorf("%+v", lost.Current)
		}
	}
}

// Everybody in a failed commit is told so, whatever their own part.
func TestFailedCommitFailsTheWholeBatch(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	gate := newGate()
	cfg.Steps = gate.at
	db := storetest.Create(t, cfg)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	gate.hold()
	first := inBackground(func() error { return db.Adopt(t.Context(), receipttest.Target("first")) })
	<-gate.reached
	const n = 40
	bind := func(i int) error {
		_, err := storetest.Bind(t.Context(), db, receipttest.Binding(i+1, "a", fmt.Sprint(i)), fmt.Sprint(i))
		return err
	}
	var waiting []<-chan error
	for i := range n {
		waiting = append(waiting, inBackground(func() error { return bind(i) }))
	}
	waitFor(t, func() bool { return db.Queued() == n })
	commits := gate.commits.Load()
	gate.fail.Store(true)
	gate.release() // the first commits, then all that waited in one batch, which fails
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for _, w := range waiting {
		wantCode(t, <-w, problem.NotWritable)
	}
	if got := gate.commits.Load() - commits; got != 1 {
		t.Errorf("%d commits for %d that waited", got, n)
	}
	gate.fail.Store(false)
	for i := range n {
		if err := bind(i); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := db.List(t.Context(), store.Filter{}); err != nil || len(all) != n {
		t.Errorf("%d receipts (%v)", len(all), err)
	}
}

// gate holds the first commit after hold until release, and can make the ones
// after it fail.
type gate struct {
	armed    atomic.Bool
	fail     atomic.Bool
	commits  atomic.Int64
	reached  chan struct{}
	released chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), released: make(chan struct{})} }

func (g *gate) hold()    { g.armed.Store(true) }
func (g *gate) release() { close(g.released) }

func (g *gate) at(step string, phase store.Phase) error {
	if step != "store.commit" || phase != store.Before {
		return nil
	}
	if g.armed.CompareAndSwap(true, false) {
		close(g.reached)
		<-g.released
		return nil
	}
	g.commits.Add(1)
	if g.fail.Load() {
		return errInjected
	}
	return nil
}

func inBackground(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// waitFor polls until ok, under a deadline.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("what was waited for didn't come")
		}
	}
}

// A caller that goes away before its turn leaves nothing; one that goes away
// later is told the truth.
func TestCallerGoesAway(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	gate := newGate()
	cfg.Steps = gate.at
	db := storetest.Create(t, cfg)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	bind := func(ctx context.Context, n int) <-chan error {
		return inBackground(func() error {
			_, err := storetest.Bind(ctx, db, receipttest.Binding(n, "a", fmt.Sprint(n)), fmt.Sprint(n))
			return err
		})
	}
	gate.hold()
	begun, leaveBegun := context.WithCancel(t.Context())
	first := bind(begun, 1)
	<-gate.reached
	waits, leaveWaits := context.WithCancel(t.Context())
	second := bind(waits, 2)
	waitFor(t, func() bool { return db.Queued() == 1 })
	leaveWaits()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waited: %v", err)
	}
	leaveBegun()
	gate.release()
	if err := <-first; err != nil {
		t.Errorf("the one that was begun: %v", err)
	}
	if err := db.Adopt(t.Context(), receipttest.Target("b")); err != nil { // past the queue
		t.Fatal(err)
	}
	if _, err := db.Lookup(t.Context(), receipttest.Request(1)); err != nil {
		t.Error(err)
	}
	_, err := db.Lookup(t.Context(), receipttest.Request(2))
	if problem.CodeOf(err) != problem.UnknownRequest {
		t.Errorf("a cancelled call was written: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := <-bind(gone, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("one that had gone before it came: %v", err)
	}
}

// Close lets what waits be written, and refuses what comes later.
func TestCloseFinishesWhatWaits(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	gate := newGate()
	cfg.Steps = gate.at
	db := storetest.Create(t, cfg)
	gate.hold()
	first := inBackground(func() error { return db.Adopt(t.Context(), receipttest.Target("a")) })
	<-gate.reached
	second := inBackground(func() error { return db.Adopt(t.Context(), receipttest.Target("b")) })
	waitFor(t, func() bool { return db.Queued() == 1 })
	closed := inBackground(db.Close)
	waitFor(t, func() bool { return db.Writable() != nil })
	gate.release()
	for _, done := range []<-chan error{first, second, closed} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	cfg.Steps = nil
	if b, err := storetest.Open(t, cfg).Target(t.Context(), "b"); err != nil || b == nil {
		t.Errorf("%v (%v)", b, err)
	}
}

// Whoever writes while the disk is full is told so; what is known is still
// answered; and it goes on by itself once there is room.
func TestFullDisk(t *testing.T) {
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("SKIPPED BY NAME: no tmpfs can be mounted here: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		fullDisk(t, dir, func() func() {
			filler := filepath.Join(dir, "filler")
			if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("it isn't full: %v", err)
			}
			return func() {
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// fullDisk runs the tale of a disk that fills up. fill makes it full and gives
// what makes room again.
func fullDisk(t *testing.T, dir string, fill func() (free func())) {
	t.Helper()
	cfg := storetest.Config(t, storetest.NewClock())
	cfg.Path = filepath.Join(dir, "receipts.db")
	db := storetest.Create(t, cfg)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[int]receipt.Bound{}
	n := 0
	bind := func() error {
		n++
		got, err := storetest.Bind(t.Context(), db, receipttest.Binding(n, "a", fmt.Sprint(n)), fmt.Sprint(n))
		if err == nil {
			acknowledged[n] = got
		}
		return err
	}
	check := func() {
		t.Helper()
		for n, want := range acknowledged {
			if got, err := db.Lookup(t.Context(), want.Request); err != nil || got != want {
				t.Errorf("request %d: %+v (%v)", n, got, err)
			}
		}
	}
	for range 3 {
		if err := bind(); err != nil {
			t.Fatal(err)
		}
	}
	free := fill()
	var err error
	for range 400 {
		if err = bind(); err != nil {
			break
		}
	}
	wantCode(t, err, problem.NotWritable)
	failed := n
	for range 3 { // and stays so
		wantCode(t, bind(), problem.NotWritable)
	}
	if db.Writable() == nil {
		t.Error("it says that it is writable")
	}
	check()
	b := receipttest.Binding(1, "a", "1")
	if _, err := storetest.Bind(t.Context(), db, b, "1"); err != nil {
		t.Errorf("a known request isn't answered on a full disk: %v", err)
	}
	free()
	waitFor(t, func() bool { return db.Writable() == nil }) // by itself
	check()
	n = failed - 1
	if err := bind(); err != nil { // the same UUID again
		t.Fatal(err)
	}
	check()
	t.Logf("%d acknowledged, all there", len(acknowledged))
}

// What the database itself refuses takes nothing along: neither a part of its
// own, nor what is in the same batch.
func TestRefusedJobLeavesNothingAndTakesNothingAlong(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	gate := newGate()
	cfg.Steps = gate.at
	db := storetest.Create(t, cfg)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	gate.hold()
	first := inBackground(func() error { return db.Adopt(t.Context(), receipttest.Target("first")) })
	<-gate.reached
	bad := receipttest.Binding(1, "a", "bad")
	bad.Requester = strings.Repeat("x", 300) // its source is written before this is refused
	refusedOne := inBackground(func() error {
		_, err := storetest.Bind(t.Context(), db, bad, "bad")
		return err
	})
	waitFor(t, func() bool { return db.Queued() == 1 })
	good := inBackground(func() error {
		_, err := storetest.Bind(t.Context(), db, receipttest.Binding(2, "a", "good"), "good")
		return err
	})
	waitFor(t, func() bool { return db.Queued() == 2 })
	gate.release()
	if err := errors.Join(<-first, <-good); err != nil {
		t.Error(err)
	}
	if err := <-refusedOne; problem.CodeOf(err) != problem.Internal {
		t.Errorf("the bad one: %v", err)
	}
	if db.Writable() != nil {
		t.Error("a refusal broke the database")
	}
	if _, err := db.Source(t.Context(), bad.Body.Digest); err == nil {
		t.Error("a part of the refused one was kept")
	}
	if _, err := db.Lookup(t.Context(), receipttest.Request(2)); err != nil {
		t.Error(err)
	}
}

// Readers go on while the database is closed and opened again under them.
func TestReadersThroughFailures(t *testing.T) {
	db, faults := faulty(t)
	b, err := storetest.Bind(t.Context(), db, receipttest.Binding(1, "a", "one"), "one")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers []<-chan error
	for range 4 {
		readers = append(readers, inBackground(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				got, err := db.Lookup(t.Context(), b.Request)
				if err != nil && problem.CodeOf(err) != problem.NotWritable || err == nil && got != b {
					return fmt.Errorf("%+v: %w", got, err)
				}
			}
		}))
	}
	for i := range 20 {
		faults.arm("store.commit", []store.Phase{store.Before, store.After}[i%2])
		wantCode(t, db.Adopt(t.Context(), receipttest.Target("a")), problem.NotWritable)
		if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	for _, r := range readers {
		if err := <-r; err != nil {
			t.Error(err)
		}
	}
}
