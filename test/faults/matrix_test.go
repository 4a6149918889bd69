//go:build salt

package faults

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/test/lab"
)

// A10 to A24, B11: whatever breaks, a request runs at most once, and its
// receipt says what is true or that nobody knows.
func TestMatrix(t *testing.T) {
	s := newStage()
	var most []fault
	for _, part := range [][]fault{masterdFaults(), executorFaults(), saltFaults(), channelFaults(), busFaults(), minionFaults()} {
		most = append(most, part...)
	}
	s.play(t, most)
	// The master's own end: minions take their time to come back, and a look
	// in between would find nobody.
	s.play(t, masterFaults())
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
	return sampled([]fault{
		killed("before", "bind", succeeds()), killed("after", "bind", succeeds()), told("bind", succeeds()),
		killed("before", "prepare", succeeds()), killed("after", "prepare", succeeds()),
		killed("before", "claim", succeeds()), killed("after", "claim", neverSent()), told("claim", neverSent()),
		killed("before", "start", neverSent()), killed("after", "start", succeeds()), told("start", succeeds()),
		killed("before", "acknowledge", succeeds()), killed("after", "acknowledge", succeeds()), told("acknowledge", succeeds()),
		looked("before"), looked("after"),
		killed("before", "finish", succeeds()), killed("after", "finish", succeeds()), told("finish", succeeds()),
	}, "masterd claim masterd killed after", "masterd claim done, but told failed", "masterd bind masterd killed after",
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

// saltFaults are for the plugin, the Salt job process and salt-minion.
func saltFaults() []fault {
	plugin := func(does, what string) fault {
		return fault{
			step: "plugin", what: what, want: failsWith("start_refused_plugin_mismatch"),
			strike: func(c *trial) {
				place := filepath.Join(salt.MinionDir(c.i).Lib, "plugins", "custom")
				install := func(from string) {
					raw, err := os.ReadFile(from)
					if err == nil {
						_ = os.Remove(place)
						err = os.WriteFile(place, raw, 0o755)
					}
					if err == nil {
						err = salt.SignExecutors(context.Background(), c.i)
					}
					if err != nil {
						c.Error(err)
					}
				}
				install(filepath.Join(work, "bad", does))
				c.undo = append(c.undo, func() { install(filepath.Join(work, "bin", "custom")) })
				c.call()
				c.await()
			},
		}
	}
	killJob := func(c *trial) {
		c.holds()
		c.call()
		c.running()
		job, _ := c.job(c.dir)
		_ = syscall.Kill(job, syscall.SIGKILL)
	}
	return []fault{
		plugin("die", "killed at its launch"), plugin("killed", "killed while it converts"), plugin("hang", "never answers"),
		{
			step: "Salt job process", what: "killed in the effect, which ends", sample: true, want: nobodyKnows(1),
			strike: func(c *trial) { killJob(c); c.letGo() },
		},
		{
			step: "Salt job process", what: "killed in the effect, which lives on", sample: true, slow: true, want: nobodyKnows(1),
			strike: killJob,
			after: func(c *trial) {
				c.sinceClaim(40 * time.Second) // the look at 30 s found the survivor
				if a := c.now(); a.Status != "running" {
					c.Errorf("while its effect lives on it is %s", a.Status)
				}
				c.letGo()
			},
		},
		{
			step: "salt-minion", what: "all of it killed in the effect", want: nobodyKnows(1),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				if err := salt.KillMinion(c.i); err != nil {
					c.Error(err)
				}
				c.letGo()
				c.startMinion()
			},
		},
		{
			step: "salt-minion", what: "killed in the effect, its job lives", sample: true, want: succeeds(),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				job, _ := c.job(c.dir)
				c.killDaemon(job)
				c.letGo()
				c.until("the record to be finished", 30*time.Second, func() bool { return finished(c) })
				_ = syscall.Kill(job, syscall.SIGKILL) // it can't return, and would try for minutes
				c.until("the job to end", 20*time.Second, func() bool { return !alive(job) })
				c.startMinion()
			},
		},
		{
			step: "salt-minion", what: "restarted between prepare and start", sample: true, want: succeeds(),
			strike: func(c *trial) {
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				if err := salt.KillMinion(c.i); err != nil {
					c.Error(err)
				}
				c.startMinion()
				touch(c.T, mark+".go")
			},
		},
		{
			step: "salt-minion", what: "dead when the start goes out", slow: true, want: failsWith("never_started"),
			strike: func(c *trial) {
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				if err := salt.KillMinion(c.i); err != nil {
					c.Error(err)
				}
				touch(c.T, mark+".go")
				c.until("the start to be published", 20*time.Second, func() bool { return len(events.starts(name(c.i))) > c.before })
				c.startMinion()
			},
		},
		{
			step: "salt-minion", what: "stopped before prepare", want: refusedWith("executor_silent"),
			strike: func(c *trial) {
				c.pause()
				c.call()
				c.await()
				c.resume()
			},
		},
		{
			step: "salt-minion", what: "stopped across the start, 40 s", sample: true, want: succeeds(),
			strike: stoppedAcross, after: func(c *trial) { c.sinceClaim(40 * time.Second); c.resume() },
		},
		{
			step: "salt-minion", what: "stopped across the start, 140 s", sample: true, slow: true,
			want:   failsWith("start_refused_ticket", "never_started"), // whichever of the two asks first
			strike: stoppedAcross, after: func(c *trial) { c.sinceClaim(140 * time.Second); c.resume() },
		},
		{
			step: "salt-minion", what: "start on its disk, run 15 s later", minion: "queuing", want: succeeds(),
			strike: func(c *trial) { c.queued(15) },
		},
		{
			step: "salt-minion", what: "start on its disk, run 140 s later", minion: "queuing", sample: true, slow: true,
			want: failsWith("start_refused_ticket", "never_started"), strike: func(c *trial) { c.queued(140) },
		},
		{
			// Not in the sample while a record that lapsed with its boot leaves
			// its receipt running for two hours.
			step: "machine", what: "rebooted between prepare and start", want: ending{"uncertain", []string{"ledger_absent"}, 0, 1},
			strike: func(c *trial) {
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				c.planMinion("boot_id another-boot")
				touch(c.T, mark+".go")
				c.await()
			},
		},
		{
			step: "machine", what: "rebooted in the effect", want: nobodyKnows(1),
			strike: func(c *trial) {
				killJob(c)
				c.letGo()
				c.planMinion("boot_id another-boot")
				c.await()
			},
		},
		{
			step: "machine", what: "another machine-id", want: refusedWith("ledger_changed"),
			strike: func(c *trial) {
				c.planMinion("machine_id another-machine")
				c.call()
				c.await()
			},
		},
	}
}

