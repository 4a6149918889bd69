package minion_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// newKit gives an adopted minion. Without flags it is the production build.
func newKit(t *testing.T, flags ...string) *miniontest.Kit {
	t.Helper()
	k := miniontest.New(t, t.TempDir(), flags...)
	if a := k.Identify(); a.Result != message.Updated {
		t.Fatalf("the identity isn't written: %+v", a)
	}
	return k
}

// prepared gives a prepared request.
func prepared(t *testing.T, k *miniontest.Kit, source string) (request, ticket string, canonical []byte) {
	t.Helper()
	canonical, _ = k.Document(source)
	request = miniontest.NewUUID()
	a := k.Prepare(request, canonical)
	if a.Result != message.Prepared {
		t.Fatalf("not prepared: %+v", a)
	}
	return request, a.Ticket, canonical
}

func succeed(canonical []byte) miniontest.Shim {
	return miniontest.Shim{Run: func([]byte) any { return miniontest.Results(canonical, "true") }}
}

// mustNotRun fails the test if high data arrives.
func mustNotRun(t *testing.T) miniontest.Shim {
	return miniontest.Shim{Ran: func() { t.Error("high data was handed over") }}
}

func expect(t *testing.T, a message.Answer, result message.Result, code problem.Code) {
	t.Helper()
	if a.Result != result || a.Code != code {
		t.Errorf("answered %s %q, expected %s %q", a.Result, a.Code, result, code)
	}
}

// A9, A13, A14, invariants 1, 2, 8: prepare, start, evidence and replay of one request.
func TestOneRequestRunsOnce(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	var high []byte
	q := k.AskStart(request, ticket, canonical)
	said := k.Send(message.Start, q.Text, miniontest.Shim{Run: func(h []byte) any {
		high = h
		return miniontest.Results(canonical, "true")
	}})
	a := k.Read(q, said.Text)
	expect(t, a, message.Finished, "")
	if a.Counts == nil || *a.Counts != (message.Counts{Declared: 3, Passed: 3}) {
		t.Errorf("counts are %+v", a.Counts)
	}
	if a.Digest != miniontest.Digest(canonical) || a.Ledger == "" || a.Machine == "" || a.Instance != k.Instance || a.Protocol != 1 {
		t.Errorf("the answer doesn't say what it is about: %+v", a)
	}
	var declared map[string]map[string]any
	if err := json.Unmarshal(high, &declared); err != nil || len(declared) != 3 || declared["second"]["cmd"] == nil {
		t.Errorf("the high data isn't: %s", high)
	}

	replay := k.Send(message.Start, q.Text, mustNotRun(t))
	expect(t, k.Read(q, replay.Text), message.Finished, "")
	expect(t, k.Evidence(request, true), message.Finished, "")
	expect(t, k.Prepare(request, canonical), message.Finished, "")
	expect(t, k.Evidence(miniontest.NewUUID(), true), message.Absent, "")
}

// Invariant 7: nothing of the payload, the ticket or a key is left in the ledger.
func TestTheLedgerHoldsNoPayload(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	files := 0
	err := filepath.WalkDir(k.Facts.StateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if want := os.FileMode(0o600); !d.IsDir() && info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		if d.IsDir() {
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %o", path, info.Mode().Perm())
			}
			return nil
		}
		files++
		raw, err := os.ReadFile(path)
		for _, secret := range []string{"secret-word-4711", ticket, "first", "cmd"} {
			if strings.Contains(string(raw), secret) {
				t.Errorf("%s holds %q", path, secret)
			}
		}
		return err
	})
	if err != nil || files < 4 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// Invariant 8 and the table of salt-facts.md: only a map in which all is true
