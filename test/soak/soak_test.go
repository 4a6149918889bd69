//go:build salt

// Package soak kills a real masterd with SIGKILL every few seconds while 500
// requests of 64 KiB for 100 targets are under way. The master and the minions
// are models in this process: the master speaks the real request channel and
// event bus, and each minion is the real executor (internal/minion) over a
// ledger of its own on disk. ODUFLOW_SOAK_SECONDS says for how long it kills.
package soak

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/saltreq/reqtest"
	"github.com/oduflow/oduflow-salt/internal/state"
	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

const (
	targets  = 100
	requests = 500
	// Once nobody is killed any more, callers begin anew for so long: until the
	// last start that was claimed and never sent is fenced, and frees its target.
	// What they began last may take as long once more.
	trying     = 150 * time.Second
	afterwards = trying + 140*time.Second
)

// A10, A12, A19, A21: whatever masterd's death cuts off, each request ends as
// what is true, and its effect happens at most once. There are 500 callers; one
// whose request was refused, or never started, tries again with a new one that
// names it, so that its effect, too, happens at most once.
func TestMasterdKilledAllTheTime(t *testing.T) {
	seconds := 15
	if s := os.Getenv("ODUFLOW_SOAK_SECONDS"); s != "" {
		var err error
		if seconds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.start(t)
	w.adopt(t)
	began := time.Now()
	all := make([]*request, requests)
	for n := range all {
		all[n] = w.newRequest(t, n)
	}
	killing, stop := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer stop()
	var callers, killer sync.WaitGroup
	kills := 0
	killer.Go(func() { kills = w.killAgainAndAgain(t, killing) })
	deadline, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second+afterwards)
	defer cancel()
	lastTry := began.Add(time.Duration(seconds)*time.Second + trying)
	for _, r := range all {
		callers.Go(func() { r.call(deadline, w, lastTry) })
	}
	killer.Wait()
	callers.Wait()
	if kills < seconds/8 {
		t.Errorf("masterd was killed %d times in %d s", kills, seconds)
	}

	sum, total := map[string]int{}, 0
	for _, r := range all {
		effects := 0
		for _, a := range r.ended {
			total++
			effects += w.effects(a.Request)
			sum[strings.TrimSpace(a.Status+" "+a.Code)]++
			if wrong := r.wrong(a, w.effects(a.Request)); wrong != "" {
				t.Errorf("caller %d on %s: %s is %s %q after %d effect(s): %s (%v)", r.n, r.start.Target, a.Request, a.Status, a.Code, w.effects(a.Request), wrong, r.err)
			}
		}
		if effects > 1 || len(r.ended) == 0 {
			t.Errorf("caller %d on %s: %d effects of %d requests (%v)", r.n, r.start.Target, effects, len(r.ended), r.err)
		}
	}
	w.startsOnce(t, total)
	t.Logf("masterd killed %d times; %d callers, %d requests resolved in %.0f s; %d answers lost on the bus", kills, requests, total, time.Since(began).Seconds(), w.lost)
	for _, outcome := range slices.Sorted(maps.Keys(sum)) {
		t.Logf("%5d %s", sum[outcome], outcome)
	}
	if sum["succeeded"] < requests/2 || sum["failed state_failed"] == 0 {
		t.Error("hardly anything ran: this shows nothing")
	}
}

// request is one caller, who repeats its UUID until it knows the end.
type request struct {
	n       int
	start   oduflow.Start
	fails   bool             // its last state does, if it runs
	ended   []oduflow.Answer // one for each request that it made
	err     error
	results [][2]string
}

// call makes requests until one has run, or it is too late to begin.
func (r *request) call(ctx context.Context, w *world, last time.Time) {
	for s := r.start; ; {
		a := r.follow(ctx, w.client, s)
		r.ended = append(r.ended, a)
		if a.Status != "failed" || a.Code == "state_failed" || time.Now().After(last) {
			return
		}
		s.Previous, s.Request = a.Request, oduflow.NewUUID()
		w.mu.Lock()
		w.of[s.Request] = r
		w.mu.Unlock()
	}
}