func stoppedAcross(c *trial) {
	mark := c.plan("before", "claim", "wait")
	c.call()
	c.struck(mark)
	c.pause()
	touch(c.T, mark+".go")
	c.until("the start to be published", 20*time.Second, func() bool { return len(events.starts(name(c.i))) > c.before })
}

// queued fills the minion's places for jobs between prepare and start, for so
// many seconds.
func (c *trial) queued(seconds int) {
	mark := c.plan("before", "claim", "wait")
	c.call()
	c.struck(mark)
	for range 2 {
		if r, err := salt.Salt(c.Context(), "--async", name(c.i), "test.sleep", fmt.Sprint(seconds)); err != nil || r.Code != 0 {
			c.Errorf("test.sleep: %v %s", err, r.Stderr)
		}
	}
	touch(c.T, mark+".go")
	c.until("the start to be on the minion's disk", 20*time.Second, func() bool {
		found, _ := filepath.Glob(filepath.Join(salt.MinionDir(c.i).Cache, "queues", "*", "job_queue", "queued_*"))
		return len(found) > 0
	})
}

func (c *trial) pause() {
	if err := salt.PauseMinion(c.i); err != nil {
		c.Error(err)
	}
	c.Cleanup(func() { _ = salt.ResumeMinion(c.i) })
}

func (c *trial) resume() {
	if err := salt.ResumeMinion(c.i); err != nil {
		c.Error(err)
	}
}

func (c *trial) startMinion() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := salt.StartMinion(ctx, c.i); err != nil {
		c.Error(err)
	}
}

