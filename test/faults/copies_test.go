//go:build salt

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// copyFaults take the ledger away, put an older one back, and clone the minion.
// Nothing runs twice, and no receipt says that nothing ran where that isn't
// proved: one whose ledger has forgotten it stays open until Salt's time is
// over, two hours after these trials are.
func copyFaults() []fault {
	stays := ending{"running", []string{""}, 0, 1}
	return []fault{
		{
			step: "ledger", what: "deleted between prepare and start", stays: true, want: stays,
			strike: func(c *trial) { c.forgets(func() { c.ledgerGone() }) },
		},
		{
			step: "ledger", what: "put back to before prepare", stays: true, want: stays,
			strike: func(c *trial) {
				kept := c.snapshot()
				c.forgets(func() { c.putBack(kept) })
			},
		},
		{
			step: "ledger", what: "deleted in the effect", sample: true, want: nobodyKnows(1),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				answers := len(events.returns(name(c.i), start))
				c.ledgerGone()
				c.letGo()
				c.returned(start, 60*time.Second, answers)
				c.delivered()
				if a := c.now(); a.Status != "running" {
					c.Errorf("without a ledger it is %s %q", a.Status, a.Code)
				}
				c.adopt() // then the folder for this boot tells that it began
				c.delivered()
				c.await()
			},
		},
		{
			step: "ledger", what: "deleted after the end", want: succeeds(),
			strike: func(c *trial) {
				c.call()
				c.await()
				c.ledgerGone()
				c.mend = func(c *trial) {
					c.nextIs("ledger_changed")
					c.adopt()
					c.replay()
					c.ran(1)
				}
			},
		},
		{
			step: "ledger", what: "put back to before prepare, in the effect", sample: true, want: succeeds(),
			strike: func(c *trial) {
				kept := c.snapshot()
				c.holds()
				c.call()
				c.running()
				c.putBack(kept)
				c.delivered()
				if a := c.now(); a.Status != "running" {
					c.Errorf("while it runs it is %s %q", a.Status, a.Code)
				}
				c.letGo()
				c.await()
				c.mend = believed
			},
		},
		{
			step: "ledger", what: "put back to prepared, after the end", sample: true, want: succeeds(),
			strike: func(c *trial) {
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				kept := c.snapshot()
				touch(c.T, mark+".go")
				c.await()
				c.putBack(kept)
				c.replay()
				c.delivered()
				c.mend = believed
			},
		},
		{
			step: "minion", what: "cloned, and both answer", sample: true, want: refusedWith("duplicate_target"),
			strike: func(c *trial) {
				c.clone()
				mark := c.plan("after", "prepare", "wait")
				tickets := len(events.returns(name(c.i), prepare))
				c.call()
				c.struck(mark)
				c.returned(prepare, 60*time.Second, tickets+1)
				touch(c.T, mark+".go")
				c.await()
				c.mend = uncloned
			},
		},
		{
			step: "minion", what: "cloned, and the clone answers late", want: succeeds(),
			strike: func(c *trial) {
				c.clone()
				if err := salt.PauseTwin(c.i); err != nil {
					c.Error(err)
				}
				tickets := len(events.returns(name(c.i), prepare))
				c.call()
				c.await()
				if err := salt.ResumeTwin(c.i); err != nil {
					c.Error(err)
				}
				c.returned(prepare, 60*time.Second, tickets+1)
				c.delivered()
				c.mend = uncloned
			},
		},
		{
			step: "minion", what: "cloned between prepare and start", sample: true, want: succeeds(),
			strike: func(c *trial) {
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				c.clone() // with the ticket
				answers := len(events.returns(name(c.i), start))
				touch(c.T, mark+".go")
				c.returned(start, 60*time.Second, answers+1)
				c.awaitStatus("succeeded") // though the clone says that it has lapsed, perhaps first
				c.mend = func(c *trial) {
					// They didn't answer the same prepare yet. Now they do, and the second
					// answer may come too late for this one.
					c.next()
					uncloned(c)
				}
			},
		},
	}
}

