//go:build salt

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// ending is what a receipt must come to: decided by hand, from protocol.md.
type ending struct {
	status string
	codes  []string // one of them; none is ""
	runs   int
	starts int // how often the master put the start on its bus
}

func succeeds() ending { return ending{"succeeded", []string{""}, 1, 1} }

// refusedWith ends before the claim; nothing was published.
func refusedWith(code string) ending { return ending{"failed", []string{code}, 0, 0} }

// failsWith ends after the start went out, and nothing ran.
func failsWith(codes ...string) ending { return ending{"failed", codes, 0, 1} }

// neverSent: claimed, and the start never went out.
func neverSent() ending { return ending{"failed", []string{"never_started"}, 0, 0} }

// nobodyKnows: the effect may have happened, and this often it did.
func nobodyKnows(runs int) ending { return ending{"uncertain", []string{"interrupted"}, runs, 1} }

// fault is one case: a step, what breaks there, and what must come of it.
type fault struct {
	step, what string
	sample     bool // part of the sample
	alone      bool // nobody else is at work while it strikes
	slow       bool // takes a fence's 130 s: begins first
	stays      bool // its receipt stays open for two hours, and with it its minion busy: begins last
	minion     string
	want       ending
	strike     func(c *trial)
	after      func(c *trial) // once it has struck; others are at work again
	mend       func(c *trial) // once its outcome is judged: what makes its minion usable again
}

func (f fault) turn() int {
	switch {
	case f.slow:
		return 0
	case f.stays:
		return 2
	}
	return 1
}

// trial is one fault on one minion.
type trial struct {
	*testing.T
	fault
	i      int    // the minion
	dir    string // the counter file and the markers are here
	start  oduflow.Start
	began  time.Time
	before int // starts published for this minion before
	looks  int // questions for evidence, or their answers, at a moment that counts
	undo   []func()
}

// counted runs once, and counts.
const counted = "counts:\n  cmd.run:\n    - name: echo run >> DIR/runs\n"

// held counts, then waits to be let go.
const held = counted + "holds:\n  cmd.run:\n    - name: while [ ! -e DIR/go ]; do sleep 0.1; done\n"

// stage is where trials take place: one at a time on a minion, and nobody
// beside one that stops what all need.
type stage struct {
	plain, queuing chan int
	door           sync.RWMutex
	mu             sync.Mutex
	ended          []ended
	spent          int // minions that stay quarantined
}

type ended struct {
	label, request, status, runs string
	count                        int
}

func newStage() *stage {
	s := &stage{plain: make(chan int, minions), queuing: make(chan int, minions)}
	for i := 1; i <= minions-queuers; i++ {
		s.plain <- i
	}
	for i := minions - queuers + 1; i <= minions; i++ {
		s.queuing <- i
	}
	return s
}

// play runs faults, those that take long first, and at the end looks at all of
// them again: nothing may have changed, and nothing may be lost.
func (s *stage) play(t *testing.T, faults []fault) {
	t.Helper()
	faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !all && !f.sample })
	slices.SortStableFunc(faults, func(a, b fault) int { return a.turn() - b.turn() })
	var trials sync.WaitGroup
	for _, f := range faults {
		pool := s.plain
		if f.minion == "queuing" {
			pool = s.queuing
		}
		var i int
		select {
		case i = <-pool:
		case <-time.After(6 * time.Minute):
			t.Fatalf("no minion is free for %s, %s (%d stay quarantined)", f.step, f.what, s.spent)
		}
		trials.Go(func() {
			free := true // one that -run leaves out harms nobody
			t.Run(strings.ReplaceAll(f.step+" "+f.what, "/", " "), func(t *testing.T) { free = false; free = s.perform(t, f, i) })
			if free {
				pool <- i
				return
			}
			s.mu.Lock()
			s.spent++
			s.mu.Unlock()
		})
	}
	trials.Wait()
	for _, e := range s.ended {
		if n := len(lines(t, e.runs)); n != e.count || n > 1 {
			t.Errorf("%s: ran %d times at the end, and %d before", e.label, n, e.count)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		a, err := odoo.CustomStatus(ctx, e.request, 0)
		cancel()
		if err != nil || a.Status != e.status {
			t.Errorf("%s: %s at the end, was %s (%v)", e.label, a.Status, e.status, err)
		}
	}
}

