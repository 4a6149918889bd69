//go:build salt

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

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
			strike: func(c *trial) {
				killJob(c)
				c.looks = len(events.returns(name(c.i), evidence))
			},
			after: func(c *trial) {
				c.returned(evidence, 150*time.Second, c.looks) // the look at 30 s finds the survivor
				c.delivered()
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
				c.goesOut()
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
				c.startPublished()
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
			step: "salt-minion", what: "stopped across the start, until asked", sample: true, want: succeeds(),
			strike: stoppedAcross, after: func(c *trial) {
				c.published(evidence, 150*time.Second, c.looks) // the look at 30 s, which nobody answers
				c.resume()
			},
		},
		{
			step: "salt-minion", what: "stopped across the start, 140 s", sample: true, slow: true,
			want:   failsWith("start_refused_ticket", "never_started"), // whichever of the two asks first
			strike: stoppedAcross, after: func(c *trial) { c.lasts(140 * time.Second); c.resume() },
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
			// Most likely it never ran; but a disk that was put back looks the same.
			step: "machine", what: "rebooted between prepare and start", sample: true,
			want: ending{"uncertain", []string{"ledger_absent"}, 0, 1},
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
	c.looks = len(events.asked(name(c.i), evidence))
	touch(c.T, mark+".go")
	c.startPublished()
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
				gaps := events.gapCount()
				if err := stop(); err != nil {
					c.Error(err)
				}
				between(c)
				if err := salt.StartMaster(ctx); err != nil {
					c.Fatal(err)
				}
				c.heard("masterd joining the new master's", 60*time.Second, func() bool { return events.gaps > gaps && len(events.conns) > 0 })
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