// forgets takes from the ledger what it knows of this request, between its
// prepare and its start, and waits for the question that would fence it.
func (c *trial) forgets(lose func()) {
	mark := c.plan("before", "claim", "wait")
	c.call()
	c.struck(mark)
	lose()
	touch(c.T, mark+".go")
	c.startPublished()
	c.after = func(c *trial) { c.lasts(135 * time.Second); c.delivered() }
}

// ledgerGone deletes all of the minion's ledger. What the folder for this boot
// still knows of earlier trials goes with it: it would have an executor that was
// killed in one of them counted as unfinished again.
func (c *trial) ledgerGone() {
	c.Helper()
	witnesses, err := filepath.Glob(filepath.Join(salt.MinionDir(c.i).Run, "*", "*-*"))
	if err != nil {
		c.Error(err)
	}
	for _, path := range witnesses {
		if filepath.Base(path) != c.start.Request {
			if err := os.Remove(path); err != nil {
				c.Error(err)
			}
		}
	}
	state := salt.MinionDir(c.i).State
	entries, err := os.ReadDir(state)
	if err != nil {
		c.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(state, e.Name())); err != nil {
			c.Error(err)
		}
	}
}

// snapshot copies the minion's ledger as it is now.
func (c *trial) snapshot() (kept string) {
	c.Helper()
	kept = filepath.Join(c.dir, "snapshot")
	c.run("/bin/cp", "-a", salt.MinionDir(c.i).State, kept)
	return kept
}

// putBack makes the minion's ledger what it was.
func (c *trial) putBack(kept string) {
	c.Helper()
	c.ledgerGone()
	c.run("/bin/cp", "-a", kept+"/.", salt.MinionDir(c.i).State)
}

// replay has the minion run the very same start again, under another JID.
func (c *trial) replay() {
	c.Helper()
	sent := events.asked(name(c.i), start)
	r, err := salt.Salt(c.Context(), "--out=json", "--static", "--timeout=30", "-L", name(c.i), start, sent[len(sent)-1].text)
	if err != nil || r.Code != 0 {
		c.Errorf("replay: %v, exit status %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
}

func (c *trial) adopt() {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), time.Minute)
	defer cancel()
	if err := salt.Adopt(ctx, c.i, instance[c.i]); err != nil {
		c.Error(err)
	}
}

// next makes one more request.
func (c *trial) next() oduflow.Answer {
	c.Helper()
	next := c.start
	next.Request = oduflow.NewUUID()
	next.Source = "next " + next.Request + ":\n  test.nop: []\n"
	c.begin(next)
	return c.awaitOf(next.Request)
}

// nextIs makes one more request, which ends with one of these codes, "" for a
// success.
func (c *trial) nextIs(codes ...string) oduflow.Answer {
	c.Helper()
	a := c.next()
	if !slices.Contains(codes, a.Code) || (a.Status == "succeeded") != (a.Code == "") {
		c.Errorf("the next request is %s %q, want %q", a.Status, a.Code, codes)
	}
	return a
}

// believed has the minion's ledger believed again, where masterd has seen that
// it was put back.
func believed(c *trial) {
	if c.nextIs("ledger_changed", "").Code == "" {
		return // it had counted past what was known of it
	}
	c.adopt()
	c.nextIs("")
}

func (c *trial) ran(times int) {
	c.Helper()
	if n := len(lines(c.T, c.file("runs"))); n != times {
		c.Errorf("it ran %d times", n)
	}
}

// clone starts a second minion that is a copy of this trial's.
func (c *trial) clone() {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 90*time.Second)
	defer cancel()
	c.undo = append(c.undo, func() {
		if err := salt.RemoveTwin(c.i); err != nil {
			c.Error(err)
		}
	})
	if err := salt.StartTwin(ctx, c.i); err != nil {
		c.Fatal(err)
	}
}

// uncloned shows that nothing more is done while there are two, and goes back
// to one as an operator would.
func uncloned(c *trial) {
	c.Helper()
	c.nextIs("duplicate_target", "ledger_changed") // two answer, or one that knows less than the other
	if err := salt.RemoveTwin(c.i); err != nil {
		c.Error(err)
	}
	c.adopt()
	c.nextIs("")
}