// perform says whether the minion can be used again.
func (s *stage) perform(t *testing.T, f fault, i int) (free bool) {
	dir := scratch(t)
	c := &trial{T: t, fault: f, i: i, dir: dir, before: len(events.starts(name(i)))}
	c.start = oduflow.Start{
		Request: oduflow.NewUUID(), Target: name(i), Instance: instance[i], Revision: 1, Requester: "faults",
		Source: strings.ReplaceAll(counted, "DIR", dir),
	}
	defer c.clear()
	func() {
		if f.alone {
			s.door.Lock()
			defer s.door.Unlock()
		} else {
			s.door.RLock()
			defer s.door.RUnlock()
		}
		c.began = time.Now()
		f.strike(c)
	}()
	if c.after != nil {
		c.after(c)
	}
	var a oduflow.Answer
	if f.stays {
		a = c.now()
	} else {
		a = c.await()
	}
	took := time.Since(c.began)
	runs := len(lines(t, filepath.Join(dir, "runs")))
	starts := events.starts(name(i))[c.before:]
	wrong := f.want.differs(a, runs, starts)
	report.add(row{f.step, f.what, a.Status, a.Code, runs, took, wrong})
	if wrong != "" {
		t.Errorf("%s on %s is %s %q after %d run(s) and %d start(s): %s (%+v)", a.Request, a.Target, a.Status, a.Code, runs, len(starts), wrong, a.BlockedBy)
	}
	if c.mend != nil {
		func() {
			s.door.RLock()
			defer s.door.RUnlock()
			c.mend(c)
		}()
	}
	c.clear()
	c.quiet()
	s.door.RLock()
	defer s.door.RUnlock()
	status, free := c.settled(a)
	free = free && !f.stays
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, ended{f.step + " " + f.what, a.Request, status, filepath.Join(dir, "runs"), runs})
	return free
}

func (e ending) differs(a oduflow.Answer, runs int, starts []string) string {
	var wrong []string
	if a.Status != e.status || !slices.Contains(e.codes, a.Code) {
		wrong = append(wrong, fmt.Sprintf("want %s %q", e.status, e.codes))
	}
	if runs != e.runs {
		wrong = append(wrong, fmt.Sprintf("want %d run(s)", e.runs))
	}
	if len(starts) != e.starts {
		wrong = append(wrong, fmt.Sprintf("want %d start(s) on the bus, not %d", e.starts, len(starts)))
	}
	for _, jid := range starts {
		if jid != a.JID {
			wrong = append(wrong, "a start went out under another JID")
		}
	}
	return strings.Join(wrong, "; ")
}

