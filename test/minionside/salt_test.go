//go:build salt

// Package minionside drives the real shim, executor and plugin on a real Salt,
// masterless, as the only Salt process: no master, no masterd. The messages
// are sealed by the test. Run it with
//
//	ODUFLOW_SALT_VENV=/path/to/venv go test -tags salt ./test/minionside
package minionside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/test/lab"
)

func TestMain(m *testing.M) {
	code := m.Run()
	miniontest.RemoveBuilt()
	os.Exit(code)
}

// saltMinion is a kit with a Salt around it.
type saltMinion struct {
	*miniontest.Kit
	t    *testing.T
	venv string
	conf string

	minion *daemon // where there are daemons
}

// newMinion makes an adopted minion whose configuration holds extra lines.
func newMinion(t *testing.T, extra string, flags ...string) *saltMinion {
	t.Helper()
	venv := os.Getenv("ODUFLOW_SALT_VENV")
	if venv == "" {
		t.Skip("ODUFLOW_SALT_VENV names no Salt")
	}
	must(t, os.MkdirAll("/var/tmp/minionside", 0o755))
	root, err := os.MkdirTemp("/var/tmp/minionside", "m")
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"mlog", "log"} {
				raw, _ := os.ReadFile(filepath.Join(root, name))
				t.Logf("the end of %s:\n%s", name, raw[max(0, len(raw)-6000):])
			}
		}
		_ = os.RemoveAll(root)
	})
	m := &saltMinion{Kit: miniontest.New(t, root, flags...), t: t, venv: venv, conf: filepath.Join(root, "conf")}
	modules, err := filepath.Abs("../../salt/_modules")
	must(t, err)
	states, err := filepath.Abs("states")
	must(t, err)
	must(t, os.MkdirAll(m.conf, 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "srv/pillar"), 0o755))
	f := m.Facts
	must(t, os.WriteFile(filepath.Join(m.conf, "minion"), []byte(fmt.Sprintf(`
id: %s
root_dir: %s
pki_dir: %s
pidfile: %s/pids/minion.pid
cachedir: %s/cache
sock_dir: %s/sock
log_file: %s/log
log_level_logfile: debug
random_startup_delay: 0
random_reauth_delay: 1
acceptance_wait_time: 1
auth_timeout: 10
recon_default: 100
recon_max: 1000
recon_randomize: False
file_client: local
file_roots: {base: [%s/srv]}
pillar_roots: {base: [%s/srv/pillar]}
module_dirs: [%s]
states_dirs: [%s]
oduflow.state_dir: %s
oduflow.run_dir: %s
oduflow.lib_dir: %s
oduflow.etc_dir: %s
oduflow.allow_unprivileged: True
%s
`, m.ID, root, f.PKIDir, root, root, root, root, root, root, modules, states, f.StateDir, f.RunDir, f.LibDir, f.EtcDir, extra)), 0o600))
	a := m.ask(miniontest.Ask{Kind: message.Update, Request: miniontest.NewUUID(), Body: message.Body{Update: message.UpdateIdentity}})
	if a.Result != message.Updated {
		t.Fatalf("no identity: %+v", a)
	}
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *saltMinion) command(args ...string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	args = append([]string{"--local", "--config-dir", m.conf, "--out", "json", "--log-level", "quiet"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(m.venv, "bin/salt-call"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, cancel
}

// call runs salt-call and gives what the function returned.
func (m *saltMinion) call(args ...string) (json.RawMessage, error) {
	cmd, cancel := m.command(args...)
	defer cancel()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var returned struct {
		Local json.RawMessage `json:"local"`
	}
	if json.Unmarshal(out.Bytes(), &returned) != nil {
		return nil, fmt.Errorf("salt-call: %w: %s %s", err, out.String(), errs.String())
	}
	return returned.Local, nil
}

// text sends a question through Salt and gives the text that came back.
func (m *saltMinion) text(q miniontest.Question) string {
	m.t.Helper()
	raw, err := m.call("oduflow."+string(q.Message.Kind), q.Text)
	must(m.t, err)
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		m.t.Fatalf("returned something else than a text: %s", raw)
	}
	return text
}

func (m *saltMinion) ask(a miniontest.Ask) message.Answer {
	m.t.Helper()
	q := m.Seal(a)
	return m.Read(q, m.text(q))
}

// run prepares and starts a source.
func (m *saltMinion) run(source string) (request string, a message.Answer) {
	m.t.Helper()
	canonical, digest := m.Document(source)
	request = miniontest.NewUUID()
	a = m.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	if a.Result != message.Prepared {
		m.t.Fatalf("not prepared: %+v", a)
	}
	q := m.AskStart(request, a.Ticket, canonical)
	return request, m.Read(q, m.text(q))
}

func expect(t *testing.T, a message.Answer, result message.Result, code problem.Code, counts ...int) {
	t.Helper()
	if a.Result != result || a.Code != code {
		t.Errorf("answered %s %q, expected %s %q", a.Result, a.Code, result, code)
	}
	if len(counts) == 4 {
		want := message.Counts{Declared: counts[0], Passed: counts[1], Failed: counts[2], NotRun: counts[3]}
		if a.Counts == nil || *a.Counts != want {
			t.Errorf("counts are %+v, expected %+v", a.Counts, want)
		}
	}
}

// A14: three dotted states run in the order they were written.
func TestOrder(t *testing.T) {
	m := newMinion(t, "")
	order := filepath.Join(m.Root, "order")
	request, a := m.run(fmt.Sprintf(`
zz:
  oduflow_probe.append: [{name: %[1]s}, {text: zz}]
mm:
  oduflow_probe.append: [{name: %[1]s}, {text: mm}]
aa:
  oduflow_probe.append: [{name: %[1]s}, {text: aa}]
`, order))
	expect(t, a, message.Finished, "", 3, 3, 0, 0)
	raw, err := os.ReadFile(order)
	must(t, err)
	if string(raw) != "zz\nmm\naa\n" {
		t.Errorf("ran in the order %q", raw)
	}
	expect(t, m.ask(miniontest.Ask{Kind: message.Evidence, Request: request}), message.Finished, "", 3, 3, 0, 0)
}

// What salt-facts.md says about state.high: one case, one code.
func TestOutcomes(t *testing.T) {
	m := newMinion(t, "")
	for _, c := range []struct {
		name, source string
		code         problem.Code
		counts       []int
	}{
		{"failing", "a:\n  test.nop: []\nb:\n  test.fail_without_changes: []\nc:\n  test.nop: []\n", problem.StateFailed, []int{3, 2, 1, 0}},
		{"failhard", "a:\n  test.fail_without_changes: [{failhard: true}]\nb:\n  test.nop: []\nc:\n  test.nop: []\n", problem.StateFailed, []int{3, 0, 1, 2}},
		{"names", "a:\n  test.nop: [{names: [x, y, z]}]\n", "", []int{3, 3, 0, 0}},
		{"unknown function", "a:\n  nosuch.thing: []\n", problem.StateFailed, []int{1, 0, 1, 0}},
		{"exception in a state", "a:\n  oduflow_probe.raises: []\nb:\n  test.nop: []\n", problem.StateFailed, []int{2, 1, 1, 0}},
		{"an argument that is missing", "a:\n  oduflow_probe.append: []\n", problem.StateFailed, []int{1, 0, 1, 0}},
		{"onlyif false", "a:\n  test.fail_without_changes: [{onlyif: 'false'}]\n", "", []int{1, 1, 0, 0}},
		{"values", fmt.Sprintf(`
int: {oduflow_probe.same: [{name: %[1]s/v1}, {value: 9007199254740993}, {text: '9007199254740993'}]}
text: {oduflow_probe.same: [{name: %[1]s/v3}, {value: {b: 1, a: [true, null]}}, {text: "{'b': 1, 'a': [True, None]}"}]}
`, m.Root), "", []int{2, 2, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, a := m.run(c.source)
			expect(t, a, message.Finished, c.code, c.counts...)
		})
	}
	t.Run("a requisite to a missing ID", func(t *testing.T) {
		_, a := m.run("a:\n  test.nop: [{require: [{test: nosuch}]}]\n")
		if a.Result != message.Finished || a.Code == "" || a.Counts.Passed != 0 {
			t.Errorf("answered %+v", a)
		}
	})
}

// Right also with the options that reach into state.high.
func TestMinionConfiguration(t *testing.T) {
	m := newMinion(t, "state_queue: True\ntest: True\nstate_events: True\n")
	child := filepath.Join(m.Root, "child")
	request, a := m.run(fmt.Sprintf(`
options:
  oduflow_probe.options: []
child:
  oduflow_probe.environment: [{name: %s}]
`, child))
	expect(t, a, message.Finished, "", 2, 2, 0, 0)
	raw, err := os.ReadFile(child)
	must(t, err)
	if string(raw) != "ODUFLOW_REQUEST="+request {
		t.Errorf("a child process sees %q", raw)
	}
}

// Invariant 7: a hidden word, and the output of a state, are nowhere below the
// ledger and in no return.
func TestNothingLeaks(t *testing.T) {
	m := newMinion(t, "")
	canonical, digest := m.Document("secret-id-0815:\n  oduflow_probe.raises: []\nother:\n  cmd.run: [{name: echo secret-word-0815}]\n")
	request := miniontest.NewUUID()
	a := m.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	q := m.AskStart(request, a.Ticket, canonical)
	cmd, cancel := m.command("oduflow.start", q.Text)
	defer cancel()
	out, err := cmd.CombinedOutput()
	must(t, err) // the exit status says nothing either
	if bytes.Contains(out, []byte("secret")) {
		t.Errorf("returned %s", out)
	}
	must(t, filepath.WalkDir(m.Facts.StateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte("secret")) {
			t.Errorf("%s holds the word", path)
		}
		return err
	}))
	for name, args := range map[string][]string{
		"garbage": {"oduflow.start", "nonsense"}, "a number": {"oduflow.start", "12"}, "a list": {"oduflow.start", "[1, 2]"},
	} {
		raw, err := m.call(args...)
		if err != nil || string(raw) != `"oduflow: rejected message_unreadable"` {
			t.Errorf("%s: returned %s, %v", name, raw, err)
		}
	}
}

