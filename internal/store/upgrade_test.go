package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// oldDatabase lays a database of schema version 1 down that holds a receipt in
// every state, as a masterd of then left it.
func oldDatabase(t *testing.T) store.Config {
	t.Helper()
	dump, err := os.ReadFile("testdata/version-1.sql")
	if err != nil {
		t.Fatal(err)
	}
	cfg := storetest.Config(t, storetest.NewClock())
	if err := os.WriteFile(cfg.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("lay down", func(t *testing.T) { // its connection is closed at its end
		conn := stranger(t, cfg.Path, "_journal_mode=WAL")
		execute(t, conn, string(dump))
		execute(t, conn, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 1", store.ApplicationID))
	})
	return cfg
}

// contents gives every row of the tables that an old database has.
func contents(t *testing.T, path string, only []table) (all []table, rows map[string]bool) {
	t.Helper()
	t.Run("read", func(t *testing.T) {
		conn := stranger(t, path, "mode=ro")
		if all = only; all == nil {
			all = tables(t, conn)
		}
		rows = rowsOf(t, conn, all)
	})
	return all, rows
}

// guardsIn gives the guards that a file really has.
func guardsIn(t *testing.T, path string) (out []string) {
	t.Helper()
	t.Run("guards", func(t *testing.T) {
		for _, row := range query(t, stranger(t, path, "mode=ro"),
			"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY name") {
			out = append(out, row[0])
		}
	})
	return out
}

// A database of the first schema is brought up to date when it is opened, says
// that no older masterd opens it any more, keeps every row, and goes on.
func TestUpgradeFromVersion1(t *testing.T) {
	ctx := t.Context()
	cfg := oldDatabase(t)
	old, before := contents(t, cfg.Path, nil)
	if len(before) < 60 {
		t.Fatalf("%d rows", len(before))
	}
	var log bytes.Buffer
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
	db := storetest.Open(t, cfg)
	if !strings.Contains(log.String(), "from=1") || !strings.Contains(log.String(), "backup") {
		t.Errorf("the log doesn't tell of it: %s", log.String())
	}
	byState := map[receipt.State]receipt.Receipt{}
	list, err := db.List(ctx, store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		byState[r.State] = r
	}
	for _, s := range receipt.States() {
		if byState[s].Request == "" {
			t.Errorf("no receipt is %s", s)
		}
	}
	if lost := byState[receipt.Uncertain]; !lost.LostAt.Equal(receipttest.Epoch) {
		t.Errorf("uncertain since %s", lost.LostAt)
	}

	// What was adopted then has told nothing yet, and is held to what it tells now.
	waiting := byState[receipt.Queued]
	for _, r := range list {
		if r.State == receipt.Queued && r.Body.Target == "waiting" {
			waiting = r
		}
	}
	told := linesOf(t, db, "waiting").Tell("ledger-waiting", 5)
	if told.Known != 0 || told.Adoption == 0 {
		t.Fatalf("%+v", told)
	}
	claim := receipttest.Claim("waiting")
	claim.Told = told
	if r, err := db.Claim(ctx, waiting.Request, waiting.Seq, claim); err != nil || r.State != receipt.Dispatching {
		t.Fatalf("%+v %v", r, err)
	}
	if line := linesOf(t, db, "waiting")["ledger-waiting"]; line.Generation != 5 {
		t.Errorf("%+v", line)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, after := contents(t, cfg.Path, old)
	for row := range before {
		if !after[row] && !strings.HasPrefix(row, "receipts|"+waiting.Request) {
			t.Errorf("gone or changed: %s", row)
		}
	}
	want, err := store.Guards(ctx, store.SchemaVersion)
	if err != nil {
		t.Fatal(err)
	}
	if got := guardsIn(t, cfg.Path); !slices.Equal(got, want) {
		t.Errorf("%d guards, a new database has %d", len(got), len(want))
	}
	log.Reset()
	storetest.Open(t, cfg)
	if log.Len() > 0 {
		t.Errorf("brought up twice: %s", log.String())
	}
}

func linesOf(t *testing.T, db *store.DB, target string) receipt.Lines {
	t.Helper()
	lines, err := db.Lines(context.WithoutCancel(t.Context()), target)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// The frozen database has the guards that version 1 is released with, and a new
// one those of the newest version.
func TestGuardsOfEachVersion(t *testing.T) {
	want, err := store.Guards(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := guardsIn(t, oldDatabase(t).Path); !slices.Equal(got, want) {
		t.Errorf("%d guards, version 1 has %d", len(got), len(want))
	}
	if want, err = store.Guards(t.Context(), store.SchemaVersion); err != nil {
		t.Fatal(err)
	}
	cfg := storetest.Config(t, storetest.NewClock())
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if got := guardsIn(t, cfg.Path); !slices.Equal(got, want) {
		t.Errorf("%d guards, version %d has %d", len(got), store.SchemaVersion, len(want))
	}
}

// An old database whose guards were changed isn't brought up to date: it is
// refused as it is.
func TestUpgradeRefusesChangedGuards(t *testing.T) {
	for name, wreck := range map[string]string{
		"a trigger dropped":      "DROP TRIGGER transitions_never_changes",
		"a table of a later one": "CREATE TABLE generations (x)",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := oldDatabase(t)
			t.Run("wreck", func(t *testing.T) { execute(t, stranger(t, cfg.Path, "_journal_mode=WAL"), wreck) })
			refusesToOpen(t, cfg, problem.DatabaseDamaged)
		})
	}
}

// A backup of an old database stays one: the masterd that it comes from can
// still use it. Restored, it is brought up when masterd opens it.
func TestBackupDoesNotUpgrade(t *testing.T) {
	ctx := t.Context()
	cfg := oldDatabase(t)
	to := cfg.Path + ".backup"
	if err := store.Backup(ctx, cfg.Path, to); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{cfg.Path, to} {
		t.Run("version", func(t *testing.T) {
			if v := query(t, stranger(t, path, "mode=ro"), "PRAGMA user_version")[0][0]; v != "1" {
				t.Errorf("%s has version %s", path, v)
			}
		})
	}
	restored := storetest.Config(t, storetest.NewClock())
	restored.Random = strings.NewReader("another epoch's.") // the old one came of the tests' own randomness
	if _, err := store.Restore(ctx, restored, to); err != nil {
		t.Fatal(err)
	}
	db := storetest.Open(t, restored)
	list, err := db.List(ctx, store.Filter{})
	if err != nil || len(list) == 0 || !list[0].Carried && !list[0].FromLedger {
		t.Errorf("%d receipts (%v)", len(list), err)
	}
}

// The words of the domain that stand in the schema's text are the domain's.
func TestSchemaHasTheDomainsWords(t *testing.T) {
	cfg := storetest.Config(t, storetest.NewClock())
	if err := store.Create(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	conn := stranger(t, cfg.Path, "mode=ro")
	domain, database := map[string]bool{}, map[string]bool{}
	for _, tr := range receipt.Transitions() {
		domain[fmt.Sprint(tr.Event, tr.From, tr.To)] = true
	}
	for _, row := range query(t, conn, "SELECT event, from_state, to_state FROM allowed_transitions") {
		database[fmt.Sprint(row[0], row[1], row[2])] = true
	}
	if !maps.Equal(domain, database) {
		t.Errorf("transitions %v, the domain has %v", database, domain)
	}
	list := func(keep func(receipt.State) bool) string {
		var out []string
		for _, s := range receipt.States() {
			if keep(s) {
				out = append(out, "'"+string(s)+"'")
			}
		}
		return "(" + strings.Join(out, ", ") + ")"
	}
	open := func(s receipt.State) bool { return s == receipt.Queued || s.Busy() }
	for object, words := range map[string]string{
		"receipts":                  list(func(receipt.State) bool { return true }),
		"receipts_busy":             list(receipt.State.Busy),
		"receipts_open":             list(open),
		"receipts_confirmed":        list(receipt.State.Terminal),
		"receipts_unresolved":       list(receipt.State.Unresolved),
		"receipts_made_by_requests": list(open),
		"transitions":               list(receipt.State.Terminal),
		"transitions_fit":           list(receipt.State.Busy),
		"requests":                  "('custom', 'configure', 'production', 'resize')",
	} {
		if text := query(t, conn, "SELECT sql FROM sqlite_schema WHERE name = '"+object+"'")[0][0]; !strings.Contains(text, words) {
			t.Errorf("%s doesn't have %s", object, words)
		}
	}
}
