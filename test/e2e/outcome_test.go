//go:build salt

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

const ordered = `
zz first:
  cmd.run:
    - name: echo zz >> %[1]s/order
mm second:
  cmd.run:
    - name: echo mm >> %[1]s/order
aa third:
  cmd.run:
    - name: echo aa >> %[1]s/order
`

// order gives what the states of `ordered` wrote.
func order(t *testing.T, s oduflow.Start) []string {
	t.Helper()
	path := s.Source[strings.Index(s.Source, ">> ")+3:]
	return lines(t, path[:strings.IndexByte(path, '\n')])
}

// A4, A14: dotted declarations run, in the order in which they were written.
func TestThreeStatesRunInTheirOrder(t *testing.T) {
	s := request(t, plain, ordered)
	a := apply(t, s)
	want(t, a, "succeeded", "")
	wantCounts(t, a, 3, 3, 0, 0)
	if got := order(t, s); !slices.Equal(got, []string{"zz", "mm", "aa"}) {
		t.Errorf("ran in the order %v", got)
	}
	if a.Preflight.Passed != 1 || a.Preflight.Total != 1 || len(a.JID) != 20 || a.Revision != 1 || len(a.Digest) != 64 || a.FinishedAt == "" {
		t.Errorf("answer %+v", a)
	}
}

// A14: right also where the minion's own configuration reaches into state runs.
func TestPeculiarMinionConfiguration(t *testing.T) {
	s := request(t, peculiar, ordered)
	a := apply(t, s)
	want(t, a, "succeeded", "")
	wantCounts(t, a, 3, 3, 0, 0)
	if got := order(t, s); !slices.Equal(got, []string{"zz", "mm", "aa"}) {
		t.Errorf("ran %v: state_queue or test reached our run", got)
	}
}

// A7, A13: failing states are counted, and only counted.
func TestOutcomes(t *testing.T) {
	cases := map[string]struct {
		source                           string
		status, code                     string
		declared, passed, failed, notRun int
	}{
		"a failing state": {`
fine:
  test.succeed_without_changes: []
breaks:
  test.fail_without_changes: []
fine too:
  test.succeed_with_changes: []
`, "failed", "state_failed", 3, 2, 1, 0},
		"after a failhard": {`
fine:
  test.succeed_without_changes: []
breaks:
  test.fail_without_changes:
    - failhard: true
never reached:
  test.succeed_without_changes: []
nor this:
  test.succeed_without_changes: []
`, "failed", "state_failed", 4, 1, 1, 2},
		"names one by one": {`
several:
  test.succeed_without_changes:
    - names:
      - one
      - two
      - three
`, "succeeded", "", 3, 3, 0, 0},
		"an unknown function": {`
nothing:
  nosuchmodule.nosuchfunction: []
`, "failed", "state_failed", 1, 0, 1, 0},
		"a requisite that fails": {`
breaks:
  test.fail_without_changes: []
needs it:
  test.succeed_without_changes:
    - require:
      - test: breaks
`, "failed", "state_failed", 2, 0, 2, 0},
		"an onlyif that is false": {`
skipped:
  cmd.run:
    - name: "false"
    - onlyif: "false"
`, "succeeded", "", 1, 1, 0, 0},
		"a listen": {`
changes:
  test.succeed_with_changes: []
hears:
  test.succeed_without_changes:
    - listen:
      - test: changes
`, "succeeded", "", 2, 2, 0, 0},
	}
	for label, c := range cases {
		t.Run(label, func(t *testing.T) {
			// The comment makes no difference to the digest, the ID does.
			a := apply(t, request(t, plain, c.source+"own "+label+":\n  test.nop: []\n"))
			want(t, a, c.status, c.code)
			c.declared++
			if c.notRun > 0 {
				c.notRun++
			} else {
				c.passed++
			}
			wantCounts(t, a, c.declared, c.passed, c.failed, c.notRun)
		})
	}
}

// A broken requisite is a list of strings on 3008 and a failed result on 3006:
// failed on both, never a success.
func TestBrokenRequisite(t *testing.T) {
	a := apply(t, request(t, plain, `
needs what isn't there:
  test.succeed_without_changes:
    - require:
      - file: no such id
`))
	if a.Status != "failed" || (a.Code != "state_failed" && a.Code != "bad_return") {
		t.Fatalf("%s %s", a.Status, a.Code)
	}
	if a.Counts.Passed != 0 {
		t.Errorf("%d passed", a.Counts.Passed)
	}
}

// fakeState stands in for Salt's own state module on one minion: its high gives
// what a file says, so that the answers which real Salt gives only in odd
// corners can be shown at will.
const fakeState = `
def high(data, test=None, queue=None, **kwargs):
    with open(%q) as f:
        return eval(f.read(), {})
`