// wrong compares what the receipt says with what happened.
func (r *request) wrong(a oduflow.Answer, effects int) string {
	switch {
	case effects > 1:
		return "more than one effect"
	case a.Status == "succeeded" && (effects != 1 || r.fails || a.Counts.Passed != len(r.results)):
		return "it didn't succeed"
	case a.Status == "failed" && a.Code == "state_failed" && (effects != 1 || !r.fails):
		return "no state failed"
	case a.Status == "failed" && a.Code != "state_failed" && effects != 0:
		return "it ran"
	case a.Status != "succeeded" && a.Status != "failed":
		return "not resolved"
	}
	return ""
}

// follow repeats one request under its UUID until it is answered, and asks for
// it until it is terminal.
func (r *request) follow(ctx context.Context, c *oduflow.Client, s oduflow.Start) (answer oduflow.Answer) {
	pause := func() { lasts(ctx, 100*time.Millisecond+mrand.N(200*time.Millisecond)) }
	for ctx.Err() == nil {
		if answer, r.err = c.CustomStart(ctx, s); r.err == nil {
			break
		}
		answer.Request = s.Request
		var refused *oduflow.Refusal
		if errors.As(r.err, &refused) && refused.Status < http.StatusInternalServerError {
			return answer
		}
		pause()
	}
	for ctx.Err() == nil && !answer.Terminal() {
		a, err := c.CustomStatus(ctx, s.Request, 10*time.Second)
		if err != nil {
			var refused *oduflow.Refusal
			if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
				r.err = fmt.Errorf("an accepted request is lost: %w", err)
				return answer
			}
			pause()
			continue
		}
		answer = a
	}
	return answer
}

