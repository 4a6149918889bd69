package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

func wantCode(t *testing.T, err error, code problem.Code) {
	t.Helper()
	if got := problem.CodeOf(err); got != code {
		t.Fatalf("got code %q (%v), want %q", got, err, code)
	}
	if code != "" && problem.Outer(err).Hint == "" {
		t.Errorf("%s doesn't say what to do: %v", code, err)
	}
}

// refusesToOpen wants a code and a hint, and the file untouched.
func refusesToOpen(t *testing.T, cfg store.Config, code problem.Code) {
	t.Helper()
	before, readErr := os.ReadFile(cfg.Path)
	db, err := store.Open(t.Context(), cfg)
	if err == nil {
		_ = db.Close()
	}
	wantCode(t, err, code)
	if after, err := os.ReadFile(cfg.Path); readErr == nil && (err != nil || !bytes.Equal(before, after)) {
		t.Errorf("a refused file was changed (%v)", err)
	}
}

func TestCreateIsRefusedBesideAnExistingDatabase(t *testing.T) { // A23
	cfg := storetest.Config(t, storetest.NewClock())
	db := storetest.Create(t, cfg)
	epoch := db.Epoch()
	wantCode(t, store.Create(t.Context(), cfg), problem.DatabaseLocked) // while it is open
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, store.Create(t.Context(), cfg), problem.DatabaseExists)
	if got := storetest.Open(t, cfg).Epoch(); got != epoch || len(got) != 32 {
		t.Errorf("epoch %q, was %q", got, epoch)
	}

	// What SQLite left behind may hold receipts too.
	for _, suffix := range []string{"-wal", "-journal", "-shm"} {
		other := storetest.Config(t, storetest.NewClock())
		if err := os.WriteFile(other.Path+suffix, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantCode(t, store.Create(t.Context(), other), problem.DatabaseExists)
	}
}

