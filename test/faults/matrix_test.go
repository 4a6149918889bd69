//go:build salt

package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A10 to A24, B11: whatever breaks, a request runs at most once, and its
// receipt says what is true or that nobody knows.
func TestMatrix(t *testing.T) {
	var most []fault
	for _, part := range [][]fault{masterdFaults(), executorFaults(), saltFaults(), channelFaults(), busFaults(), copyFaults()} {
		most = append(most, part...)
	}
	if mounts {
		most = append(append(most, ledgerDiskFaults()...), masterdDiskFaults()...)
	}
	scene.play(t, most)
	// The master's own end: minions take their time to come back, and a look
	// in between would find nobody.
	scene.play(t, masterFaults())
}

// masterdFaults kills masterd at each of its steps, and tells it lies about them.
func masterdFaults() []fault {
	killed := func(phase, step string, want ending) fault {
		return fault{
			step: "masterd " + step, what: "masterd killed " + phase, alone: true, want: want,
			slow: want.codes[0] == "never_started",
			strike: func(c *trial) {
				mark := c.plan(phase, step, "kill")
				c.call()
				c.masterdDies(mark)
				c.goesOut()
			},
		}
	}
	told := func(step string, want ending) fault {
		return fault{
			step: "masterd " + step, what: "done, but told failed", want: want, slow: want.codes[0] == "never_started",
			strike: func(c *trial) {
				mark := c.plan("told", step, "")
				c.call()
				c.struck(mark)
				c.goesOut()
			},
		}
	}
	looked := func(phase string) fault {
		return fault{
			step: "masterd evidence", what: "masterd killed " + phase, alone: true, want: succeeds(),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				mark := c.plan(phase, "evidence", "kill")
				_ = salt.KillMasterd()
				c.startMasterd() // looks at what is open, and dies of it
				c.masterdDies(mark)
				c.letGo()
			},
		}
	}
	stopped := func(c *trial) (resume func()) {
		if err := salt.PauseMasterd(); err != nil {
			c.Error(err)
		}
		resume = func() {
			if err := salt.ResumeMasterd(); err != nil {
				c.Error(err)
			}
		}
		c.undo = append(c.undo, resume)
		return resume
	}
	return sampled([]fault{
		{
			step: "masterd", what: "stopped while the answer comes", alone: true, want: succeeds(),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				c.awaitStatus("running")
				answers := len(events.returns(name(c.i), start))
				resume := stopped(c)
				c.letGo()
				c.returned(start, 60*time.Second, answers)
				resume()
				c.await()
			},
		},
		{
			// An answer that masterd has looked at for longer than 30 s is none:
			// it prepares again.
			step: "masterd", what: "stopped between prepare and claim", alone: true, want: succeeds(),
			strike: func(c *trial) {
				asked := len(events.asked(name(c.i), prepare))
				mark := c.plan("after", "prepare", "wait")
				c.call()
				c.struck(mark)
				resume := stopped(c)
				touch(c.T, mark+".go")
				c.passes(35 * time.Second)
				resume()
				c.await()
				if n := len(events.asked(name(c.i), prepare)) - asked; n != 2 {
					c.Errorf("it was prepared %d times", n)
				}
			},
		},
		killed("before", "bind", succeeds()), killed("after", "bind", succeeds()), told("bind", succeeds()),
		killed("before", "prepare", succeeds()), killed("after", "prepare", succeeds()),
		killed("before", "claim", succeeds()), killed("after", "claim", neverSent()), told("claim", neverSent()),
		killed("before", "start", neverSent()), killed("after", "start", succeeds()), told("start", succeeds()),
		killed("before", "acknowledge", succeeds()), killed("after", "acknowledge", succeeds()), told("acknowledge", succeeds()),
		looked("before"), looked("after"),
		killed("before", "finish", succeeds()), killed("after", "finish", succeeds()), told("finish", succeeds()),
	}, "masterd stopped while the answer comes", "masterd claim masterd killed after", "masterd claim done, but told failed", "masterd bind masterd killed after",
		"masterd start masterd killed after", "masterd evidence masterd killed before", "masterd finish done, but told failed")
}

// sampled marks the faults that are in the sample.
func sampled(faults []fault, labels ...string) []fault {
	left := map[string]bool{}
	for _, l := range labels {
		left[l] = true
	}
	for i, f := range faults {
		if label := f.step + " " + f.what; left[label] {
			faults[i].sample = true
			delete(left, label)
		}
	}
	for l := range left {
		panic("no fault " + l)
	}
	return faults
}

