package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

var update = flag.Bool("update", false, "write the text of a schema version that isn't released yet")

// The released text of a schema version never changes: another schema needs
// another version, which is another file.
func TestSchemaIsAsReleased(t *testing.T) {
	for i, got := range store.Steps() {
		file := fmt.Sprintf("testdata/schema-%d.sql", i+1)
		if _, err := os.Stat(file); *update && os.IsNotExist(err) { // what is released stays
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("schema/%d.sql isn't %s any more: put it back, and add another version", i+1, file)
		}
	}
}

// stranger opens a database as any other program would.
func stranger(t *testing.T, path, settings string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+"?_busy_timeout=5000&"+settings)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// strangers are connections with the settings that guards could hang on.
var strangers = map[string]string{
	"ours":                       "_recursive_triggers=1&_foreign_keys=1",
	"without recursive triggers": "_recursive_triggers=0&_foreign_keys=1",
	"with nothing":               "_recursive_triggers=0&_foreign_keys=0",
}

// filled makes a database with rows in every table, receipts in every state
// among them, and closes it.
func filled(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	clock := storetest.NewClock()
	cfg := storetest.Config(t, clock)
	if err := store.Create(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	bind := func(target string) receipt.Receipt {
		n++
		must(db.Adopt(ctx, receipttest.Target(target)))
		text := fmt.Sprint(n)
		b, err := storetest.Bind(ctx, db, receipttest.Binding(n, target, text), text)
		must(err)
		return b.Execution
	}
	claim := func(r receipt.Receipt) receipt.Receipt {
		r, err := db.Claim(ctx, r.Request, r.Seq, receipttest.Claim(r.Body.Target))
		must(err)
		return r
	}
	apply := func(r receipt.Receipt, e receipt.Event) receipt.Receipt {
		r, err := db.Apply(ctx, r.Request, r.Seq, e)
		must(err)
		return r
	}
	at := clock.Now()
	apply(claim(bind("done")), receipttest.Finish(at, 3, 3))
	apply(claim(bind("failed")), receipttest.Finish(at, 3, 1))
	apply(bind("refused"), receipt.Refuse(at, problem.ExecutorSilent, nil))
	settle := func(target string) {
		settled := apply(apply(claim(bind(target)), receipttest.Lose(at)), receipttest.Settle(at, receipt.Failed))
		must(db.Delivered(ctx, settled.Request))
	}
	settle("settled")
	lost := apply(claim(bind("lost")), receipttest.Lose(at))
	bind("waiting")
	busy := claim(bind("busy"))
	bind("busy") // waits behind it
	apply(claim(bind("acknowledged")), receipt.Acknowledge(at))
	alias := receipttest.Binding(100, "busy", busy.Body.Digest)
	alias.Body.Digest = busy.Body.Digest
	_, err = storetest.Bind(ctx, db, receipttest.Binding(100, "waiting", "6"), "6")
	must(err)
	settle("settled too")
	_, err = db.FromLedger(ctx, receipt.Record{
		Request: receipttest.Request(200), Target: "old", Instance: receipttest.Instance("old"), Profile: receipt.Custom,
		Digest: busy.Body.Digest, Ledger: "ledger-old", Code: problem.Interrupted,
	})
	must(err)
	must(db.Witness(ctx, receipt.Witness{Request: lost.Request, At: at, Kind: "evidence", Result: "absent", Ledger: "l"}))
	must(db.Witness(ctx, receipt.Witness{Request: lost.Request, At: at, Kind: "evidence", Result: "absent", Code: "x"}))
	lines, err := db.Lines(ctx, "lost")
	must(err)
	told := lines.Tell("ledger-lost", 7)
	must(db.Told(ctx, told))
	told.Known, told.Generation = 7, 3
	must(db.Told(ctx, told))
	other, err := db.Lines(ctx, "done")
	must(err)
	must(db.Told(ctx, other.Tell("ledger-done", 9)))
	for i, id := range []string{"aa", "bb"} {
		must(db.CreateToken(ctx, store.Token{ID: id, Hash: [32]byte{byte(i + 1)}, Scope: "custom", CreatedAt: at}))
	}
	_, err = db.RevokeToken(ctx, "aa", "root")
	must(err)
	must(db.Close())
	return cfg.Path
}

// table is what SQLite itself says of a table.
type table struct {
	name     string
	columns  []string
	hasRowid bool
}

func tables(t *testing.T, conn *sql.Conn) []table {
	t.Helper()
	var out []table
	for _, row := range query(t, conn, "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite%' ORDER BY name") {
		tb := table{name: row[0], hasRowid: row[1] == "0"}
		for _, c := range query(t, conn, "SELECT name FROM pragma_table_info('"+tb.name+"')") {
			tb.columns = append(tb.columns, c[0])
		}
		out = append(out, tb)
	}
	return out
}

func query(t *testing.T, conn *sql.Conn, q string) (out [][]string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), q)
	if err != nil {
		t.Fatalf("%v in %s", err, q)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(row))
		for i, v := range row {
			texts[i] = v.String
			if !v.Valid {
				texts[i] = "NULL"
			}
		}
		out = append(out, texts)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// rowsOf gives every row, with its rowid where it has one, as a set.