func TestCreateAgainAfterAnInitThatWasKilled(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	for _, suffix := range []string{".init", ".init-wal", ".init-journal"} {
		if err := os.WriteFile(cfg.Path+suffix, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refusesToOpen(t, cfg, problem.DatabaseMissing)
	storetest.Create(t, cfg)
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	old := syscall.Umask(0) // the worst that a caller may have set
	defer syscall.Umask(old)
	cfg := storetest.Config(t, storetest.NewClock())
	db := storetest.Create(t, cfg)
	if _, err := storetest.Bind(t.Context(), db, receipttest.Binding(1, "a", "x"), "x"); problem.CodeOf(err) != problem.NotConfigured {
		t.Fatal(err)
	}
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(cfg.Path), "*"))
	if err != nil || len(files) != 4 { // with -wal, -shm and .lock
		t.Fatalf("%v (%v)", files, err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", f, info.Mode().Perm())
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(cfg.Path, 0o640); err != nil {
		t.Fatal(err)
	}
	refusesToOpen(t, cfg, problem.DatabaseUnsafe)
}

func TestOneMasterdADatabase(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	db := storetest.Create(t, cfg)
	_, err := store.Open(t.Context(), cfg)
	wantCode(t, err, problem.DatabaseLocked)
	// A refused one hasn't taken anything away from the first.
	_, err = store.Open(t.Context(), cfg)
	wantCode(t, err, problem.DatabaseLocked)
	if err := db.Adopt(t.Context(), receipttest.Target("a")); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Open(t, cfg)
}

func TestSettingsAreReadBackOnEveryConnection(t *testing.T) {
	db := storetest.Create(t, storetest.Config(t, storetest.NewClock()))
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "recursive_triggers": "1", "foreign_keys": "1",
	} {
		writer, fromReaders, err := db.ConnectionSettings(t.Context(), pragma)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range append(fromReaders, writer) {
			if got != want {
				t.Errorf("%s is %s, not %s", pragma, got, want)
			}
		}
	}
}

// damage changes a closed database and says what Open then has to answer.
func TestOpenRefusesWithWhatToDo(t *testing.T) {
	overwrite := func(offset int64, with []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(with, offset)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	statement := func(sql string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			execute(t, stranger(t, path, "_journal_mode=WAL"), sql)
		}
	}
	write := func(content []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		wreck func(t *testing.T, path string)
		code  problem.Code
	}{
		{"missing", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, problem.DatabaseMissing},
		{"a folder", func(t *testing.T, path string) {
			t.Helper()
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, problem.DatabaseForeign},
		{"empty", write(nil), problem.DatabaseDamaged},
		{"cut off", func(t *testing.T, path string) {
			t.Helper()
			if err := os.Truncate(path, 20<<10); err != nil {
				t.Fatal(err)
			}
		}, problem.DatabaseDamaged},
		{"a page overwritten", overwrite(4096, bytes.Repeat([]byte{0xa5}, 8192)), problem.DatabaseDamaged},
		{"not a database", write([]byte(strings.Repeat("receipts\n", 1000))), problem.DatabaseForeign},
		{"a short text", write([]byte("receipts")), problem.DatabaseForeign},
		{"another program's", statement("PRAGMA application_id = 17"), problem.DatabaseForeign},
		{"newer", statement(fmt.Sprintf("PRAGMA user_version = %d", store.SchemaVersion+1)), problem.DatabaseNewer},
		{"older than any", statement("PRAGMA user_version = 0"), problem.DatabaseOlder},
		{"without a trigger", statement("DROP TRIGGER requests_never_changes"), problem.DatabaseDamaged},
		{"with another trigger", statement("CREATE TRIGGER x BEFORE INSERT ON requests BEGIN SELECT 1; END"), problem.DatabaseDamaged},
		{"without an index", statement("DROP INDEX receipts_busy"), problem.DatabaseDamaged},
		{"without an epoch", statement("DROP TRIGGER epochs_never_deleted; DELETE FROM epochs; " +
			"CREATE TRIGGER epochs_never_deleted BEFORE DELETE ON epochs BEGIN\n" +
			"  SELECT RAISE(ABORT, 'epochs: rows are never deleted');\nEND"), problem.DatabaseDamaged},
		{"with another table of transitions", statement("DROP TRIGGER allowed_transitions_complete; " +
			"INSERT INTO allowed_transitions VALUES ('settle', 'failed', 'succeeded'); " +
			"CREATE TRIGGER allowed_transitions_complete BEFORE INSERT ON allowed_transitions BEGIN\n" +
			"  SELECT RAISE(ABORT, 'allowed_transitions: complete');\nEND"), problem.DatabaseDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := storetest.Config(t, storetest.NewClock())
			if err := store.Create(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			t.Run("wreck", func(t *testing.T) { c.wreck(t, cfg.Path) }) // its connection is closed at its end
			refusesToOpen(t, cfg, c.code)
			// The lock was given back, and nothing was put in its place.
			refusesToOpen(t, cfg, c.code)
			if c.code == problem.DatabaseMissing {
				if _, err := os.Stat(cfg.Path); !errors.Is(err, fs.ErrNotExist) {
					t.Error("something was created")
				}
			}
		})
	}
}

// ANALYZE and the like leave tables of SQLite's own; those are no change.
func TestOpenAcceptsWhatSQLiteAddsItself(t *testing.T) {
	path := filled(t)
	t.Run("analyze", func(t *testing.T) { execute(t, stranger(t, path, "_journal_mode=WAL"), "ANALYZE") })
	cfg := storetest.Config(t, storetest.NewClock())
	cfg.Path = path
	storetest.Open(t, cfg)
}

func TestClosedDatabaseRefuses(t *testing.T) {
	db := storetest.Create(t, storetest.Config(t, storetest.NewClock()))
	if err := db.Writable(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if got := problem.CodeOf(db.Writable()); got != problem.NotWritable {
		t.Errorf("writable: %q", got)
	}
	if got := problem.CodeOf(db.Adopt(t.Context(), receipttest.Target("a"))); got != problem.NotWritable {
		t.Errorf("adopt: %q", got)
	}
	if _, err := db.Lookup(t.Context(), receipttest.Request(1)); problem.CodeOf(err) != problem.NotWritable {
		t.Errorf("lookup: %v", err)
	}
}

// unknown_request says which database doesn't know it.
func TestUnknownRequestNamesTheEpoch(t *testing.T) {
	db := storetest.Create(t, storetest.Config(t, storetest.NewClock()))
	_, err := db.Lookup(t.Context(), receipttest.Request(1))
	if p := problem.Outer(err); !strings.Contains(p.Message, db.Epoch()) || p.Hint == "" {
		t.Errorf("%q, %q", p.Message, p.Hint)
	}
}
