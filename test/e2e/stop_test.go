//go:build salt

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// Issue 5: SIGTERM leaves nothing half done. masterd is held at a named step,
// told to end, and let go: it finishes that step and ends by itself. A claimed
// start has gone out by then, so that nothing waits for its fence, and what
// wasn't claimed goes on after the next start.
func TestStopLeavesNothingHalfDone(t *testing.T) {
	good, faulty, _ := breakable(t)
	for _, point := range []string{"after:bind", "after:prepare", "before:claim", "after:claim", "before:finish"} {
		dir := scratch(t)
		s := request(t, plain, fmt.Sprintf("once:\n  cmd.run:\n    - name: echo run >> %s/runs\n", dir))
		stopAt(t, good, faulty, point, s)
		a := await(t, s.Request)
		if a.Status != "succeeded" {
			t.Errorf("%s: %s %q", point, a.Status, a.Code)
		}
		if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 1 {
			t.Errorf("%s: ran %d times", point, len(runs))
		}
	}
}

// stopAt holds a masterd at a step of a request, sends it SIGTERM, lets it go
// on, and starts it again once it has ended.
func stopAt(t *testing.T, path, faulty, point string, s oduflow.Start) {
	t.Helper()
	dir := scratch(t)
	plan, marker := filepath.Join(dir, "plan"), filepath.Join(dir, "held")
	write(t, plan, point+":"+marker+":wait\n")
	if err := salt.StopMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nODUFLOW_FAULTS=%s exec %s \"$@\"\n", plan, faulty)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := len(masterdLog(t))
	called, stopped := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := odoo.CustomStart(t.Context(), s)
		called <- err
	}()
	awaitFile(t, marker)
	began := time.Now()
	go func() { stopped <- salt.StopMasterd(t.Context()) }()
	awaitThat(t, "masterd to take the signal", func() bool { return strings.Contains(masterdLog(t)[said:], "masterd is stopping") })
	touch(t, marker+".go")
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 9*time.Second { // the lab kills after 10
		t.Errorf("%s: masterd didn't end by itself in %s", point, took)
	}
	if err := <-called; err != nil {
		t.Errorf("%s: a call under way wasn't answered: %v", point, err)
	}
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func masterdLog(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(salt.OutPath("masterd"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
