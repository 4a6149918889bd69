//go:build salt

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// A19, A21: masterd is killed with SIGKILL at a named step, then started again.
// The run happens at most once, and the receipt ends right.
func TestMasterdKilled(t *testing.T) {
	good, faulty, restore := breakable(t)
	cases := []struct {
		point, status, code string
		runs                int
	}{
		// Killed after the claim and before the start: it was never sent, and
		// the minion's ledger says so once the ticket is dead. This one takes
		// 130 s; other tests pass meanwhile, on other minions.
		{"after:claim", "failed", "never_started", 0},
		{"before:prepare", "succeeded", "", 1},
		{"before:claim", "succeeded", "", 1},
		{"after:start", "succeeded", "", 1},
		{"after:acknowledge", "succeeded", "", 1},
		{"before:finish", "succeeded", "", 1},
		{"after:finish", "succeeded", "", 1},
		{"after:bind", "succeeded", "", 1},
	}
	targets := []int{spare, plain, plain, plain, plain, plain, plain, plain}
	ends := make([]func(), 0, len(cases))
	for i, c := range cases {
		dir := scratch(t)
		s := request(t, targets[i], fmt.Sprintf("once:\n  cmd.run:\n    - name: echo run >> %s/runs\n", dir))
		killAt(t, good, faulty, c.point, s)
		ends = append(ends, func() {
			a := await(t, s.Request)
			if a.Status != c.status || a.Code != c.code {
				t.Errorf("%s: %s %q, want %s %q", c.point, a.Status, a.Code, c.status, c.code)
			}
			if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != c.runs {
				t.Errorf("%s: ran %d times, want %d", c.point, len(runs), c.runs)
			}
		})
		if i > 0 {
			ends[i]()
		}
	}
	restore()
	t.Parallel()
	ends[0]()
}

// breakable builds a masterd that a test can break or hold. It is put in the
// place of good's file; restore brings the good one back and starts it.
func breakable(t *testing.T) (good, faulty string, restore func()) {
	t.Helper()
	faulty = filepath.Join(scratch(t), "masterd")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "faults", "-o", faulty, "./masterd")
	build.Dir = salt.Repo
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	good = salt.BinPath("masterd")
	away := good + ".good"
	if err := os.Rename(good, away); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = salt.StopMasterd(ctx)
		_ = os.Remove(good)
		if err := os.Rename(away, good); err != nil {
			t.Error(err)
		}
		if err := salt.StartMasterd(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return good, faulty, restore
}

// killAt starts a masterd that kills itself at a point, lets it take a request,
// waits until it is dead, and starts it again.
func killAt(t *testing.T, path, faulty, point string, s oduflow.Start) {
	t.Helper()
	marker := filepath.Join(scratch(t), "killed")
	if err := salt.StopMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nODUFLOW_FAULT=%s:%s exec %s \"$@\"\n", point, marker, faulty)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := odoo.CustomStart(t.Context(), s) // its answer may be lost
	awaitFile(t, marker)
	awaitThat(t, "masterd to be gone", func() bool { return len(salt.Processes("masterd")) == 0 })
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err != nil { // the caller repeats its UUID, as it must
		begin(t, s)
	}
}
