//go:build salt

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/test/lab"
)

// An instance is one server: it isn't recorded for a second target, but for a
// minion that was renamed, once the master has the old key no more.
func TestOneInstanceOneServer(t *testing.T) {
	adopt := func(i int, uuid string, more ...string) lab.Result {
		return operator(t, append([]string{"adopt", name(i), "--instance", uuid, "--reason", "test"}, more...)...)
	}
	taken := func(r lab.Result, says ...string) {
		t.Helper()
		for _, text := range append(says, "instance_taken") {
			if r.Code != 4 || !strings.Contains(r.Stderr, text) {
				t.Fatalf("status %d, want 4 and %q: %s%s", r.Code, text, r.Stdout, r.Stderr)
			}
		}
	}
	done := func(r lab.Result) {
		t.Helper()
		if r.Code != 0 {
			t.Fatalf("status %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	taken(adopt(plain, instance[victim]), name(victim), "--replaces "+name(victim))
	taken(adopt(plain, instance[victim], "--replaces", name(victim)), "salt-key -d "+name(victim))
	want(t, apply(t, request(t, plain, ordered)), "succeeded", "") // its identity is as it was

	// As after a renaming: the old ID's key is deleted.
	key := filepath.Join(salt.PKIDir(), "minions", name(victim))
	away := filepath.Join(salt.PKIDir(), name(victim)+".away")
	if err := os.Rename(key, away); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = os.Rename(away, key)
		if r := adopt(plain, instance[plain]); r.Code != 0 {
			t.Errorf("%s isn't itself again: %s", name(plain), r.Stderr)
		}
	}()
	done(adopt(plain, instance[victim], "--replaces", name(victim)))
	s := request(t, plain, ordered)
	s.Instance = instance[victim]
	want(t, apply(t, s), "succeeded", "")
	if err := os.Rename(away, key); err != nil {
		t.Fatal(err)
	}
	taken(adopt(victim, instance[victim]), name(plain))
	done(adopt(plain, instance[plain]))
	if err := salt.AwaitMinion(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	want(t, apply(t, request(t, victim, ordered)), "succeeded", "") // nobody else is its instance any more
}
