//go:build salt

package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// A13, invariant 2: the claim is synced before the first byte of the start goes
// to the master. Seen from outside of masterd, in the order of its system calls.
func TestClaimIsSyncedBeforeTheStart(t *testing.T) {
	tracer, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace isn't installed")
	}
	var i int
	select {
	case i = <-scene.plain:
	default:
		t.Fatal("every minion is spent")
	}
	defer func() { scene.plain <- i }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	trace := filepath.Join(work, "marks", "trace")
	script := salt.BinPath("masterd")
	again := func(before string) {
		t.Helper()
		// To masterd itself: a tracer that is told to end may leave it behind.
		for _, p := range salt.Processes("masterd") {
			if strings.HasSuffix(p.Exe, "/real/masterd") {
				_ = syscall.Kill(p.PID, syscall.SIGTERM)
			}
		}
		err := errors.Join(salt.StopMasterd(ctx), os.Remove(script), writeMasterd(script, before))
		joined := events.rejoined(ctx, func() { err = errors.Join(err, salt.StartMasterd(ctx)) })
		if err != nil || joined != nil {
			t.Error(errors.Join(err, joined))
		}
	}
	again(tracer + " -f -q -y -s 262144 -e trace=write,writev,pwrite64,sendto,sendmsg,fdatasync,fsync -o " + trace)
	restore := sync.OnceFunc(func() { again("") })
	defer restore()

	dir := scratch(t)
	c := &trial{T: t, i: i, dir: dir, start: oduflow.Start{
		Request: oduflow.NewUUID(), Target: name(i), Instance: instance[i], Revision: 1,
		Source: strings.ReplaceAll(counted, "DIR", dir),
	}}
	c.begin(c.start)
	a := c.await()
	if a.Status != "succeeded" || len(lines(t, c.file("runs"))) != 1 {
		t.Fatalf("under strace: %s %q", a.Status, a.Code)
	}
	restore() // so that the trace is whole

	// In the write-ahead log the claim is where its JID is. The start goes to a
	// TCP socket and holds the same JID and the function's name.
	claim, synced, start := order(t, trace, a.JID)
	switch {
	case claim < 0 || start < 0:
		t.Fatalf("the claim's write is line %d of the trace and the start %d: one isn't there", claim, start)
	case synced < 0 || synced > start || claim > start:
		t.Fatalf("write of the claim: line %d, its sync: %d, first byte of the start: %d", claim, synced, start)
	}
	t.Logf("write of the claim: line %d, its sync: %d, first byte of the start: %d", claim, synced, start)
}

// call is a line of strace -f -y: pid, name, descriptor with what it is of.
var call = regexp.MustCompile(`^(\d+)\s+(\w+)\((\d+)<([^>]*)>`)

// order finds the first write of a JID to the log of the database, the first
// sync of that log that ended after it, and the first byte of the start that
// went to a socket; -1 for what isn't there.
func order(t *testing.T, trace, jid string) (claim, synced, start int) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	claim, synced, start = -1, -1, -1
	begun := map[string]bool{} // threads that are in a sync of the log that began after the claim
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 8<<20)
	for n := 1; scan.Scan(); n++ {
		line := scan.Text()
		if m := call.FindStringSubmatch(line); m != nil {
			pid, what, of := m[1], m[2], m[4]
			isSync := what == "fdatasync" || what == "fsync"
			isLog := strings.HasSuffix(of, "-wal")
			switch {
			case claim < 0 && isLog && !isSync && strings.Contains(line, jid):
				claim = n
			case claim >= 0 && synced < 0 && isLog && isSync && strings.HasSuffix(line, "= 0"):
				synced = n
			case isLog && isSync && strings.Contains(line, "unfinished"):
				begun[pid] = claim >= 0
			case start < 0 && strings.HasPrefix(of, "TCP") || strings.HasPrefix(of, "socket"):
				if start < 0 && strings.Contains(line, "oduflow.start") && strings.Contains(line, jid) {
					start = n
				}
			}
			continue
		}
		pid, rest, _ := strings.Cut(line, " ")
		if synced < 0 && begun[pid] && strings.Contains(rest, "sync resumed>") && strings.HasSuffix(line, "= 0") {
			synced = n
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(fmt.Errorf("the trace: %w", err))
	}
	return claim, synced, start
}
