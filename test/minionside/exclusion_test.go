//go:build salt

package minionside

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// burn keeps every CPU busy until the test ends.
func burn(t *testing.T, processes int) {
	t.Helper()
	for range processes {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "while :; do :; done")
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
}

// rounds is how often the race is run: ODUFLOW_ROUNDS, else enough for CI.
func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("ODUFLOW_ROUNDS"))
	if err != nil || n < 1 {
		return 18
	}
	return n
}

// Issue 5: an operator's state run and ours exclude each other in both
// directions on a loaded minion too, where the minion writes its jobs' files
// late. In each round both are published, in either order and at once.
func TestExclusionUnderLoad(t *testing.T) {
	m := newMinion(t, "")
	m.daemons()
	p := m.newPublisher("30")
	dir := func(name string) string { return filepath.Join(m.Root, name) }
	// What either does: it notes whether the other one is at it, and goes on for
	// as long as it is held.
	effect := func(who string) string {
		return fmt.Sprintf("mkdir %[1]s/busy || touch %[1]s/overlap; echo x >> %[1]s/%[2]s; sleep 0.4; "+
			"while test -e %[1]s/hold-%[2]s; do sleep 0.1; done; rmdir %[1]s/busy; true", m.Root, who)
	}
	hold := func(who string) (letGo func()) {
		must(t, os.WriteFile(dir("hold-"+who), nil, 0o600))
		return func() { must(t, os.Remove(dir("hold-"+who))) }
	}
	count := func(name string) int {
		raw, _ := os.ReadFile(dir(name))
		return bytes.Count(raw, []byte("\n"))
	}
	source := fmt.Sprintf("a:\n  cmd.run: [{name: '%s'}]\n", effect("ours"))
	burn(t, 4)
	tally := map[string]int{}
	began := time.Now()
	for round := range rounds(t) {
		request, ticket, canonical := p.prepared(source)
		q := m.AskStart(request, ticket, canonical)
		oursBefore, theirsBefore := count("ours"), count("theirs")
		operator := func() <-chan []byte {
			out := make(chan []byte, 1)
			returned := p.publish("state.single", "cmd.run", "name="+effect("theirs"), "queue=False")
			go func() { out <- <-returned }()
			return out
		}
		var ours string
		var theirs []byte
		switch round % 3 {
		case 0: // ours first
			letGo := hold("ours")
			returned := p.send(q)
			awaitCount(t, dir("ours"), oursBefore+1)
			theirs = <-operator()
			letGo()
			ours = p.read(returned)
		case 1: // theirs first
			letGo := hold("theirs")
			op := operator()
			awaitCount(t, dir("theirs"), theirsBefore+1)
			ours = p.read(p.send(q))
			letGo()
			theirs = <-op
		default: // at once, or as soon as the minion has theirs
			jobs := m.jobs()
			op := operator()
			if round%2 == 0 {
				until(t, time.Minute, "the operator's job", func() bool { return m.jobs() != jobs || count("theirs") > theirsBefore })
			}
			ours, theirs = p.read(p.send(q)), <-op
		}
		a := m.Read(q, ours)
		weRan, theyRan := count("ours")-oursBefore, count("theirs")-theirsBefore
		theyWereRefused := strings.Contains(string(theirs), "is running as PID")
		switch {
		case a.Result == message.Finished && a.Code == "" && weRan == 1:
			tally["ours ran"]++
		case a.Code == problem.StartRefusedStateRunning && weRan == 0:
			tally["ours refused"]++
		default:
			t.Errorf("round %d: we ran %d times and answered %s %q", round, weRan, a.Result, a.Code)
		}
		if round%3 == 0 && weRan != 1 || round%3 == 1 && weRan != 0 {
			t.Errorf("round %d: we ran %d times", round, weRan)
		}
		if theyWereRefused == (theyRan == 1) || theyRan > 1 {
			t.Errorf("round %d: they ran %d times, and were told %s", round, theyRan, theirs)
		}
		if theyWereRefused {
			tally["theirs refused"]++
		}
		if _, err := os.Stat(dir("overlap")); err == nil {
			t.Fatalf("round %d: both ran at once", round)
		}
		if e := p.evidence(request); e.Result != a.Result || e.Code != a.Code {
			t.Errorf("round %d: evidence says %s %q after %s %q", round, e.Result, e.Code, a.Result, a.Code)
		}
	}
	t.Logf("%d rounds in %s: %v", rounds(t), time.Since(began).Round(time.Second), tally)
	if tally["ours refused"] == 0 || tally["theirs refused"] == 0 || tally["ours ran"] == 0 {
		t.Errorf("one direction was never seen: %v", tally)
	}
	left, err := filepath.Glob(dir("cache/proc/oduflow-*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("marks are left behind: %v", left)
	}
}

func awaitCount(t *testing.T, path string, n int) {
	t.Helper()
	until(t, time.Minute, path+" to grow", func() bool {
		raw, _ := os.ReadFile(path)
		return bytes.Count(raw, []byte("\n")) >= n
	})
}

// jobs names the files that the minion keeps of its running jobs.
func (m *saltMinion) jobs() string {
	found, err := filepath.Glob(filepath.Join(m.Root, "cache/proc/2*"))
	must(m.t, err)
	return strings.Join(found, " ")
}
