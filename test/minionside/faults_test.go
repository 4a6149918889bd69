//go:build salt

package minionside

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/test/lab"
)

var faults = []string{"-tags", "faults"}

// plan writes what breaks the next executors; see internal/minion/faults_on.go.
func (m *saltMinion) plan(lines ...string) {
	m.t.Helper()
	must(m.t, os.WriteFile(filepath.Join(m.Facts.EtcDir, "fault"), []byte(strings.Join(lines, "\n")), 0o600))
}

// counting is a source whose effect is counted, and that then does something.
func (m *saltMinion) counting(then string) string {
	return fmt.Sprintf("a:\n  cmd.run: [{name: 'echo ran >> %[1]s/count; touch %[1]s/ours; %[2]s'}]\n", m.Root, then)
}

// fresh forgets what earlier requests counted.
func (m *saltMinion) fresh() {
	for _, name := range []string{"count", "ours", "go"} {
		_ = os.Remove(filepath.Join(m.Root, name))
	}
	m.plan()
}

// ran fails the test where the effect didn't happen so often.
func (m *saltMinion) ran(times int) {
	m.t.Helper()
	raw, _ := os.ReadFile(filepath.Join(m.Root, "count"))
	if n := bytes.Count(raw, []byte("\n")); n != times {
		m.t.Errorf("ran %d times, expected %d", n, times)
	}
}

func parent(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// executor finds the process of this minion's executor that runs a start.
func (m *saltMinion) executor() int {
	m.t.Helper()
	want := []byte(filepath.Join(m.Facts.LibDir, "minion-executor") + "\x00start\x00")
	entries, err := os.ReadDir("/proc")
	must(m.t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		if raw, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); bytes.Equal(raw, want) {
			return pid
		}
	}
	m.t.Fatal("no executor runs")
	return 0
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("pid %d", pid)
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// gone waits for the end of a process that isn't ours.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, time.Minute, "a process to end", func() bool { return !alive(pid) })
}

// alive tells a process from one that is dead and that nobody has waited for:
// not every init does so at once.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// killMinion kills the minion's daemon, with or without its jobs.
func (m *saltMinion) killMinion(jobs bool) {
	m.t.Helper()
	pid := m.minion.pid
	if pid <= 1 {
		m.t.Fatalf("pid %d", pid)
	}
	if jobs {
		pid = -pid
	}
	must(m.t, syscall.Kill(pid, syscall.SIGKILL))
	<-m.minion.ended
	// Salt takes a minion for one that runs as long as its pid is there, and the
	// processes that this one left are there until init has waited for them. On
	// this it may take minutes.
	stale, err := filepath.Glob(filepath.Join(m.Root, "pids", "*minion.pid"))
	must(m.t, err)
	for _, path := range stale {
		must(m.t, os.Remove(path))
	}
}

// eventually asks for evidence until it is what is expected.
func (p *publisher) eventually(request string, want message.Result) message.Answer {
	p.m.t.Helper()
	var a message.Answer
	ctx, cancel := context.WithTimeout(p.m.t.Context(), time.Minute)
	defer cancel()
	err := lab.Poll(ctx, func() (bool, error) {
		a = p.evidence(request)
		return a.Result == want, nil
	})
	if err != nil {
		p.m.t.Fatalf("answered %s %q, expected %s", a.Result, a.Code, want)
	}
	return a
}