// is a success.
func TestReturns(t *testing.T) {
	k := newKit(t)
	pairs := func(canonical []byte, results ...string) any {
		p := miniontest.ResultPairs(canonical, "")
		out := [][2]string{}
		for i, r := range results {
			if r != "" {
				out = append(out, [2]string{p[i][0], r})
			}
		}
		return map[string]any{"kind": "map", "results": out}
	}
	kind := func(k string) func([]byte) any {
		return func([]byte) any { return map[string]any{"kind": k} }
	}
	none := message.Counts{Declared: 3, NotRun: 3}
	for _, c := range []struct {
		name   string
		run    func(canonical []byte) any
		code   problem.Code
		counts message.Counts
	}{
		{"failing", func(c []byte) any { return pairs(c, "true", "false", "true") }, problem.StateFailed, message.Counts{Declared: 3, Passed: 2, Failed: 1}},
		{"failhard", func(c []byte) any { return pairs(c, "true", "false", "") }, problem.StateFailed, message.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1}},
		{"missing", func(c []byte) any { return pairs(c, "true", "", "true") }, problem.NotAllAccounted, message.Counts{Declared: 3, Passed: 2, NotRun: 1}},
		{"test run", func(c []byte) any { return pairs(c, "null", "null", "null") }, problem.StateFailed, message.Counts{Declared: 3, Failed: 3}},
		{"not a bool", func(c []byte) any { return pairs(c, "true", "other", "true") }, problem.StateFailed, message.Counts{Declared: 3, Passed: 2, Failed: 1}},
		{"a foreign failure", func(c []byte) any {
			m := miniontest.ResultPairs(c, "true")
			return map[string]any{"kind": "map", "results": append(m, [2]string{"test_|-x_|-x_|-nop", "false"})}
		}, problem.StateFailed, message.Counts{Declared: 3, Passed: 3}},
		{"list", kind("list"), problem.BadReturn, none},
		{"string", kind("string"), problem.BadReturn, none},
		{"empty", kind("empty"), problem.BadReturn, none},
		{"queued", kind("queued"), problem.BadReturn, none},
		{"exception", kind("exception"), problem.BadReturn, none},
		{"null", kind("null"), problem.BadReturn, none},
		{"a kind of tomorrow", kind("success"), problem.BadReturn, none},
		{"another state run", kind("state_running"), problem.StartRefusedStateRunning, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, ticket, canonical := prepared(t, k, threeStates)
			a := k.Start(request, ticket, canonical, miniontest.Shim{Run: func([]byte) any { return c.run(canonical) }})
			expect(t, a, message.Finished, c.code)
			if a.Counts == nil || *a.Counts != c.counts {
				t.Errorf("counts are %+v, expected %+v", a.Counts, c.counts)
			}
		})
	}
}

