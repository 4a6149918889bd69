//go:build salt

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// awaitFile waits until a file is there, by looking at its folder again and
// again under a deadline.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	awaitThat(t, path, func() bool { _, err := os.Stat(path); return err == nil })
}

func awaitThat(t *testing.T, what string, true func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !true() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
}

// held is a state that says that it began, counts its runs and waits to be let go.
const held = `
counts:
  cmd.run:
    - name: echo run >> %[1]s/runs
holds:
  cmd.run:
    - name: while [ ! -e %[1]s/go ]; do sleep 0.1; done
`

// A10, A19: 50 callers with one UUID are one receipt, one start, one run.
func TestFiftyCallersOneRun(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, strings.ReplaceAll(held, "%[1]s", dir))
	before := published(t, "oduflow.start")
	var mu sync.Mutex
	jids := map[string]bool{}
	together(50, func(i int) {
		mine := s
		if i%2 == 1 {
			mine.Request = strings.ToUpper(s.Request) // the same request
		}
		a, err := odoo.CustomStart(t.Context(), mine)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("caller %d: %v", i, err)
			return
		}
		if a.Request != s.Request || a.Execution != s.Request || a.Reused {
			t.Errorf("caller %d got request %s, execution %s, reused %v", i, a.Request, a.Execution, a.Reused)
		}
		jids[a.JID] = true
	})
	awaitFile(t, filepath.Join(dir, "runs"))
	touch(t, filepath.Join(dir, "go"))
	want(t, await(t, s.Request), "succeeded", "")
	delete(jids, "")
	if len(jids) > 1 {
		t.Errorf("%d JIDs: %v", len(jids), jids)
	}
	if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 1 {
		t.Errorf("ran %d times", len(runs))
	}
	if n := published(t, "oduflow.start") - before; n != 1 {
		t.Errorf("%d starts were published", n)
	}
	// A19: and once more, long after.
	a := begin(t, s)
	want(t, a, "succeeded", "")
	if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 1 {
		t.Errorf("ran %d times", len(runs))
	}
}

// A9, A10: what one UUID stands for never changes; a second UUID for the running
// digest is bound to the same execution; what has succeeded is reused.
func TestOneUUIDOneBody(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, strings.ReplaceAll(held, "%[1]s", dir))
	begin(t, s)

	other := s
	other.Source += "more:\n  test.nop: []\n"
	_, err := odoo.CustomStart(t.Context(), other)
	if r := refusal(t, err); r.Status != 409 || r.Code != "request_conflict" {
		t.Errorf("another body: %v", r)
	}

	second := s
	second.Request = oduflow.NewUUID()
	second.Source = "# the same states, with a comment\n" + s.Source
	a := begin(t, second)
	if !a.Reused || a.Execution != s.Request || a.Request != second.Request {
		t.Errorf("second UUID while it runs: %+v", a)
	}
	touch(t, filepath.Join(dir, "go"))
	want(t, await(t, second.Request), "succeeded", "")

	third := s
	third.Request = oduflow.NewUUID()
	a = begin(t, third)
	want(t, a, "succeeded", "")
	if !a.Reused || a.Execution != s.Request {
		t.Errorf("after the success: %+v", a)
	}
	if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 1 {
		t.Fatalf("ran %d times", len(runs))
	}

	// A11: Apply Again asks for another execution.
	again := s
	again.Request, again.Again = oduflow.NewUUID(), true
	a = apply(t, again)
	want(t, a, "succeeded", "")
	if a.Reused || a.Execution != again.Request {
		t.Errorf("again: %+v", a)
	}
	if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 2 {
		t.Errorf("ran %d times", len(runs))
	}
}

// A12: after a failure a new attempt names it.
func TestPreviousAfterAFailure(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, fmt.Sprintf("needs a file:\n  file.exists:\n    - name: %s/fixed\n", dir))
	first := apply(t, s)
	want(t, first, "failed", "state_failed")

	next := s
	next.Request = oduflow.NewUUID()
	_, err := odoo.CustomStart(t.Context(), next)
	r := refusal(t, err)
	if r.Status != 409 || r.Code != "previous_required" || !strings.Contains(r.Message+r.Hint, s.Request) {
		t.Fatalf("without previous: %v %s", r, r.Hint)
	}
	// The old receipt stays as it was.
	if a := await(t, s.Request); a.Status != "failed" || a.FinishedAt != first.FinishedAt {
		t.Errorf("the old receipt became %+v", a)
	}
	touch(t, filepath.Join(dir, "fixed"))
	next.Previous = s.Request
	want(t, apply(t, next), "succeeded", "")

	wrong := s
	wrong.Request, wrong.Previous, wrong.Again = oduflow.NewUUID(), next.Request, true
	_, err = odoo.CustomStart(t.Context(), wrong)
	if r := refusal(t, err); r.Code != "previous_not_failed" {
		t.Errorf("previous that succeeded: %v", r)
	}
}

// A15, A16: two different states for one target: the second waits; what can't
// wait longer is refused and names what blocks.
func TestTheSecondWaitsItsTurn(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, strings.ReplaceAll(held, "%[1]s", dir))
	begin(t, s)
	awaitFile(t, filepath.Join(dir, "runs"))
	second := request(t, plain, ordered)
	if a := begin(t, second); a.Status != "queued" {
		t.Errorf("the second is %s at first", a.Status)
	}
	touch(t, filepath.Join(dir, "go"))
	want(t, await(t, s.Request), "succeeded", "")
	want(t, await(t, second.Request), "succeeded", "")
}

// A15, A16: at most 60 s.
func TestBusyAfterSixtySeconds(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	s := request(t, peculiar, strings.ReplaceAll(held, "%[1]s", dir))
	begin(t, s)
	awaitFile(t, filepath.Join(dir, "runs"))
	second := request(t, peculiar, ordered)
	begin(t, second)
	a := await(t, second.Request)
	want(t, a, "failed", "target_busy")
	wantPreflight(t, a, 0)
	if a.BlockedBy == nil || a.BlockedBy.Request != s.Request || a.BlockedBy.Profile != "custom" {
		t.Errorf("blocked by %+v", a.BlockedBy)
	}
	if waited := since(t, a.AcceptedAt, a.FinishedAt); waited < 59*time.Second || waited > 70*time.Second {
		t.Errorf("waited %s by its own times", waited)
	}
	touch(t, filepath.Join(dir, "go"))
	want(t, await(t, s.Request), "succeeded", "")
	if got := order(t, second); len(got) > 0 {
		t.Errorf("the refused one ran %v", got)
	}
}

func since(t *testing.T, from, to string) time.Duration {
	t.Helper()
	a, err1 := time.Parse(time.RFC3339Nano, from)
	b, err2 := time.Parse(time.RFC3339Nano, to)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return b.Sub(a)
}