// Issue 5, it must show: each process of the minion's side is killed at the
// moments that matter. The effect happens at most once, and what is said of it
// is true. A whole start replayed afterwards, under another JID, runs nothing.
func TestKilled(t *testing.T) {
	m := newMinion(t, "", faults...)
	m.daemons()
	p := m.newPublisher("15")
	marker := func() string { return filepath.Join(t.TempDir(), "struck") }
	replay := func(q miniontest.Question, result message.Result) {
		t.Helper()
		if a := m.Read(q, p.read(p.send(q))); a.Result != result {
			t.Errorf("replayed, it answers %s %q", a.Result, a.Code)
		}
	}

	t.Run("the job, before the effect", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		m.plan("after:convert:" + marker() + ":killparent")
		p.send(q)
		expect(t, p.eventually(request, message.NeverBegan), message.NeverBegan, problem.NeverBegan)
		replay(q, message.NeverBegan)
		m.ran(0)
	})
	t.Run("the job, during its effect", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("exec sleep 600"))
		q := m.AskStart(request, ticket, canonical)
		p.send(q)
		await(t, filepath.Join(m.Root, "ours"))
		kill(t, parent(m.executor()))
		settle := miniontest.Ask{Kind: message.Settle, Request: request, Digest: q.Message.Digest, Body: message.Body{Outcome: message.OutcomeFailed}}
		var a message.Answer
		until(t, 30*time.Second, "its sleep to be found", func() bool { // once the executor has seen it, too
			a = p.evidence(request)
			return a.Survivors > 0
		})
		expect(t, a, message.Running, "")
		expect(t, p.ask(settle), message.Running, "")
		expect(t, p.ask(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: q.Message.Digest}), message.Refused, problem.RecordUnfinished)
		replay(q, message.Running)
		killSurvivors(t, request)
		expect(t, p.evidence(request), message.Interrupted, "")
		replay(q, message.Interrupted)
		if a := p.ask(settle); a.Result != message.Settled || a.Outcome != message.OutcomeFailed {
			t.Errorf("settled: %+v", a)
		}
		replay(q, message.Settled)
		m.ran(1)
	})
	t.Run("the job, between its effect and its return", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		m.plan("after:run:" + marker() + ":killparent")
		p.send(q)
		expect(t, p.eventually(request, message.Finished), message.Finished, "", 1, 1, 0, 0)
		replay(q, message.Finished)
		m.ran(1)
	})
	t.Run("the executor, during the effect", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting(fmt.Sprintf("while test ! -e %s/go; do sleep 0.1; done", m.Root)))
		q := m.AskStart(request, ticket, canonical)
		returned := p.send(q)
		await(t, filepath.Join(m.Root, "ours"))
		kill(t, m.executor())
		expect(t, p.evidence(request), message.Running, "") // the Salt process goes on
		must(t, os.WriteFile(filepath.Join(m.Root, "go"), nil, 0o600))
		if text := p.read(returned); text != "oduflow: unavailable executor_failed" {
			t.Errorf("the start returned %q", text)
		}
		expect(t, p.eventually(request, message.Interrupted), message.Interrupted, "")
		replay(q, message.Interrupted)
		m.ran(1)
		p.ask(miniontest.Ask{Kind: message.Settle, Request: request, Digest: q.Message.Digest, Body: message.Body{Outcome: message.OutcomeSucceeded}})
	})
	t.Run("the executor, before it writes the result", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		m.plan("before:finished.write:" + marker())
		if text := p.read(p.send(q)); text != "oduflow: unavailable executor_failed" {
			t.Errorf("the start returned %q", text)
		}
		expect(t, p.evidence(request), message.Interrupted, "")
		replay(q, message.Interrupted)
		m.ran(1)
		p.ask(miniontest.Ask{Kind: message.Settle, Request: request, Digest: q.Message.Digest, Body: message.Body{Outcome: message.OutcomeSucceeded}})
	})
	t.Run("the plugin", func(t *testing.T) {
		m.fresh()
		plugin := filepath.Join(m.Facts.LibDir, "plugins/custom")
		request, ticket, canonical := p.prepared(m.counting("true"))
		must(t, os.Rename(plugin, plugin+".kept"))
		must(t, os.WriteFile(plugin, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755))
		m.Sign()
		q := m.AskStart(request, ticket, canonical)
		expect(t, m.Read(q, p.read(p.send(q))), message.Fenced, problem.StartRefusedPluginMismatch)
		must(t, os.Rename(plugin+".kept", plugin))
		m.Sign()
		replay(q, message.Fenced)
		m.ran(0)
	})
	t.Run("the minion, during the effect", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting(fmt.Sprintf("while test ! -e %s/go; do sleep 0.1; done", m.Root)))
		q := m.AskStart(request, ticket, canonical)
		p.send(q)
		await(t, filepath.Join(m.Root, "ours"))
		job := parent(m.executor())
		daemon := parent(job)
		if daemon != m.minion.pid {
			kill(t, daemon)
		}
		m.killMinion(false)
		// The job goes on by itself. Until it ends it keeps this Salt from being
		// started again.
		must(t, os.WriteFile(filepath.Join(m.Root, "go"), nil, 0o600))
		gone(t, job)
		m.startMinion()
		expect(t, p.eventually(request, message.Finished), message.Finished, "", 1, 1, 0, 0)
		replay(q, message.Finished)
		m.ran(1)
	})
	t.Run("the minion and its job", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting(fmt.Sprintf("while test ! -e %s/go; do sleep 0.1; done", m.Root)))
		q := m.AskStart(request, ticket, canonical)
		p.send(q)
		await(t, filepath.Join(m.Root, "ours"))
		m.killMinion(true)
		killSurvivors(t, request)
		m.startMinion()
		expect(t, p.eventually(request, message.Interrupted), message.Interrupted, "")
		replay(q, message.Interrupted)
		m.ran(1)
	})
}