// A16 and the minion's own preflight: refused with a code each, no record is
// left prepared.
func TestPrepareRefusals(t *testing.T) {
	with := func(k *miniontest.Kit, change func(*minion.Facts)) miniontest.Shim {
		f := k.Facts
		change(&f)
		return miniontest.Shim{Facts: &f}
	}
	for _, c := range []struct {
		name string
		code problem.Code
		shim func(*miniontest.Kit) miniontest.Shim
		ask  func(*miniontest.Ask)
		do   func(*miniontest.Kit)
	}{
		{name: "no multiprocessing", code: problem.MinionUnsupported, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.Multiprocessing = false })
		}},
		{name: "proxy", code: problem.MinionUnsupported, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.Proxy = true })
		}},
		{name: "managed resources", code: problem.MinionUnsupported, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.Resources = true })
		}},
		{name: "another user", code: problem.MinionUnsupported, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.UID++ })
		}},
		{name: "pillar errors", code: problem.PillarError, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.PillarErrors = true })
		}},
		{name: "state run", code: problem.StateRunning, shim: func(k *miniontest.Kit) miniontest.Shim {
			return with(k, func(f *minion.Facts) { f.StateRunning = true })
		}},
		{name: "lease held", code: problem.StateRunning, do: func(k *miniontest.Kit) {
			f := k.TryLease(miniontest.NewUUID(), 0)
			t.Cleanup(func() { _ = f.Close() })
		}},
		{name: "another instance", code: problem.InstanceDiffers, ask: func(a *miniontest.Ask) { a.Instance = miniontest.NewUUID() }},
		{name: "another profile", code: problem.ExecutorOutdated, ask: func(a *miniontest.Ask) { a.Body.Profile = "configure" }},
		{name: "bad digest", code: problem.RequestConflict, ask: func(a *miniontest.Ask) { a.Digest = "12" }},
		{name: "no identity", code: problem.LedgerChanged, do: func(k *miniontest.Kit) { must(t, os.Remove(k.Ledger("identity.json"))) }},
		{name: "damaged identity", code: problem.LedgerUnwritable, do: func(k *miniontest.Kit) {
			must(t, os.WriteFile(k.Ledger("identity.json"), []byte("{"), 0o600))
		}},
		{name: "newer identity", code: problem.LedgerUnwritable, do: func(k *miniontest.Kit) {
			must(t, os.WriteFile(k.Ledger("identity.json"), []byte(`{"version":2}`), 0o600))
		}},
		{name: "no ledger of ours", code: problem.LedgerUnwritable, do: func(k *miniontest.Kit) {
			must(t, os.Chmod(k.Facts.StateDir, 0o755))
		}},
		{name: "unsigned manifest", code: problem.ExecutorOutdated, do: func(k *miniontest.Kit) {
			must(t, os.WriteFile(filepath.Join(k.Facts.LibDir, "manifest.sig"), []byte("AAAA"), 0o644))
		}},
		{name: "no plugin", code: problem.ExecutorOutdated, do: func(k *miniontest.Kit) {
			must(t, os.Remove(filepath.Join(k.Facts.LibDir, "plugins/custom")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKit(t)
			canonical, digest := k.Document(threeStates)
			if c.do != nil {
				c.do(k)
			}
			ask := miniontest.Ask{Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest}
			if c.ask != nil {
				c.ask(&ask)
			}
			var shim miniontest.Shim
			if c.shim != nil {
				shim = c.shim(k)
			}
			q := k.Seal(ask)
			a := k.Read(q, k.Send(message.Prepare, q.Text, shim).Text)
			expect(t, a, message.Refused, c.code)
			if a.Ticket != "" {
				t.Error("a refusal carries a ticket")
			}
			_ = canonical
			if _, err := os.Stat(k.Ledger("records", ask.Request)); err == nil {
				t.Error("a refused prepare left a record")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Protocol, start: what a ticket is good for.
func TestTickets(t *testing.T) {
	k := newKit(t)
	canonical, _ := k.Document(threeStates)

	t.Run("unknown request", func(t *testing.T) {
		expect(t, k.Start(miniontest.NewUUID(), strings.Repeat("0", 32), canonical, mustNotRun(t)), message.Disregarded, "")
	})
	t.Run("another ticket", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		expect(t, k.Start(request, strings.Repeat("0", 32), canonical, mustNotRun(t)), message.Disregarded, "")
		expect(t, k.Evidence(request, true), message.NotStartedYet, "")
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
		expect(t, k.Start(request, strings.Repeat("0", 32), canonical, mustNotRun(t)), message.Disregarded, "")
	})
	t.Run("a repeated prepare replaces it", func(t *testing.T) {
		request, first, _ := prepared(t, k, threeStates)
		second := k.Prepare(request, canonical)
		expect(t, second, message.Prepared, "")
		if second.Ticket == first {
			t.Fatal("the same ticket twice")
		}
		expect(t, k.Start(request, first, canonical, mustNotRun(t)), message.Disregarded, "")
		expect(t, k.Start(request, second.Ticket, canonical, succeed(canonical)), message.Finished, "")
	})
	t.Run("a prepare of another request fences", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		other, otherTicket, _ := prepared(t, k, threeStates)
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Fenced, problem.NeverStarted)
		expect(t, k.Evidence(request, false), message.Fenced, problem.NeverStarted)
		expect(t, k.Start(other, otherTicket, canonical, succeed(canonical)), message.Finished, "")
	})
	t.Run("another digest under the same request", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		other, _ := k.Document("only:\n  test.nop: []\n")
		a := k.Prepare(request, other)
		expect(t, a, message.Refused, problem.RequestConflict)
		if a.Digest != miniontest.Digest(canonical) {
			t.Error("the conflict doesn't say which digest is recorded")
		}
		expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
	})
	t.Run("a start of another digest", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		other, _ := k.Document("only:\n  test.nop: []\n")
		expect(t, k.Start(request, ticket, other, mustNotRun(t)), message.Fenced, problem.StartRefusedDigest)
		expect(t, k.Start(request, ticket, canonical, mustNotRun(t)), message.Fenced, problem.StartRefusedDigest)
	})
	t.Run("a payload of another digest", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		other, _ := k.Document("only:\n  test.nop: []\n")
		q := k.Seal(miniontest.Ask{
			Kind: message.Start, Request: request, Ticket: ticket, Digest: miniontest.Digest(canonical), Body: message.Body{Canonical: other},
		})
		expect(t, k.Read(q, k.Send(message.Start, q.Text, mustNotRun(t)).Text), message.Fenced, problem.StartRefusedDigest)
	})
	t.Run("another instance", func(t *testing.T) {
		request, ticket, _ := prepared(t, k, threeStates)
		q := k.Seal(miniontest.Ask{
			Kind: message.Start, Request: request, Ticket: ticket, Instance: miniontest.NewUUID(),
			Digest: miniontest.Digest(canonical), Body: message.Body{Canonical: canonical},
		})
		expect(t, k.Read(q, k.Send(message.Start, q.Text, mustNotRun(t)).Text), message.Disregarded, "")
	})
}