func rowsOf(t *testing.T, conn *sql.Conn, all []table) map[string]bool {
	t.Helper()
	rows := map[string]bool{}
	for _, tb := range all {
		what := "*"
		if tb.hasRowid {
			what = "rowid, *"
		}
		for _, row := range query(t, conn, "SELECT "+what+" FROM "+tb.name) {
			rows[tb.name+"|"+strings.Join(row, "|")] = true
		}
	}
	return rows
}

// Issue 5: DELETE, UPDATE, INSERT OR REPLACE, UPDATE OR REPLACE, UPSERT and a
// rowid change on every column of every table, on every row, are refused by the
// database itself, whatever the settings of the program that tries.
func TestDatabaseRefusesToChangeWhatIsRecorded(t *testing.T) {
	path := filled(t)
	for name, settings := range strangers {
		t.Run(name, func(t *testing.T) {
			conn := stranger(t, path, settings)
			all := tables(t, conn)
			before := rowsOf(t, conn, all)
			tried := 0
			for _, tb := range all {
				if len(query(t, conn, "SELECT 1 FROM "+tb.name)) < 1 {
					t.Errorf("table %s has no rows to try on", tb.name)
				}
				for _, a := range attacks(tb) {
					tried++
					attack(t, conn, all, before, a)
				}
			}
			t.Logf("%d statements on %d tables refused", tried, len(all))
			if after := rowsOf(t, conn, all); !maps.Equal(after, before) {
				t.Error("something was changed")
			}
		})
	}
}

// attempt is one hostile statement. mayAppend says that a new row is no harm,
// as long as every old one stays.
type attempt struct {
	sql       string
	mayAppend bool
}

func attacks(tb table) []attempt {
	var out []attempt
	add := func(mayAppend bool, format string, args ...any) {
		out = append(out, attempt{fmt.Sprintf(format, args...), mayAppend})
	}
	columns := strings.Join(tb.columns, ", ")
	add(false, "DELETE FROM %s", tb.name)
	add(false, "DELETE FROM %s WHERE %s IS NOT NULL", tb.name, tb.columns[0])
	add(false, "DELETE FROM %s WHERE %s = (SELECT max(%[2]s) FROM %[1]s)", tb.name, tb.columns[0])
	for _, verb := range []string{"INSERT OR REPLACE", "REPLACE", "INSERT", "INSERT OR IGNORE", "INSERT OR FAIL", "INSERT OR ROLLBACK"} {
		add(false, "%s INTO %s SELECT * FROM %[2]s", verb, tb.name)
	}
	if tb.hasRowid {
		for _, id := range []string{"rowid", "_rowid_", "oid"} {
			add(false, "UPDATE %s SET %s = %[2]s + 1000", tb.name, id)
			add(false, "UPDATE OR REPLACE %s SET %s = 1", tb.name, id)
			add(false, "INSERT OR REPLACE INTO %s (%s, %s) SELECT %[2]s, %[3]s FROM %[1]s", tb.name, id, columns)
		}
	}
	for i, c := range tb.columns {
		for _, value := range []string{c, "(SELECT max(" + c + ") FROM " + tb.name + ")", "NULL", "1", "'x'", "x'01'"} {
			for _, verb := range []string{"UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL"} {
				add(false, "%s %s SET %s = %s", verb, tb.name, c, value)
			}
			changed := slices.Clone(tb.columns)
			changed[i] = value
			list := strings.Join(changed, ", ")
			for _, verb := range []string{"INSERT OR REPLACE", "INSERT OR IGNORE"} {
				add(true, "%s INTO %s (%s) SELECT %s FROM %[2]s", verb, tb.name, columns, list)
			}
			add(true, "INSERT INTO %s (%s) SELECT %s FROM %[1]s WHERE true ON CONFLICT DO UPDATE SET %[4]s = %[5]s",
				tb.name, columns, list, c, value)
			add(true, "INSERT INTO %s (%s) SELECT %s FROM %[1]s WHERE true ON CONFLICT DO NOTHING", tb.name, columns, list)
		}
	}
	return out
}

// attack runs one statement and takes back whatever it did.
func attack(t *testing.T, conn *sql.Conn, all []table, before map[string]bool, a attempt) {
	t.Helper()
	ctx := t.Context()
	execute(t, conn, "BEGIN IMMEDIATE")
	result, err := conn.ExecContext(ctx, a.sql)
	var count int64
	if err == nil {
		count, _ = result.RowsAffected()
		after := rowsOf(t, conn, all)
		for row := range before {
			if !after[row] {
				t.Errorf("%s: gone or changed: %s", a.sql, row)
				break
			}
		}
		if count > 0 && !a.mayAppend {
			t.Errorf("%s: not refused (%d rows)", a.sql, count)
		}
	} else if e := (sqlite3.Error{}); !errors.As(err, &e) ||
		!slices.Contains([]sqlite3.ErrNo{sqlite3.ErrConstraint, sqlite3.ErrMismatch, sqlite3.ErrError}, e.Code) {
		t.Errorf("%s: %v", a.sql, err)
	} else if e.Code == sqlite3.ErrError {
		t.Errorf("%s isn't even SQL: %v", a.sql, err)
	}
	// OR ROLLBACK has already ended it.
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil && !strings.Contains(a.sql, "OR ROLLBACK") {
		t.Fatalf("%s: %v", a.sql, err)
	}
}

func execute(t *testing.T, conn *sql.Conn, q string, args ...any) {
	t.Helper()
	if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), q, args...); err != nil {
		t.Fatalf("%v in %s", err, q)
	}
}