// Issue 5: Salt queues a start on the minion's disk and runs it late, in a
// restarted minion, or under another JID: right outcome, never run twice.
func TestQueuedByTheMinion(t *testing.T) {
	m := newMinion(t, "process_count_max: 2\n", faults...)
	m.daemons()
	p := m.newPublisher("15")
	// queue fills the minion's two places, publishes a start, and waits until it
	// is on the minion's disk. free empties the places.
	queue := func(t *testing.T, q miniontest.Question) (file string, free func()) {
		t.Helper()
		gate := filepath.Join(t.TempDir(), "gate")
		for i := range 2 {
			p.publish("cmd.run", fmt.Sprintf("touch %[1]s%[2]d; while test ! -e %[1]s; do sleep 0.1; done", gate, i))
			await(t, fmt.Sprint(gate, i))
		}
		p.send(q)
		until(t, time.Minute, "the job to be on the minion's disk", func() bool {
			_ = filepath.WalkDir(filepath.Join(m.Root, "cache"), func(path string, d os.DirEntry, err error) error {
				if err == nil && strings.HasPrefix(d.Name(), "queued_") && strings.HasSuffix(d.Name(), ".p") {
					file = path
				}
				return nil
			})
			return file != ""
		})
		return file, func() { must(t, os.WriteFile(gate, nil, 0o600)) }
	}
	again := func(t *testing.T, q miniontest.Question, result message.Result) {
		t.Helper()
		if a := m.Read(q, p.read(p.send(q))); a.Result != result {
			t.Errorf("replayed, it answers %s %q", a.Result, a.Code)
		}
	}
	t.Run("under its JID", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		_, free := queue(t, q)
		m.ran(0)
		free()
		await(t, filepath.Join(m.Root, "ours"))
		expect(t, p.eventually(request, message.Finished), message.Finished, "", 1, 1, 0, 0)
		again(t, q, message.Finished)
		m.ran(1)
	})
	t.Run("and once more under another", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		file, free := queue(t, q)
		name := filepath.Base(file)
		jid := strings.TrimSuffix(name[strings.LastIndex(name, "_")+1:], ".p")
		other := jid[:14] + "999999"
		copied := exec.CommandContext(t.Context(), filepath.Join(m.venv, "bin/python"), "-c", `
import sys, salt.payload
src, dst, jid = sys.argv[1:]
job = salt.payload.loads(open(src, "rb").read())
job["jid"] = jid
open(dst, "wb").write(salt.payload.dumps(job))
`, file, strings.Replace(file, jid, other, 1), other)
		if out, err := copied.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		free()
		expect(t, p.eventually(request, message.Finished), message.Finished, "", 1, 1, 0, 0)
		again(t, q, message.Finished)
		m.ran(1)
	})
	t.Run("after its ticket", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		_, free := queue(t, q)
		m.plan("since_boot_add 130s")
		free()
		if a := p.evidence(request); a.Result != message.Fenced { // by whoever was first
			t.Errorf("answered %s %q", a.Result, a.Code)
		}
		again(t, q, message.Fenced)
		m.ran(0)
	})
	t.Run("by a minion that was restarted", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		_, free := queue(t, q)
		m.killMinion(true)
		free()
		m.startMinion()
		expect(t, p.eventually(request, message.Finished), message.Finished, "", 1, 1, 0, 0)
		again(t, q, message.Finished)
		m.ran(1)
	})
	t.Run("after a reboot", func(t *testing.T) {
		m.fresh()
		request, ticket, canonical := p.prepared(m.counting("true"))
		q := m.AskStart(request, ticket, canonical)
		_, free := queue(t, q)
		m.killMinion(true)
		free()
		m.plan("boot_id other")
		m.startMinion()
		expect(t, p.eventually(request, message.Lapsed), message.Lapsed, "")
		again(t, q, message.Lapsed)
		m.ran(0)
	})
}