// settled shows that an uncertain receipt quarantines its target and nothing
// else does, and lifts the quarantine as an operator would. It gives the status
// that the receipt has from then on.
func (c *trial) settled(a oduflow.Answer) (status string, free bool) {
	if a.Status != "uncertain" {
		return a.Status, true
	}
	next := c.start
	next.Request, next.Source = oduflow.NewUUID(), "next "+a.Request+":\n  test.nop: []\n"
	c.begin(next)
	got := c.awaitOf(next.Request)
	if got.Code != "target_quarantined" || got.BlockedBy == nil || got.BlockedBy.Request != a.Request {
		c.Errorf("the next request is %s %q, blocked by %+v: want target_quarantined by %s", got.Status, got.Code, got.BlockedBy, a.Request)
	}
	outcome := map[bool]string{true: "succeeded", false: "failed"}[c.want.runs == 1]
	r, err := salt.MasterdCommand(c.Context(), "reconcile", a.Request, "--config", salt.MasterdConfigPath(), "--outcome", outcome,
		"--reason", "fault matrix", "--observed", fmt.Sprintf("the counter file says %d", c.want.runs), "--confirm", a.Target)
	if err != nil || r.Code != 0 {
		c.Errorf("reconcile: %v, exit status %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
		return a.Status, false
	}
	next.Request = oduflow.NewUUID()
	next.Previous = got.Request
	c.begin(next)
	if got = c.awaitOf(next.Request); got.Status != "succeeded" {
		c.Errorf("after reconcile the next request is %s %q", got.Status, got.Code)
	}
	return outcome, true
}

// The caller, who repeats a request under its own UUID until it is answered.

func (c *trial) begin(s oduflow.Start) oduflow.Answer {
	c.Helper()
	var last error
	var a oduflow.Answer
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	err := lab.Poll(ctx, func() (bool, error) {
		a, last = odoo.CustomStart(ctx, s)
		var r *oduflow.Refusal
		if errors.As(last, &r) && r.Status < http.StatusInternalServerError {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		c.Errorf("custom_start: %v", errors.Join(err, last))
	}
	return a
}

// call starts the trial's own request, and repeats it as long as it takes,
// beside whatever breaks meanwhile.
func (c *trial) call() {
	c.Helper()
	c.beside(func() { c.begin(c.start) })
}

// beside runs what must end before the trial does.
func (c *trial) beside(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	c.Cleanup(func() { <-done })
}

func (c *trial) await() oduflow.Answer { return c.awaitOf(c.start.Request) }

func (c *trial) awaitOf(request string) (a oduflow.Answer) {
	c.Helper()
	var last any
	// Nothing here takes longer than a fence and its evidence.
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	err := lab.Poll(ctx, func() (bool, error) {
		asking, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		var err error
		a, err = odoo.CustomStatus(asking, request, 5*time.Second)
		if last = a.Status; err != nil {
			last = err
		}
		return err == nil && (a.Terminal() || a.Status == "uncertain"), nil
	})
	if err != nil {
		c.Fatalf("%s has no end: %v", request, last)
	}
	return a
}

// patience is for what ends within a fence's 130 s and its evidence.
const patience = 4 * time.Minute

func (c *trial) awaitStatus(status string) {
	c.Helper()
	c.until("status "+status, 60*time.Second, func() bool {
		a, err := odoo.CustomStatus(c.Context(), c.start.Request, 0)
		return err == nil && a.Status == status
	})
}

// What is planned.

// plan breaks masterd at a step of this trial's target. action is kill or wait.
func (c *trial) plan(phase, step, action string) (marker string) {
	c.Helper()
	marker = filepath.Join(work, "marks", oduflow.NewUUID())
	if err := masterd.add(marker, fmt.Sprintf("%s:%s@%s:%s:%s", phase, step, name(c.i), marker, action)); err != nil {
		c.Fatal(err)
	}
	c.undo = append(c.undo, func() { _ = masterd.remove(marker) })
	return marker
}

// planMinion breaks this minion's executor. Several lines may be given.
func (c *trial) planMinion(lines ...string) (markers []string) {
	c.Helper()
	path := filepath.Join(salt.MinionDir(c.i).Etc, "fault")
	for n, line := range lines {
		if strings.Contains(line, "MARK") {
			mark := filepath.Join(c.dir, fmt.Sprintf("struck-%d-%s", n, oduflow.NewUUID()[:8]))
			lines[n] = strings.ReplaceAll(line, "MARK", mark)
			markers = append(markers, mark)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		c.Fatal(err)
	}
	c.undo = append(c.undo, func() { _ = os.Remove(path) })
	return markers
}

func (c *trial) struck(markers ...string) {
	c.Helper()
	for _, m := range markers {
		ctx, cancel := context.WithTimeout(c.Context(), 80*time.Second)
		err := lab.Poll(ctx, func() (bool, error) { return exists(m), nil })
		cancel()
		if err != nil {
			a := c.now()
			c.Fatalf("waited in vain for the fault at %s: %s on %s is %s %q (%+v)", m, a.Request, a.Target, a.Status, a.Code, a.BlockedBy)
		}
	}
}

// clear takes every planned fault back. It may be repeated.
func (c *trial) clear() {
	for _, f := range slices.Backward(c.undo) {
		f()
	}
	c.undo = nil
	touch(c.T, filepath.Join(c.dir, "go"))
}

// quiet waits until nothing of this trial is under way on its minion.
func (c *trial) quiet() {
	lib := salt.MinionDir(c.i).Lib + "/"
	c.until("the executors of "+name(c.i)+" to end", 90*time.Second, func() bool {
		// An executor carries no mark: it is found among all by its program.
		return !slices.ContainsFunc(salt.Processes(""), func(p lab.Process) bool {
			return strings.HasPrefix(p.Exe, lib) || strings.Contains(p.Command, c.dir)
		})
	})
}

// Processes.

// masterdDies waits for it and starts masterd again.
func (c *trial) masterdDies(marker string) {
	c.Helper()
	c.struck(marker)
	c.until("masterd to be gone", 20*time.Second, func() bool { return len(salt.Processes("masterd")) == 0 })
	c.startMasterd()
}

func (c *trial) startMasterd() {
	c.Helper()
	c.loses(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 60*time.Second)
		defer cancel()
		if err := salt.StartMasterd(ctx); err != nil {
			c.Fatal(err)
		}
	})
}

// job finds the Salt process that runs a shell whose command holds the words,
// and the shell.
func (c *trial) job(words string) (job, shell int) {
	c.Helper()
	c.until("the shell of the state", 30*time.Second, func() bool {
		by := map[int]lab.Process{}
		for _, p := range salt.Processes(name(c.i)) {
			by[p.PID] = p
		}
		for _, p := range by {
			if !strings.Contains(p.Command, words) || strings.Contains(filepath.Base(p.Exe), "python") {
				continue
			}
			for up := by[p.Parent]; up.PID != 0; up = by[up.Parent] {
				if strings.Contains(filepath.Base(up.Exe), "python") {
					job, shell = up.PID, p.PID
					return true
				}
			}
		}
		return false
	})
	return job, shell
}

func (c *trial) file(n string) string { return filepath.Join(c.dir, n) }

// holds makes the request's state wait for c.letGo.
func (c *trial) holds() { c.start.Source = strings.ReplaceAll(held, "DIR", c.dir) }

func (c *trial) letGo() { touch(c.T, c.file("go")) }

// running waits until the effect has happened and the state holds.
func (c *trial) running() {
	c.Helper()
	c.until("the effect", 60*time.Second, func() bool { return exists(c.file("runs")) })
}

func (c *trial) until(what string, limit time.Duration, true func() bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	if err := lab.Poll(ctx, func() (bool, error) { return true(), nil }); err != nil {
		c.Fatalf("waited in vain for %s", what)
	}
}

// heard waits until the bus has shown something. true is asked with the bus's
// lock held.
func (c *trial) heard(what string, limit time.Duration, true func() bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	if err := events.await(ctx, true); err != nil {
		c.Fatalf("the bus never showed %s", what)
	}
}

// published waits until one more job with a function went to this minion than
// before, and returned until one more came back.
func (c *trial) published(fun string, limit time.Duration, before int) {
	c.Helper()
	c.heard("a publication of "+fun, limit, func() bool { return len(events.published(name(c.i), fun)) > before })
}

func (c *trial) returned(fun string, limit time.Duration, before int) {
	c.Helper()
	c.heard("a return of "+fun, limit, func() bool { return len(events.returned(name(c.i), fun)) > before })
}

// startPublished waits until the master has put this trial's start on its bus.
func (c *trial) startPublished() {
	c.Helper()
	c.heard("the start", 60*time.Second, func() bool { return len(events.sent(name(c.i))) > c.before })
}

// goesOut waits until the start has gone out, where one will. Until then nobody
// else may kill masterd: a claim whose start it took along is fenced, and that
// would be the other one's doing.
func (c *trial) goesOut() {
	c.Helper()
	if c.want.starts > 0 {
		c.startPublished()
	}
}

// loses does what costs masterd its connection to the bus, and waits until it
// is back: a request that began in between could lose the answer to its
// prepare, and would be refused for that.
func (c *trial) loses(what func()) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 60*time.Second)
	defer cancel()
	if err := events.rejoined(ctx, what); err != nil {
		c.Errorf("masterd doesn't join the bus again: %v", err)
	}
}

