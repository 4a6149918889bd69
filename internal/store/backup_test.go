package store_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// yesterday makes a database with a waiting and a dispatched receipt, copies it
// with copyOf, lets it go on, and closes it.
func yesterday(t *testing.T, copyOf func(path string)) store.Config {
	t.Helper()
	d := newDesk(t)
	d.claim(d.bind(1, "dispatched"))
	d.bind(2, "waits")
	d.ok(d.Close())
	copyOf(d.cfg.Path)
	d.DB = storetest.Open(t, d.cfg)
	d.apply(d.read(1), receipttest.Finish(d.clock.Now(), 3, 3))
	d.claim(d.read(2))
	d.ok(d.Close())
	d.clock.Set(d.clock.Now().Add(1e9))
	d.cfg.Random = bytes.NewReader(bytes.Repeat([]byte{4, 2}, 64)) // another epoch
	return d.cfg
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Issue 5, 6: a backup is whole, private, and never replaces a file; a restore
// begins a new epoch in which nothing that waited is ever started.
func TestBackupAndRestore(t *testing.T) {
	ctx := t.Context()
	saved := filepath.Join(t.TempDir(), "saved.db")
	cfg := yesterday(t, func(path string) {
		if err := store.Backup(ctx, path, saved); err != nil {
			t.Fatal(err)
		}
		wantCode(t, store.Backup(ctx, path, saved), problem.DatabaseExists)
	})
	info, err := os.Stat(saved)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	left, err := filepath.Glob(saved + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("left beside the backup: %v", left)
	}
	running, err := store.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	old := running.Epoch()
	_, err = store.Restore(ctx, cfg, saved)
	wantCode(t, err, problem.DatabaseLocked)
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	done, err := store.Restore(ctx, cfg, saved)
	if err != nil {
		t.Fatal(err)
	}
	if done.Waiting != 1 || done.Open != 1 || done.Replaced == "" || done.Epoch == old {
		t.Errorf("%+v", done)
	}
	kept := cfg
	kept.Path = done.Replaced
	replaced := storetest.Open(t, kept)
	if b, err := replaced.Lookup(ctx, receipttest.Request(1)); err != nil || b.Execution.State != receipt.Succeeded {
		t.Errorf("the replaced database: %+v %v", b, err)
	}
	restoredOnly(t, cfg, done.Epoch)
}

// restoredOnly checks a database in its second epoch.
func restoredOnly(t *testing.T, cfg store.Config, epoch string) {
	t.Helper()
	ctx := t.Context()
	db := storetest.Open(t, cfg)
	epochs, err := db.Epochs(ctx)
	if err != nil || len(epochs) != 2 || epochs[1].ID != epoch || epochs[1].Cause != "restore" || db.Epoch() != epoch {
		t.Errorf("%+v %v", epochs, err)
	}
	waits, err := db.Lookup(ctx, receipttest.Request(2))
	if err != nil || waits.Execution.State != receipt.Queued || !waits.Execution.Carried {
		t.Fatalf("%+v %v", waits, err)
	}
	claimed, err := db.Claim(ctx, receipttest.Request(2), 0, receipttest.Claim("web"))
	if err != nil || claimed.State != receipt.Refused || claimed.Code != problem.EpochEnded {
		t.Errorf("a start of what waited: %+v %v", claimed, err)
	}
	fresh, err := storetest.Bind(ctx, db, receipttest.Binding(3, "web", "new"), "new")
	if err != nil || fresh.Execution.Carried {
		t.Errorf("%+v %v", fresh, err)
	}
	if _, err := db.Lookup(ctx, receipttest.Request(99)); !strings.Contains(err.Error(), epoch) {
		t.Errorf("unknown_request doesn't name the epoch: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Issue 5: yesterday's database put back by hand isn't opened; masterd says so,
// and restore takes it where it lies.
func TestOlderCopyPutBackByHand(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "copy.db")
	cfg := yesterday(t, func(path string) { copyFile(t, path, saved) })
	copyFile(t, saved, cfg.Path)
	refusesToOpen(t, cfg, problem.DatabaseRolledBack)
	done, err := store.Restore(context.WithoutCancel(t.Context()), cfg, cfg.Path)
	if err != nil {
		t.Fatal(err)
	}
	restoredOnly(t, cfg, done.Epoch)
	// The copy of the epoch before that is refused too.
	db := storetest.Open(t, cfg)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, saved, cfg.Path)
	refusesToOpen(t, cfg, problem.DatabaseRolledBack)
}

// On a host that has never seen the database nothing is known of what came
// after: it is opened, and the ledgers say the rest.
func TestCopyOnANewHost(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "copy.db")
	cfg := yesterday(t, func(path string) { copyFile(t, path, saved) })
	cfg.Path = saved
	db := storetest.Open(t, cfg)
	if b, err := db.Lookup(t.Context(), receipttest.Request(2)); err != nil || b.Execution.Carried {
		t.Errorf("%+v %v", b, err)
	}
}

// What isn't a backup doesn't replace a database.
func TestRestoreRefusesWhatIsNoBackup(t *testing.T) {
	d := newDesk(t)
	d.ok(d.Close())
	text := filepath.Join(t.TempDir(), "text")
	d.ok(os.WriteFile(text, bytes.Repeat([]byte("nothing "), 100), 0o600))
	open := filepath.Join(t.TempDir(), "open.db")
	copyFile(t, d.cfg.Path, open)
	d.ok(os.Chmod(open, 0o644))
	damagedCopy := filepath.Join(t.TempDir(), "damaged.db")
	raw, err := os.ReadFile(d.cfg.Path)
	d.ok(err)
	for i := 4096; i < len(raw); i++ {
		raw[i] = 0xaa
	}
	d.ok(os.WriteFile(damagedCopy, raw, 0o600))
	for from, code := range map[string]problem.Code{
		text: problem.DatabaseForeign, open: problem.DatabaseUnsafe, damagedCopy: problem.DatabaseDamaged,
		filepath.Join(t.TempDir(), "missing"): problem.DatabaseMissing,
	} {
		_, err := store.Restore(t.Context(), d.cfg, from)
		if problem.CodeOf(err) != code {
			t.Errorf("%s: %v", from, err)
		}
	}
	for _, part := range []string{".restore*", ".replaced*"} {
		if left, err := filepath.Glob(d.cfg.Path + part); err != nil || len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
	storetest.Open(t, d.cfg)
}