// salt-facts "state.high": whatever isn't a map that accounts for each declared
// state is a failure with a code.
func TestReturnsThatAreNoSuccess(t *testing.T) {
	set := func(text string) {
		if err := os.WriteFile(filepath.Join(fakes, "answer"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct{ answer, code string }{
		"an empty map":  {`{}`, "bad_return"},
		"a list":        {`["No matching sls found", "x"]`, "bad_return"},
		"a string":      {`"Traceback (most recent call last): ..."`, "bad_return"},
		"a traceback":   {`1/0`, "bad_return"},
		"nothing":       {`None`, "bad_return"},
		"queued":        {`{"result": True, "comment": "Job queued for execution", "queued": True}`, "bad_return"},
		"a test run":    {`{"test_|-a_|-a_|-nop": {"result": None, "comment": "", "changes": {}, "name": "a", "__id__": "a", "__run_num__": 0}}`, "state_failed"},
		"another state": {`{"test_|-b_|-b_|-nop": {"result": True, "comment": "", "changes": {}, "name": "b", "__id__": "b", "__run_num__": 0}}`, "not_all_accounted"},
		"an extra failure": {`{"test_|-a_|-a_|-nop": {"result": True, "comment": "", "changes": {}, "name": "a", "__id__": "a", "__run_num__": 0},` +
			`"test_|-listen_a_|-a_|-mod_watch": {"result": False, "comment": "", "changes": {}, "name": "a", "__id__": "a", "__run_num__": 1}}`, "state_failed"},
	}
	for label, c := range cases {
		t.Run(label, func(t *testing.T) {
			set(c.answer)
			s := request(t, faked, "a:\n  test.nop:\n    - note: "+label+"\n")
			a := apply(t, s)
			want(t, a, "failed", c.code)
			if sum := a.Counts.Passed + a.Counts.Failed + a.Counts.NotRun; a.Counts.Declared != 1 || sum != 1 {
				t.Errorf("counts %+v", a.Counts)
			}
		})
	}
}

// A16, salt-facts "Pillar": a broken pillar is refused before anything runs.
func TestBrokenPillar(t *testing.T) {
	path := filepath.Join(salt.PillarDir(), "top.sls")
	before, readErr := os.ReadFile(path)
	if err := os.WriteFile(path, []byte("base:\n  'minion-1':\n    - broken\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(salt.PillarDir(), "broken.sls")
	if err := os.WriteFile(broken, []byte("a: {{ nosuch() }}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refresh := func() {
		_, _ = salt.Salt(t.Context(), name(plain), "saltutil.refresh_pillar", "wait=True")
	}
	restore := func() {
		if readErr == nil {
			_ = os.WriteFile(path, before, 0o644)
		} else {
			_ = os.Remove(path)
		}
		_ = os.Remove(broken)
		refresh()
	}
	defer restore()
	refresh()
	s := request(t, plain, ordered)
	a := apply(t, s)
	want(t, a, "failed", "pillar_error")
	wantPreflight(t, a, 0)
	wantCounts(t, a, 3, 0, 0, 3)
	if got := order(t, s); len(got) > 0 {
		t.Errorf("ran %v", got)
	}
	restore()
	s.Previous, s.Request = a.Request, oduflow.NewUUID()
	want(t, apply(t, s), "succeeded", "")
}

func wantPreflight(t *testing.T, a oduflow.Answer, passed int) {
	t.Helper()
	if a.Preflight.Passed != passed || a.Preflight.Total != 1 {
		t.Errorf("preflight %d of %d, want %d of 1", a.Preflight.Passed, a.Preflight.Total, passed)
	}
	if passed == 0 && a.JID != "" {
		t.Errorf("refused, but it has JID %s", a.JID)
	}
}

// A16: an operator's own state run is active; nobody waits for it.
func TestAnotherStateRun(t *testing.T) {
	dir := scratch(t)
	sls := filepath.Join(salt.RootsDir(), "slow.sls")
	if err := os.WriteFile(sls, []byte("slow:\n  cmd.run:\n    - name: touch "+dir+"/began; while [ ! -e "+dir+"/go ]; do sleep 0.1; done\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(sls) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = salt.Salt(t.Context(), name(plain), "state.apply", "slow")
	}()
	awaitFile(t, filepath.Join(dir, "began"))
	a := apply(t, request(t, plain, ordered))
	touch(t, filepath.Join(dir, "go"))
	<-done
	want(t, a, "failed", "state_running")
	wantPreflight(t, a, 0)
}
