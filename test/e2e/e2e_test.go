//go:build salt

// Package e2e proves the main job on real Salt. One lab serves all its tests;
// ODUFLOW_SALT names the Salt line (3006 unless given). Each test makes states
// of its own, so that no digest is shared by accident.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// The minions, each with a purpose of its own.
const (
	plain    = 1 // nothing special
	peculiar = 2 // state_queue, test and state_events are True in its configuration
	victim   = 3 // for tests that stop it, change its key, or take its executors away
	forger   = 4 // plays the hostile minion
	faked    = 5 // its state.high answers what a file says
	spare    = 6 // waits for its fence while other tests run
)

const minions = 6

var (
	salt     *lab.Lab
	odoo     *oduflow.Client
	token    string
	fakes    string // folder of the faked minion's state module
	instance = map[int]string{}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	line := os.Getenv("ODUFLOW_SALT")
	if line == "" {
		line = "3006"
	}
	var err error
	if fakes, err = layFakes(); err != nil {
		fmt.Println("e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(fakes) }()
	salt, err = lab.Up(ctx, lab.Options{
		Salt: line, Minions: minions, Log: os.Stdout,
		PerMinion: map[string]map[string]any{
			name(peculiar): {"state_queue": true, "test": true, "state_events": true},
			name(faked):    {"module_dirs": []string{fakes}},
		},
	})
	if err != nil {
		fmt.Println("e2e:", err)
		return 1
	}
	defer func() {
		if err := salt.Down(); err != nil {
			fmt.Println("e2e:", err)
			code = 1
		}
	}()
	if err := prepareLab(ctx); err != nil {
		fmt.Println("e2e:", err)
		return 1
	}
	return m.Run()
}

func prepareLab(ctx context.Context) (err error) {
	for i := 1; i <= minions; i++ {
		instance[i] = oduflow.NewUUID()
		if err := salt.Adopt(ctx, i, instance[i]); err != nil {
			return err
		}
	}
	if token, err = salt.Token(ctx, "custom", "e2e"); err != nil {
		return err
	}
	odoo, err = oduflow.OverTLS(salt.MasterdURL(), salt.MasterdCert(), token)
	return err
}

func layFakes() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-fakes-")
	if err != nil {
		return "", err
	}
	module := fmt.Sprintf(fakeState, filepath.Join(dir, "answer"))
	return dir, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "state.py"), []byte(module), 0o644))
}

func name(i int) string { return fmt.Sprintf("minion-%d", i) }

// scratch gives a folder on the minion's side that belongs to this test.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// request makes a start of a source on a minion. %[1]s in the source is the
// test's scratch folder.
func request(t *testing.T, i int, source string) oduflow.Start {
	t.Helper()
	if strings.Contains(source, "%[1]s") {
		source = strings.ReplaceAll(source, "%[1]s", scratch(t))
	}
	return oduflow.Start{
		Request: oduflow.NewUUID(), Target: name(i), Instance: instance[i], Source: source, Revision: 1, Requester: t.Name()[:min(len(t.Name()), 60)],
	}
}

// apply starts a request and waits for its end.
func apply(t *testing.T, s oduflow.Start) oduflow.Answer {
	t.Helper()
	begin(t, s)
	return await(t, s.Request)
}

func begin(t *testing.T, s oduflow.Start) oduflow.Answer {
	t.Helper()
	a, err := odoo.CustomStart(t.Context(), s)
	if err != nil {
		t.Fatalf("custom_start: %v", err)
	}
	return a
}

func await(t *testing.T, request string) oduflow.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, err := odoo.Await(ctx, request, nil)
	if err != nil {
		t.Fatalf("custom_status of %s: %v", request, err)
	}
	return a
}

// awaitStatus waits until a request has a status.
func awaitStatus(t *testing.T, request, status string) oduflow.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		a, err := odoo.CustomStatus(ctx, request, time.Second)
		if err != nil {
			t.Fatalf("custom_status of %s: %v", request, err)
		}
		if a.Status == status {
			return a
		}
		if a.Terminal() {
			t.Fatalf("%s ended %s %s before it was %s", request, a.Status, a.Code, status)
		}
	}
}

func refusal(t *testing.T, err error) *oduflow.Refusal {
	t.Helper()
	var r *oduflow.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("expected an error answer, got %v", err)
	}
	return r
}

// lines gives the lines of a file on the minion's side; none if it isn't there.
func lines(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(raw))
}

func wantCounts(t *testing.T, a oduflow.Answer, declared, passed, failed, notRun int) {
	t.Helper()
	c := a.Counts
	if c.Declared != declared || c.Passed != passed || c.Failed != failed || c.NotRun != notRun {
		t.Errorf("counts: declared %d passed %d failed %d not run %d, want %d %d %d %d",
			c.Declared, c.Passed, c.Failed, c.NotRun, declared, passed, failed, notRun)
	}
}

func want(t *testing.T, a oduflow.Answer, status, code string) {
	t.Helper()
	if a.Status != status || a.Code != code {
		t.Fatalf("%s on %s: %s %q (hint %q), want %s %q", a.Request, a.Target, a.Status, a.Code, a.Hint, status, code)
	}
}

// published counts the starts that Salt's master logged for a JID... it reads
// the job cache, where each publish leaves its load before it goes out.
func published(t *testing.T, function string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(filepath.Join(salt.CacheDir(), "jobs"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != ".load.p" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(raw), function) {
			n++
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return n
}

// post sends any bytes to an entry point over TLS.
func post(t *testing.T, entry, contentType, bearer string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, salt.MasterdURL()+"/v1/"+entry, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if bearer != "" {
		req.Header.Set("Authorization", bearer)
	}
	resp, err := odoo.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// together runs n functions at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// awaitMinions waits until every minion answers the master again.
func awaitMinions(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		r, err := salt.Salt(ctx, "--out=json", "--static", "--timeout=2", "-L", strings.Join(salt.Minions, ","), "test.ping")
		if err != nil {
			t.Fatalf("the minions don't answer: %v", err)
		}
		if strings.Count(r.Stdout, "true") == minions {
			return
		}
	}
}
