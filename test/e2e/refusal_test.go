//go:build salt

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// refused applies a state that would leave a mark, and checks that it ended
// with a code, 0 of 1, soon enough, and left none. It isn't a quarantine: the
// next request is taken.
func refused(t *testing.T, i int, code string) oduflow.Answer {
	t.Helper()
	s := request(t, i, ordered)
	a := apply(t, s)
	want(t, a, "failed", code)
	wantPreflight(t, a, 0)
	if took := since(t, a.AcceptedAt, a.FinishedAt); took > 25*time.Second {
		t.Errorf("refused only after %s", took)
	}
	if got := order(t, s); len(got) > 0 {
		t.Errorf("refused, but it ran %v", got)
	}
	return a
}

// A2: a server that nobody adopted is refused, and nothing is stored.
func TestNotConfigured(t *testing.T) {
	s := request(t, plain, ordered)
	s.Target = "nobody-adopted-me"
	_, err := odoo.CustomStart(t.Context(), s)
	if r := refusal(t, err); r.Status != 409 || r.Code != "not_configured" {
		t.Errorf("%v", r)
	}
	_, err = odoo.CustomStatus(t.Context(), s.Request, 0)
	if r := refusal(t, err); r.Status != 404 || r.Code != "unknown_request" {
		t.Errorf("status afterwards: %v", r)
	}
	s.Target, s.Instance = name(plain), oduflow.NewUUID()
	_, err = odoo.CustomStart(t.Context(), s)
	if r := refusal(t, err); r.Code != "instance_mismatch" {
		t.Errorf("another instance: %v", r)
	}
}

// A16: each way in which a target can't be prepared has its code, within 25 s,
// and none of them quarantines. They share one minion, which is whole again
// after each.
func TestTargetsThatCannotBePrepared(t *testing.T) {
	t.Parallel() // most of it waits for somebody who doesn't answer
	usable := func(t *testing.T) {
		t.Helper()
		if err := salt.AwaitMinion(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		want(t, apply(t, request(t, victim, ordered)), "succeeded", "")
	}

	t.Run("offline", func(t *testing.T) {
		if err := salt.StopMinion(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		a := refused(t, victim, "executor_silent")
		if !strings.Contains(a.Hint, "running") {
			t.Errorf("hint %q", a.Hint)
		}
		if err := salt.StartMinion(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		usable(t)
	})

	t.Run("in blackout", func(t *testing.T) {
		top := filepath.Join(salt.PillarDir(), "top.sls")
		before, readErr := os.ReadFile(top)
		write(t, top, "base:\n  '"+name(victim)+"':\n    - blackout\n")
		write(t, filepath.Join(salt.PillarDir(), "blackout.sls"), "minion_blackout: True\n")
		refresh := func() { _, _ = salt.Salt(t.Context(), name(victim), "saltutil.refresh_pillar", "wait=True") }
		refresh()
		a := refused(t, victim, "executor_silent")
		if !strings.Contains(a.Hint, "blackout") {
			t.Errorf("hint %q", a.Hint)
		}
		if readErr == nil {
			write(t, top, string(before))
		} else {
			_ = os.Remove(top)
		}
		_ = os.Remove(filepath.Join(salt.PillarDir(), "blackout.sls"))
		refresh()
		usable(t)
	})

	t.Run("without executors", func(t *testing.T) {
		lib := salt.MinionDir(victim).Lib
		if err := os.Rename(lib, lib+".away"); err != nil {
			t.Fatal(err)
		}
		a := refused(t, victim, "executor_silent")
		if a.Hint == "" {
			t.Error("no hint")
		}
		if err := os.Rename(lib+".away", lib); err != nil {
			t.Fatal(err)
		}
		usable(t)
	})

	t.Run("with an old executor", func(t *testing.T) {
		path := filepath.Join(salt.MinionDir(victim).Lib, "minion-executor")
		if err := os.Rename(path, path+".new"); err != nil {
			t.Fatal(err)
		}
		build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X github.com/oduflow/oduflow-salt/internal/version.AnswerProtocol=0", "-o", path, "./minion-executor")
		build.Dir = salt.Repo
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := salt.SignExecutors(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		refused(t, victim, "executor_outdated")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if err := salt.SignExecutors(t.Context(), victim); err != nil {
			t.Fatal(err)
		}
		usable(t)
	})

	t.Run("with a changed key", func(t *testing.T) {
		accepted := filepath.Join(salt.PKIDir(), "minions", name(victim))
		mine, err := os.ReadFile(accepted)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(salt.PKIDir(), "minions", name(plain)))
		if err != nil {
			t.Fatal(err)
		}
		replace(t, accepted, other)
		refused(t, victim, "key_changed")
		replace(t, accepted, mine)
		usable(t)
	})

	t.Run("unknown to the master", func(t *testing.T) {
		accepted := filepath.Join(salt.PKIDir(), "minions", name(victim))
		if err := os.Rename(accepted, accepted+".away"); err != nil {
			t.Fatal(err)
		}
		moved := filepath.Join(salt.PKIDir(), name(victim)+".away")
		if err := os.Rename(accepted+".away", moved); err != nil {
			t.Fatal(err)
		}
		refused(t, victim, "target_unknown")
		if err := os.Rename(moved, accepted); err != nil {
			t.Fatal(err)
		}
		usable(t)
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace keeps owner and mode of what is there.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