// killDaemon kills salt-minion and spares one job and what it started, as the
// packages' KillMode=process does.
func (c *trial) killDaemon(job int) {
	spared := map[int]bool{job: true}
	all := salt.Processes(name(c.i))
	for range all {
		for _, p := range all {
			if spared[p.Parent] {
				spared[p.PID] = true
			}
		}
	}
	for _, p := range all {
		if !spared[p.PID] {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// packed is a short text as msgpack has it: its length is part of it, so that
// minion-1 isn't found in minion-12.
func packed(text string) string { return string([]byte{0xa0 | byte(len(text))}) + text }

// channelFaults are what a network may do between masterd and port 4506.
func channelFaults() []fault {
	const start = "oduflow.start"
	relayed := func(do deed, fun, what string, want ending) fault {
		return fault{
			step: "4506, " + fun, what: what, want: want, slow: want.codes[0] == "never_started",
			strike: func(c *trial) {
				p := channel.plan(do, fun, packed(name(c.i)))
				c.call()
				<-p.hit
				if want.starts == 0 {
					c.await()
				}
			},
		}
	}
	faults := []fault{
		relayed(dropReply, start, "reply dropped", succeeds()),
		relayed(delayReply, start, "reply delayed 60 s", succeeds()),
		relayed(cutReply, start, "reply cut half way", succeeds()),
		relayed(dropRequest, start, "request dropped", neverSent()),
		relayed(cutRequest, start, "request cut half way", neverSent()),
		relayed(repeatRequest, start, "request repeated", ending{"succeeded", []string{""}, 1, 2}),
		relayed(dropReply, "oduflow.prepare", "reply dropped", succeeds()),
		relayed(cutReply, "oduflow.prepare", "reply cut half way", succeeds()),
		relayed(dropRequest, "oduflow.prepare", "request dropped", refusedWith("executor_silent")),
		relayed(repeatRequest, "oduflow.prepare", "request repeated", succeeds()),
		relayed(dropReply, "key.print", "reply dropped", refusedWith("executor_silent")),
		relayed(cutReply, "key.print", "reply cut half way", refusedWith("executor_silent")),
		{
			step: "4506, " + start, what: "request held back past the fence", slow: true,
			want: ending{"failed", []string{"never_started"}, 0, 1},
			strike: func(c *trial) {
				p := channel.plan(holdRequest, start, packed(name(c.i)))
				c.call()
				<-p.hit
				c.after = func(c *trial) {
					c.await()
					close(p.release) // now it goes out, to a ledger that has fenced it
					c.until("the late start's answer", 30*time.Second, func() bool { return len(events.starts(name(c.i))) > c.before })
					<-time.After(3 * time.Second) // its answer, which changes nothing
				}
			},
		},
	}
	return sampled(faults, "4506, oduflow.start reply dropped", "4506, oduflow.start reply cut half way",
		"4506, oduflow.start reply delayed 60 s", "4506, oduflow.start request repeated",
		"4506, oduflow.start request held back past the fence", "4506, oduflow.prepare request dropped")
}

// busFaults are what may happen to the answers' way back.
func busFaults() []fault {
	moody := func(what string, m mood, want ending) fault {
		return fault{
			step: "event bus", what: what, alone: true, sample: true, want: want,
			strike: func(c *trial) {
				events.set(m)
				defer func() { events.set(well); events.drop() }()
				c.call()
				c.await()
			},
		}
	}
	heldWhile := func(what string, strike func(c *trial)) fault {
		return fault{
			step: "event bus", what: what, alone: true, sample: true, want: succeeds(),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				c.awaitStatus("running")
				strike(c)
			},
		}
	}
	returned := func(c *trial) {
		n := len(events.returns(name(c.i), "oduflow.start"))
		c.letGo()
		c.until("the start's return", 30*time.Second, func() bool { return len(events.returns(name(c.i), "oduflow.start")) > n })
	}
	deafBefore := moody("deaf before prepare", deaf, refusedWith("executor_silent"))
	deafBefore.sample = false
	return []fault{
		moody("slow", slow, succeeds()), moody("everything twice", doubled, succeeds()), deafBefore,
		heldWhile("deaf while the answer comes, then cut", func(c *trial) {
			events.set(deaf)
			returned(c)
			events.set(well)
			events.drop()
		}),
		heldWhile("the answer cut half way", func(c *trial) { events.cut(name(c.i)); c.letGo() }),
		heldWhile("garbled, and the answer lost", func(c *trial) {
			events.set(deaf)
			returned(c)
			events.say([]byte("\xc1\xff\x00\x00garbage"))
			events.set(well)
		}),
		heldWhile("forged, foreign and different returns", func(c *trial) {
			starts := events.starts(name(c.i))
			jid := starts[len(starts)-1]
			forged := message.Answer{
				Protocol: message.Protocol, Kind: message.Start, Request: c.start.Request, Target: name(c.i),
				Nonce: strings.Repeat("ab", 16), Result: message.Fenced, Code: "never_started",
			}
			lie, _ := json.Marshal(forged)
			texts := []string{
				"odf1." + base64.RawURLEncoding.EncodeToString(lie) + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
				"oduflow: unavailable executor_failed", "'oduflow.start' is not available.", "", "odf1.",
			}
			for _, fun := range []string{"oduflow.prepare", "oduflow.evidence", "oduflow.start"} {
				for _, r := range events.returns(name(c.i), fun) { // answers to other questions, each with a MAC of its own
					texts = append(texts, r.text, strings.Replace(r.text, "A", "B", 1))
				}
			}
			for _, text := range texts {
				events.say(bustest.Return(events.framing, jid, name(c.i), "oduflow.start", text))
			}
			events.say(bustest.Return(events.framing, jid, name(c.i), "oduflow.start", map[string]any{}))
			<-time.After(2 * time.Second)
			if a := c.now(); a.Status != "running" {
				c.Errorf("after forged returns it is %s %q", a.Status, a.Code)
			}
			returned(c)
			own := events.returns(name(c.i), "oduflow.start")
			c.await()
			events.say(bustest.Return(events.framing, jid, name(c.i), "oduflow.start", own[len(own)-1].text)) // late, and again
			events.say(bustest.Return(events.framing, jid, name(c.i), "oduflow.start", texts[0]))
			<-time.After(time.Second)
		}),
	}
}

// masterFaults end salt-master between publish and return.
func masterFaults() []fault {
	ended := func(what string, stop func() error, between func(c *trial)) fault {
		return fault{
			step: "salt-master", what: what, alone: true, want: succeeds(),
			strike: func(c *trial) {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
				defer cancel()
				if err := salt.AwaitMinion(ctx, c.i); err != nil {
					c.Fatal(err)
				}
				c.holds()
				c.call()
				c.running()
				c.awaitStatus("running")
				if err := stop(); err != nil {
					c.Error(err)
				}
				between(c)
				if err := salt.StartMaster(ctx); err != nil {
					c.Fatal(err)
				}
				if err := salt.AwaitMinion(ctx, c.i); err != nil {
					c.Error(err)
				}
				c.letGo()
				c.await()
			},
		}
	}
	down := func(c *trial) { // the minion returns while there is no master
		c.letGo()
		c.until("the record to be finished", 30*time.Second, func() bool { return finished(c) })
	}
	killed := ended("killed, minion returns meanwhile", func() error { return salt.KillMaster() }, down)
	killed.sample = true
	return []fault{
		killed,
		ended("killed, minion returns later", func() error { return salt.KillMaster() }, func(*trial) {}),
		ended("restarted, minion returns later", func() error { return salt.StopMaster(context.Background()) }, func(*trial) {}),
	}
}

// finished says that the minion's own ledger has the outcome.
func finished(c *trial) bool {
	found, _ := filepath.Glob(filepath.Join(salt.MinionDir(c.i).State, "records", c.start.Request, "outcome*"))
	return len(found) > 0
}

// minionFaults are for the disk under the ledger.
func minionFaults() []fault {
	small := func(c *trial) string { // the ledger moves to a file system of its own
		state := salt.MinionDir(c.i).State
		kept := filepath.Join(c.dir, "ledger")
		run := func(words ...string) {
			if r, err := salt.Run(context.Background(), lab.Account(salt.Caller), words[0], words[1:]...); err != nil || r.Code != 0 {
				c.Fatalf("%v: %v %s", words, err, r.Stderr)
			}
		}
		run("/bin/cp", "-a", state, kept)
		run("/bin/mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "oduflow-faults", state)
		c.undo = append(c.undo, func() {
			run("/bin/cp", "-a", state+"/.", kept)
			run("/bin/umount", "-l", state)
			run("/bin/cp", "-a", kept+"/.", state)
		})
		run("/bin/cp", "-a", kept+"/.", state)
		return state
	}
	fill := func(c *trial, state string) {
		_ = os.WriteFile(filepath.Join(state, ".ballast"), make([]byte, 8<<20), 0o600) // as much as there is room for
		c.undo = append(c.undo, func() { _ = os.Remove(filepath.Join(state, ".ballast")) })
	}
	faults := []fault{
		{
			step: "ledger's disk", what: "full before prepare", sample: true, want: refusedWith("ledger_unwritable"),
			strike: func(c *trial) { fill(c, small(c)); c.call(); c.await() },
		},
		{
			step: "ledger's disk", what: "full between prepare and start", sample: true, want: succeeds(),
			strike: func(c *trial) {
				state := small(c)
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				fill(c, state)
				touch(c.T, mark+".go")
				c.await()
			},
		},
		{
			step: "ledger's disk", what: "read-only from prepare on, 100 s", slow: true, want: failsWith("never_started"),
			strike: func(c *trial) {
				state := small(c)
				remount := func(how string) {
					if r, err := salt.Run(context.Background(), salt.Caller, "/bin/mount", "-o", "remount,"+how, state); err != nil || r.Code != 0 {
						c.Errorf("remount: %v %s", err, r.Stderr)
					}
				}
				mark := c.plan("before", "claim", "wait")
				c.call()
				c.struck(mark)
				remount("ro")
				touch(c.T, mark+".go")
				c.after = func(c *trial) { c.sinceClaim(100 * time.Second); remount("rw") }
				c.until("the start to be published", 20*time.Second, func() bool { return len(events.starts(name(c.i))) > c.before })
			},
		},
	}
	if !canMount() {
		return nil
	}
	return faults
}

// canMount says whether file systems can be mounted here.
func canMount() bool {
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp(work, "mount-")
	if err != nil || syscall.Mount("oduflow-faults", dir, "tmpfs", 0, "size=64k") != nil {
		return false
	}
	return syscall.Unmount(dir, 0) == nil
}