// delivered waits until masterd has taken everything that is on the bus by now:
// what it is told over the bus next comes behind that. Another trial may have
// killed masterd meanwhile.
func (c *trial) delivered() {
	c.Helper()
	var r lab.Result
	var err error
	c.until("an answer to masterd evidence", 90*time.Second, func() bool {
		r, err = salt.MasterdCommand(c.Context(), "evidence", c.start.Request, "--config", salt.MasterdConfigPath())
		return err != nil || r.Code != problem.ExitUnavailable
	})
	if err != nil || !strings.Contains(r.Stdout, " answers: ") {
		c.Errorf("masterd evidence: %v, exit status %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
}

// lasts lets a fault last until so much time has passed since the claim.
func (c *trial) lasts(d time.Duration) {
	c.Helper()
	var at time.Time
	c.until("the claim to be told of", 30*time.Second, func() bool {
		var err error
		at, err = time.Parse(time.RFC3339Nano, c.now().DispatchedAt)
		return err == nil
	})
	c.passes(time.Until(at.Add(d)))
}

// passes lets a fault last for so long: that is what it is, nothing is waited
// for in it.
func (c *trial) passes(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Context().Done():
	}
}

// now gives what the receipt says, as soon as somebody answers.
func (c *trial) now() (a oduflow.Answer) {
	c.Helper()
	c.until("an answer of masterd", 30*time.Second, func() bool {
		var err error
		a, err = odoo.CustomStatus(c.Context(), c.start.Request, 0)
		return err == nil
	})
	return a
}

func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(work, "trial-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir // removed with the rest, since the end of the matrix looks at it again
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	return strings.Fields(string(raw))
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func touch(t *testing.T, path string) {
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Error(err)
	}
}
