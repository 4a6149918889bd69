package store_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// The test program runs itself as a child that writes receipts until it is
// killed, and says on stdout what was acknowledged to it.
const (
	childPath  = "STORE_TEST_PATH"  // set: be the child, with this database
	childFirst = "STORE_TEST_FIRST" // the number of the first request
	childLimit = "STORE_TEST_LIMIT" // stop after so many, one after the other; 0: never, and several at once
)

const childWriters = 8

func becomeChild() {
	path := os.Getenv(childPath)
	if path == "" {
		return
	}
	first, err1 := strconv.Atoi(os.Getenv(childFirst))
	limit, err2 := strconv.Atoi(os.Getenv(childLimit))
	err := errors.Join(err1, err2)
	if err == nil {
		err = child(context.Background(), path, first, limit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(ctx context.Context, path string, first, limit int) error {
	db, err := store.Open(ctx, store.Config{Path: path, Now: func() time.Time { return receipttest.Epoch }, Random: rand.Reader})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	writers := childWriters
	if limit > 0 {
		writers = 1
	}
	for w := range writers {
		wg.Go(func() {
			for n := first + w; limit == 0 || n < first+limit; n += writers {
				if err := childStep(ctx, db, n); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(failed, db.Close())
}

// childStep binds a request and claims it, and says each on stdout in one
// write. What is told not_writable is asked again, as callers do.
func childStep(ctx context.Context, db *store.DB, n int) error {
	target := fmt.Sprintf("t%d", n)
	if err := untilWritten(func() error { return db.Adopt(ctx, receipttest.Target(target)) }); err != nil {
		return err
	}
	var b receipt.Bound
	if err := untilWritten(func() (err error) {
		b, err = storetest.Bind(ctx, db, receipttest.Binding(n, target, target), target)
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "BOUND %d\n", n)
	var r receipt.Receipt
	err := untilWritten(func() (err error) {
		r, err = db.Claim(ctx, b.Request, b.Execution.Seq, receipttest.Claim(target))
		return err
	})
	var done *store.LostRaceError
	if errors.As(err, &done) { // it was on disk, though told failed
		r, err = done.Current, nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "CLAIMED %d %s\n", n, r.JID)
	return nil
}

func untilWritten(fn func() error) (err error) {
	for range 100 {
		if err = fn(); problem.CodeOf(err) != problem.NotWritable {
			return err
		}
		fmt.Fprintln(os.Stdout, "FAILED 0")
	}
	return err
}

func childCommand(t *testing.T, path string, first, limit int, before ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(before, self)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childPath+"="+path, fmt.Sprintf("%s=%d", childFirst, first), fmt.Sprintf("%s=%d", childLimit, limit))
	cmd.Stderr = os.Stderr
	return cmd
}

// A writing process is killed again and again, each time after another number
// of answers. Every answer it gave is true afterwards.
func TestKilledProcessLosesNothingItAcknowledged(t *testing.T) { // A19
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	cfg := storetest.Config(t, storetest.NewClock())
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	said := newAnswers()
	for round := range rounds {
		cmd := childCommand(t, cfg.Path, 1+round*100_000, 0)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + (round*37)%113
		lines := bufio.NewScanner(out)
		for lines.Scan() { // to the end: what was written before the kill counts too
			said.take(t, lines.Text())
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // it was killed
		if left > 0 {
			t.Fatal("the child ended by itself")
		}
	}
	said.check(t, storetest.Open(t, cfg))
	t.Logf("%d kills, %d bound, %d claimed", rounds, len(said.bound), len(said.claimed))
}

// answers are what a child was told.
type answers struct {
	bound   map[int]bool
	claimed map[int]string // JID
	failed  int
}

func newAnswers() *answers { return &answers{bound: map[int]bool{}, claimed: map[int]string{}} }

func (a *answers) take(t *testing.T, line string) {
	t.Helper()
	fields := strings.Fields(line)
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	switch fields[0] {
	case "BOUND":
		a.bound[n] = true
	case "CLAIMED":
		a.claimed[n] = fields[2]
	case "FAILED":
		a.failed++
	}
}

// check wants every answer to be true.
func (a *answers) check(t *testing.T, db *store.DB) {
	t.Helper()
	for n := range a.bound {
		b, err := db.Lookup(t.Context(), receipttest.Request(n))
		if err != nil {
			t.Errorf("acknowledged, and lost: %v", err)
			continue
		}
		if jid, ok := a.claimed[n]; ok && (b.Execution.State != receipt.Dispatching || b.Execution.JID != jid) {
			t.Errorf("claimed with %s, and is %s with %q", jid, b.Execution.State, b.Execution.JID)
		}
	}
}

// Syncs fail again and again with an I/O error: each time somebody is told
// not_writable, and asks again; the database goes on, and all answers are true.
func TestFailingSyncs(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED BY NAME: strace isn't installed, so no sync was made to fail")
	}
	cfg := storetest.Config(t, storetest.NewClock())
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	const n = 15
	cmd := childCommand(t, cfg.Path, 1, n, strace, "-f", "-o", os.DevNull,
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=5+14")
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Skipf("SKIPPED BY NAME: strace may not trace here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	said := newAnswers()
	for line := range strings.Lines(string(out)) {
		said.take(t, line)
	}
	if said.failed == 0 || len(said.bound) != n || len(said.claimed) != n {
		t.Errorf("%d told failed, %d bound, %d claimed", said.failed, len(said.bound), len(said.claimed))
	}
	said.check(t, storetest.Open(t, cfg))
	t.Logf("%d told failed, %d bound, %d claimed", said.failed, len(said.bound), len(said.claimed))
}

// Issue 5: the sync of the claim (and of the binding) comes before the first
// byte that tells of it.
func TestSyncComesBeforeTheAnswer(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED BY NAME: strace isn't installed, so the order of sync and answer wasn't looked at")
	}
	cfg := storetest.Config(t, storetest.NewClock())
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := childCommand(t, cfg.Path, 1, 3, strace, "-f", "-y", "-s", "64", "-o", trace,
		"-e", "trace=pwrite64,write,writev,fsync,fdatasync,sync_file_range")
	out, err := cmd.Output()
	if err != nil {
		if strings.Contains(string(out), "BOUND") {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED BY NAME: strace may not trace here: %v", err)
	}
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := checkOrder(string(raw))
	if err != nil {
		t.Error(err)
	}
	if answers != 6 {
		t.Errorf("%d answers seen, not 6", answers)
	}
	t.Logf("%d answers, each after a sync of all that was written to the WAL", answers)
}

var (
	wroteWAL  = regexp.MustCompile(`^\d+\s+pwrite64\(\d+<[^>]*receipts\.db-wal>`)
	syncedWAL = regexp.MustCompile(`(?:^\d+\s+f(?:data)?sync\(\d+<[^>]*receipts\.db-wal>\)\s+= 0)`)
	answered  = regexp.MustCompile(`^\d+\s+write\(1<[^>]*>, "(?:BOUND|CLAIMED)`)
	resumed   = regexp.MustCompile(`^(\d+)\s+<\.\.\. f(?:data)?sync resumed>\)\s+= 0`)
	began     = regexp.MustCompile(`^(\d+)\s+f(?:data)?sync\(\d+<[^>]*receipts\.db-wal> <unfinished`)
)

// checkOrder reads the trace of one caller: each answer comes after a sync that
// is newer than the answer before it, and after which nothing was written.
func checkOrder(trace string) (answers int, err error) {
	synced, unsynced, syncing := false, false, map[string]bool{}
	for line := range strings.Lines(trace) {
		switch {
		case wroteWAL.MatchString(line):
			unsynced = true
		case syncedWAL.MatchString(line):
			synced, unsynced = true, false
		case began.MatchString(line):
			syncing[began.FindStringSubmatch(line)[1]] = true
		case resumed.MatchString(line):
			pid := resumed.FindStringSubmatch(line)[1]
			if syncing[pid] {
				delete(syncing, pid)
				synced, unsynced = true, false
			}
		case answered.MatchString(line):
			answers++
			if !synced || unsynced {
				return answers, fmt.Errorf("answered before the sync: %s", line)
			}
			synced = false
		}
	}
	return answers, nil
}