// Protocol: the lease, and what else stops a start under a live ticket.
func TestStartRefusals(t *testing.T) {
	k := newKit(t)
	t.Run("lease busy", func(t *testing.T) {
		request, ticket, canonical := prepared(t, k, threeStates)
		a := k.Start(request, ticket, canonical, miniontest.Shim{
			Lease: func(string, time.Duration) any { return map[string]any{"lease": "busy"} },
			Ran:   mustNotRun(t).Ran,
		})
		expect(t, a, message.Fenced, problem.StartRefusedLocked)
		expect(t, k.Evidence(request, false), message.Fenced, problem.StartRefusedLocked)
	})
	t.Run("a shim that lies about the lease", func(t *testing.T) {
		request, ticket, canonical := prepared(t, k, threeStates)
		q := k.AskStart(request, ticket, canonical)
		said := k.Send(message.Start, q.Text, miniontest.Shim{
			Lease: func(string, time.Duration) any { return map[string]any{"lease": "held"} },
			Ran:   mustNotRun(t).Ran,
		})
		if said.Text != "oduflow: rejected lease_unproved" {
			t.Errorf("said %q", said.Text)
		}
		expect(t, k.Evidence(request, false), message.NotStartedYet, "")
	})
	t.Run("the lease of another request", func(t *testing.T) {
		request, ticket, canonical := prepared(t, k, threeStates)
		f := k.TryLease(miniontest.NewUUID(), 0)
		defer func() { _ = f.Close() }()
		q := k.AskStart(request, ticket, canonical)
		said := k.Send(message.Start, q.Text, miniontest.Shim{
			Lease: func(string, time.Duration) any { return map[string]any{"lease": "held"} },
			Ran:   mustNotRun(t).Ran,
		})
		if said.Text != "oduflow: rejected lease_unproved" {
			t.Errorf("said %q", said.Text)
		}
	})
	t.Run("a state run under the lease", func(t *testing.T) {
		request, ticket, canonical := prepared(t, k, threeStates)
		a := k.Start(request, ticket, canonical, miniontest.Shim{
			Between: func() minion.Facts { f := k.Facts; f.StateRunning = true; return f }, Ran: mustNotRun(t).Ran,
		})
		expect(t, a, message.Fenced, problem.StartRefusedStateRunning)
	})
	t.Run("a state run just before the effect", func(t *testing.T) {
		request, ticket, canonical := prepared(t, k, threeStates)
		asked := 0
		a := k.Start(request, ticket, canonical, miniontest.Shim{
			Between: func() minion.Facts { asked++; f := k.Facts; f.StateRunning = asked > 1; return f }, Ran: mustNotRun(t).Ran,
		})
		expect(t, a, message.Fenced, problem.StartRefusedStateRunning)
		expect(t, k.Evidence(request, false), message.Fenced, problem.StartRefusedStateRunning)
		if asked != 2 {
			t.Errorf("facts were asked for %d times", asked)
		}
	})
	for name, spoil := range map[string]func(){
		"a plugin that was swapped": func() { rewrite(t, filepath.Join(k.Facts.LibDir, "plugins/custom")) },
		"no manifest":               func() { must(t, os.Remove(filepath.Join(k.Facts.LibDir, "manifest.json"))) },
		"a manifest of others":      func() { k.Releases = otherKey(t); k.Sign() },
		"a plugin that isn't one": func() {
			must(t, os.WriteFile(filepath.Join(k.Facts.LibDir, "plugins/custom"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
			k.Sign()
		},
		"an executor that isn't the signed one": func() {
			must(t, os.WriteFile(filepath.Join(k.Facts.LibDir, "other"), []byte("x"), 0o755))
			signOther(t, k)
		},
	} {
		t.Run(name, func(t *testing.T) {
			request, ticket, canonical := prepared(t, k, threeStates)
			releases := k.Releases
			spoil()
			a := k.Start(request, ticket, canonical, mustNotRun(t))
			expect(t, a, message.Fenced, problem.StartRefusedPluginMismatch)
			expect(t, k.Evidence(request, false), message.Fenced, problem.StartRefusedPluginMismatch)
			k.Releases = releases
			k.Install(miniontest.Build(t))
		})
	}
}