// executorFaults breaks each step of minion-executor and its ledger that a
// prepare or a start takes: the executor killed, told that the step failed, or
// the Salt job process killed.
func executorFaults() []fault {
	var faults []fault
	add := func(kind, step, phase, action string, want ending) {
		what := map[string]string{
			"kill": "executor killed ", "fail": "told failed ", "killparent": "job process killed ", "stop": "executor stopped ",
		}[action]
		faults = append(faults, fault{
			step: kind + " " + step, what: what + phase, want: want, slow: want.codes[0] == "never_started",
			strike: func(c *trial) {
				marks := c.planMinion(fmt.Sprintf("%s:%s/%s:MARK:%s", phase, kind, step, action))
				c.call()
				c.struck(marks...)
				if kind == "prepare" {
					c.await() // its silence must be nobody else's doing
				}
			},
		})
	}
	each := func(kind, action, steps string, before, after ending) {
		for step := range strings.FieldsSeq(steps) {
			add(kind, step, "before", action, before)
			add(kind, step, "after", action, after)
		}
	}
	silent, unwritable := refusedWith("executor_silent"), refusedWith("ledger_unwritable")
	neverStarted, neverBegan := failsWith("never_started"), failsWith("never_began")

	preparing := "open.write open.sync record.write record.sync room.write room.sync prepared.write prepared.link prepared.sync"
	each("prepare", "kill", preparing, silent, silent)
	each("prepare", "fail", preparing, unwritable, unwritable)
	for _, action := range []string{"kill", "fail"} {
		each("prepare", action, "answer", silent, succeeds())
		// Until the decision is in its place the request hasn't started, and
		// until the effect is marked as begun nothing can have happened.
		each("start", action, "lease started.write", neverStarted, neverStarted)
		each("start", action, "started.link", neverStarted, neverBegan)
		each("start", action, "started.sync", neverBegan, neverBegan)
		each("start", action, "begun.write", neverBegan, neverBegan)
		each("start", action, "begun.link", neverBegan, nobodyKnows(0))
		each("start", action, "begun.sync", nobodyKnows(0), nobodyKnows(0))
		each("start", action, "run", nobodyKnows(0), nobodyKnows(1))
		each("start", action, "answer", succeeds(), succeeds())
	}
	each("start", "kill", "convert", neverBegan, neverBegan)
	each("start", "fail", "convert", failsWith("start_refused_plugin_mismatch"), failsWith("start_refused_plugin_mismatch"))
	each("start", "kill", "finished.write", nobodyKnows(1), nobodyKnows(1))
	each("start", "kill", "finished.link", nobodyKnows(1), succeeds())
	each("start", "kill", "finished.sync", succeeds(), succeeds())
	each("start", "fail", "finished.write finished.link finished.sync", succeeds(), succeeds()) // written again
	each("start", "killparent", "started.link", neverBegan, neverBegan)
	each("start", "killparent", "begun.sync", nobodyKnows(0), nobodyKnows(0))
	each("start", "killparent", "finished.sync answer", succeeds(), succeeds())
	add("start", "lease", "after", "killparent", neverStarted)
	add("start", "run", "after", "killparent", succeeds()) // the effect is over and the executor lives to write it
	add("prepare", "prepared.sync", "after", "stop", silent)
	add("start", "started.sync", "after", "stop", neverBegan)
	add("start", "run", "after", "stop", nobodyKnows(1))

	faults = append(faults, decisionFaults()...)
	return sampled(faults,
		"prepare prepared.link executor killed after", "prepare record.sync told failed before", "start lease job process killed after",
		"start started.link executor killed after", "start begun.write told failed after", "start begun.link executor killed after",
		"start run executor killed after", "start finished.link executor killed after", "start finished.link told failed after",
		"start finished.sync job process killed after", "start fenced.link executor killed after", "start refused.link told failed after")
}

// decisionFaults breaks what closes a request that didn't run: its fence, its
// refusal, and the proof that it never began.
func decisionFaults() []fault {
	var faults []fault
	mismatch, neverBegan := failsWith("start_refused_plugin_mismatch"), failsWith("never_began")
	add := func(step, phase, action string, want ending, strike func(c *trial, line string)) {
		what := map[string]string{"kill": "executor killed ", "fail": "told failed "}[action] + phase
		line := fmt.Sprintf("%s:%s:MARK:%s", phase, step, action)
		faults = append(faults, fault{
			step: "start " + step, what: what, want: want, slow: want.codes[0] == "never_started", strike: func(c *trial) { strike(c, line) },
		})
	}
	refuse := func(c *trial, line string) {
		marks := c.planMinion("before:convert:MARK:fail", line)
		c.call()
		c.struck(marks...)
	}
	fence := func(c *trial, line string) { // the ticket dies on the way of the start
		mark := c.plan("before", "claim", "wait")
		c.call()
		c.struck(mark)
		marks := c.planMinion("since_boot_add 130s", line)
		touch(c.T, mark+".go")
		c.struck(marks...)
	}
	prove := func(c *trial, line string) {
		marks := c.planMinion("before:begun.write:MARK:kill", line)
		c.call()
		c.struck(marks...)
	}
	for _, action := range []string{"kill", "fail"} {
		for _, at := range []string{"before write", "after write", "before link", "after link", "before sync", "after sync"} {
			phase, part, _ := strings.Cut(at, " ")
			placed := part == "sync" || at == "after link"
			refused, fenced := neverBegan, failsWith("never_started")
			if placed {
				refused, fenced = mismatch, failsWith("start_refused_ticket")
			}
			add("refused."+part, phase, action, refused, refuse)
			add("fenced."+part, phase, action, fenced, fence)
			add("never_began."+part, phase, action, neverBegan, prove)
		}
	}
	return faults
}