// A broken pillar is refused before anything runs.
func TestBrokenPillar(t *testing.T) {
	m := newMinion(t, "")
	pillar := filepath.Join(m.Root, "srv/pillar")
	must(t, os.WriteFile(filepath.Join(pillar, "top.sls"), []byte("base:\n  '*': [bad]\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(pillar, "bad.sls"), []byte("a: {{ nosuch() }}\n"), 0o600))
	_, digest := m.Document("a:\n  test.nop: []\n")
	a := m.ask(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest})
	expect(t, a, message.Refused, problem.PillarError)
}

// An operator's state run and ours exclude each other.
func TestExclusion(t *testing.T) {
	m := newMinion(t, "")
	canonical, digest := m.Document(fmt.Sprintf("a:\n  cmd.run: [{name: 'touch %[1]s/ours; while test ! -e %[1]s/go; do sleep 0.1; done'}]\n", m.Root))
	request := miniontest.NewUUID()
	a := m.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	expect(t, a, message.Prepared, "")

	theirs, cancel := m.command("state.single", "cmd.run", fmt.Sprintf("touch %[1]s/theirs; while test ! -e %[1]s/stop; do sleep 0.1; done", m.Root))
	defer cancel()
	must(t, theirs.Start())
	await(t, filepath.Join(m.Root, "theirs"))
	q := m.AskStart(request, a.Ticket, canonical)
	expect(t, m.Read(q, m.text(q)), message.Fenced, problem.StartRefusedStateRunning)
	refused := m.ask(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest})
	expect(t, refused, message.Refused, problem.StateRunning)
	must(t, os.WriteFile(filepath.Join(m.Root, "stop"), nil, 0o600))
	must(t, theirs.Wait())

	request = miniontest.NewUUID()
	a = m.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	q = m.AskStart(request, a.Ticket, canonical)
	done := make(chan string, 1)
	go func() {
		raw, _ := m.call("oduflow.start", q.Text)
		var text string
		_ = json.Unmarshal(raw, &text)
		done <- text
	}()
	await(t, filepath.Join(m.Root, "ours"))
	raw, err := m.call("state.single", "test.nop", "x")
	must(t, err)
	if !strings.Contains(string(raw), "is running as PID") {
		t.Errorf("an operator's state run beside ours returned %s", raw)
	}
	expect(t, m.ask(miniontest.Ask{Kind: message.Evidence, Request: request}), message.Running, "")
	other := m.ask(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest})
	expect(t, other, message.Refused, problem.RecordUnfinished)
	if other.Unfinished != request {
		t.Errorf("blocked by %q", other.Unfinished)
	}
	must(t, os.WriteFile(filepath.Join(m.Root, "go"), nil, 0o600))
	expect(t, m.Read(q, <-done), message.Finished, "", 1, 1, 0, 0)
}