// world is masterd, and what it takes for Salt.
type world struct {
	dir    string
	bin    string
	master *reqtest.Master
	bus    *bustest.Server
	client *oduflow.Client
	cmd    *exec.Cmd
	log    *os.File

	minions map[string]*model
	places  chan struct{} // how many starts run at once on this machine

	mu   sync.Mutex
	ran  map[string]int
	of   map[string]*request
	jobs sync.WaitGroup
	lost int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{
		dir: dir, bin: filepath.Join(dir, "masterd.bin"), master: reqtest.New(t), bus: bustest.New(t),
		minions: map[string]*model{}, places: make(chan struct{}, 4), ran: map[string]int{}, of: map[string]*request{},
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", w.bin, "../../masterd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := w.configure(t)
	if out, err := exec.CommandContext(t.Context(), w.bin, "init", "--config", config, "--public-key-out", filepath.Join(dir, "masterd.pub")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "run", "masterd.sock")
	w.client = &oduflow.Client{URL: "http://masterd", HTTP: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
	w.installMinions(t)
	w.master.OnPublish(w.publish)
	t.Cleanup(func() {
		if w.cmd != nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
		w.jobs.Wait()
		if t.Failed() {
			if raw, err := os.ReadFile(w.log.Name()); err == nil {
				t.Logf("the end of masterd's log:\n%s", raw[max(0, len(raw)-4000):])
			}
		}
	})
	return w
}

// configure writes Salt's configuration for the master that isn't one, and
// masterd's.
func (w *world) configure(t *testing.T) string {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	salt := w.master.Config()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(salt.Address, "tcp://"))
	number, _ := strconv.Atoi(port)
	_, bus := w.bus.Address()
	in := func(name string) string { return filepath.Join(w.dir, name) }
	write := func(path string, v map[string]any) {
		raw, err := yaml.Marshal(v)
		if err == nil {
			err = os.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(in("master"), map[string]any{
		"interface": "127.0.0.1", "ret_port": number, "sock_dir": filepath.Dir(bus), "cachedir": salt.CacheDir,
		"pki_dir": in("pki"), "user": me.Username, "client_acl_verify": false,
		"publisher_acl": map[string]any{reqtest.Login: []string{"oduflow.*", "saltutil.refresh_pillar"}},
	})
	for _, dir := range []string{"run", "db"} {
		if err := os.Mkdir(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(in("masterd.yaml"), map[string]any{
		"listen": map[string]any{"unix": in("run/masterd.sock")}, "database": in("db/receipts.db"),
		"keys": map[string]any{"signing": in("db/signing.key"), "secret": in("db/secret.key")},
		"salt": map[string]any{"config": in("master"), "user": reqtest.Login},
		"log":  map[string]any{"level": "warn", "format": "json"}, "lab": true,
	})
	return in("masterd.yaml")
}

// start starts masterd and waits until it takes calls.
func (w *world) start(t *testing.T) {
	t.Helper()
	w.cmd = exec.Command(w.bin, "serve", "--config", filepath.Join(w.dir, "masterd.yaml"))
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	err := lab.Poll(ctx, func() (bool, error) {
		resp, err := w.client.HTTP.Get("http://masterd/v1/health")
		if err != nil {
			return false, nil
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		t.Errorf("masterd doesn't get ready: %v", err)
	}
}

// lasts is over after so long, or with ctx. It is how long what a model stands
// for takes (a run, a caller's patience, a life of masterd's), and waits for
// nothing.
func lasts(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *world) killAgainAndAgain(t *testing.T, ctx context.Context) (kills int) {
	for {
		if lasts(ctx, 1500*time.Millisecond+mrand.N(3*time.Second)); ctx.Err() != nil {
			return kills
		}
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		kills++
		w.start(t)
	}
}

func (w *world) adopt(t *testing.T) {
	t.Helper()
	client := httpapi.NewClient(filepath.Join(w.dir, "run", "masterd.sock"))
	var adopting sync.WaitGroup
	places := make(chan struct{}, 8)
	for id, m := range w.minions {
		adopting.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if _, err := client.Adopt(t.Context(), id, m.instance, "soak"); err != nil {
				t.Errorf("adopt %s: %v", id, err)
			}
		})
	}
	adopting.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// newRequest makes a source of close to 64 KiB that nobody else has.
func (w *world) newRequest(t *testing.T, n int) *request {
	t.Helper()
	const limit, states = 64 << 10, 64
	var source strings.Builder
	for i := range states {
		fmt.Fprintf(&source, "request %d state %d:\n  test.nop:\n    - note: %s\n", n, i, strings.Repeat("x", limit/states-80))
	}
	doc, refused := state.Parse([]byte(source.String()))
	if len(refused) > 0 {
		t.Fatal(refused[0])
	}
	id := fmt.Sprintf("target-%d", n%targets)
	r := &request{n: n, fails: n%7 == 3, start: oduflow.Start{
		Request: oduflow.NewUUID(), Target: id, Instance: w.minions[id].instance, Source: source.String(), Revision: 1, Requester: "soak",
	}}
	for _, key := range doc.Expected() {
		r.results = append(r.results, [2]string{key.String(), "true"})
	}
	if r.fails {
		r.results[len(r.results)-1][1] = "false"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[r.start.Request] = r
	return r
}

// publish is what the master does with a publication: its minion runs it, and
// what comes back is on the bus. Some of it isn't.
func (w *world) publish(l reqtest.Load) {
	kind, ok := map[string]message.Kind{
		"oduflow.prepare": message.Prepare, "oduflow.start": message.Start, "oduflow.evidence": message.Evidence, "oduflow.update": message.Update,
	}[l.Fun]
	m := w.minions[l.Target]
	if !ok || m == nil {
		return
	}
	w.jobs.Go(func() {
		if kind == message.Start {
			w.places <- struct{}{}
			defer func() { <-w.places }()
		}
		text := m.serve(kind, l.Arg)
		if kind == message.Start && mrand.N(20) == 0 {
			w.mu.Lock()
			w.lost++
			w.mu.Unlock()
			return
		}
		w.bus.Send(bustest.Return(bustest.Prefixed, l.JID, l.Target, l.Fun, text))
	})
}

// effect is called as a request's states run.
func (w *world) effect(ctx context.Context, id string) (results [][2]string) {
	w.mu.Lock()
	r := w.of[id]
	w.ran[id]++
	w.mu.Unlock()
	if r == nil {
		return nil
	}
	lasts(ctx, mrand.N(800*time.Millisecond))
	return r.results
}

func (w *world) effects(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[id]
}

// startsOnce: one start publish for each JID, ever.
func (w *world) startsOnce(t *testing.T, requests int) {
	t.Helper()
	seen := map[string]int{}
	for _, l := range w.master.Published() {
		if l.Fun == "oduflow.start" {
			seen[l.JID]++
		}
	}
	for jid, n := range seen {
		if n != 1 {
			t.Errorf("JID %s was published %d times", jid, n)
		}
	}
	if len(seen) > requests {
		t.Errorf("%d starts for %d requests", len(seen), requests)
	}
}

var random = rand.Reader

var quiet = hclog.NewNullLogger()