// The Salt job process is killed during its effect: what it left running is
// found, and then the record is interrupted for good.
func TestKilledJob(t *testing.T) {
	m := newMinion(t, "")
	canonical, digest := m.Document(fmt.Sprintf("a:\n  cmd.run: [{name: 'touch %[1]s/ours; exec sleep 600'}]\n", m.Root))
	request := miniontest.NewUUID()
	a := m.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	q := m.AskStart(request, a.Ticket, canonical)
	cmd, cancel := m.command("oduflow.start", q.Text)
	defer cancel()
	must(t, cmd.Start())
	await(t, filepath.Join(m.Root, "ours"))
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	found := m.ask(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
	expect(t, found, message.Running, "")
	if found.Survivors < 1 {
		t.Error("no survivor was found")
	}
	killSurvivors(t, request)
	expect(t, m.ask(miniontest.Ask{Kind: message.Evidence, Request: request}), message.Interrupted, "")
	refused := m.ask(miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest})
	expect(t, refused, message.Refused, problem.RecordUnfinished)
}

func await(t *testing.T, path string) {
	t.Helper()
	until(t, time.Minute, path, func() bool { _, err := os.Stat(path); return err == nil })
}

// until waits for what a real process does.
func until(t *testing.T, limit time.Duration, what string, true func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := lab.Poll(ctx, func() (bool, error) { return true(), nil }); err != nil {
		t.Fatalf("waited in vain for %s", what)
	}
}

// killSurvivors ends what carries this test's own request.
func killSurvivors(t *testing.T, request string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid <= 1 {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(environ, []byte("ODUFLOW_REQUEST="+request+"\x00")) {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	until(t, 20*time.Second, "the end of survivors", func() bool {
		return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
			return bytes.Contains(environ, []byte("ODUFLOW_REQUEST="+request+"\x00"))
		})
	})
}
