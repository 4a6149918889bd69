package store

import (
	"bytes"
	"database/sql"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// No statement of the write path looks at more rows than it needs: every table
// is searched by a key or an index.
func TestStatementsSearchByIndex(t *testing.T) {
	ctx := t.Context()
	now := func() time.Time { return time.UnixMicro(1) }
	cfg := Config{Path: filepath.Join(t.TempDir(), "receipts.db"), Now: now, Random: bytes.NewReader(make([]byte, 16))}
	if err := Create(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	p := pool(cfg.Path, reading, 1)
	defer func() { _ = p.Close() }()
	r := &reads{}
	whole := map[**sql.Stmt]bool{
		&r.tokens: true, &r.stats: true, &r.unresolved: true, &r.lastJID: true,
		&r.conflicts: true, &r.debts: true, &r.epochs: true,
	}
	for _, s := range r.plan() {
		if regexp.MustCompile(`[=<>] *\?\d`).MatchString(s.query) {
			t.Errorf("a bare value in a WHERE makes SQLite plan anew at each use (see plan): %s", s.query)
		}
		rows, err := p.QueryContext(ctx, "EXPLAIN QUERY PLAN "+s.query, args(s.query)...)
		if err := each(rows, err, func(row scanner) error {
			var id, parent, unused int
			var detail string
			if err := row.Scan(&id, &parent, &unused, &detail); err != nil {
				return err
			}
			if strings.HasPrefix(detail, "SCAN") && detail != "SCAN CONSTANT ROW" &&
				detail != "SCAN epochs" && !whole[s.to] { // of epochs one row is read, the newest
				t.Errorf("%s: %s", s.query, detail)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// args gives as many as a query's highest number asks for.
func args(query string) (out []any) {
	for _, n := range []string{"?1", "?2", "?3", "?4"} {
		if strings.Contains(query, n) {
			out = append(out, "x")
		}
	}
	return out
}

// A database that can't keep its promises isn't used: one in memory has no WAL.
func TestConnectionWithoutWALIsRefused(t *testing.T) {
	conn, err := (&connector{path: ":memory:", mode: creating}).Connect(t.Context())
	if err == nil {
		_ = conn.Close()
	}
	if problem.CodeOf(err) != problem.DatabaseUnsafe || problem.Outer(err).Hint == "" {
		t.Fatal(err)
	}
}

// A step is done whole, with its version, or not at all; several are one
// transaction.
func TestStepsAreAllOrNothing(t *testing.T) {
	ctx := t.Context()
	cfg := Config{
		Path: filepath.Join(t.TempDir(), "receipts.db"), Random: bytes.NewReader(make([]byte, 16)),
		Now: func() time.Time { return time.UnixMicro(1) },
	}
	if err := Create(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	released := steps
	defer func() { steps = released }()
	is := func(want int) {
		t.Helper()
		p := pool(cfg.Path, reading, 1)
		var version, tables int
		err := p.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
		err = errors.Join(err, p.QueryRowContext(ctx,
			"SELECT count(*) FROM sqlite_schema WHERE name IN ('one', 'two')").Scan(&tables), p.Close())
		if err != nil || version != want || tables != want-len(released) {
			t.Errorf("version %d with %d new tables (%v), want version %d", version, tables, err, want)
		}
	}
	one, two := "CREATE TABLE one (x INTEGER);", "CREATE TABLE two (x INTEGER); ALTER TABLE one ADD COLUMN y INTEGER;"
	orphans := "PRAGMA defer_foreign_keys = 1; CREATE TABLE two (x INTEGER REFERENCES epochs (n)); INSERT INTO two VALUES (99);"
	for _, second := range []string{"CREATE TABLE two (x INTEGER); CREATE nonsense", orphans} {
		steps = append(released[:len(released):len(released)], one, second)
		for range 2 { // the second finds what the first left: nothing
			db, err := Open(ctx, cfg)
			if err == nil {
				_ = db.Close()
			}
			if problem.CodeOf(err) != problem.NotWritable || problem.Outer(err).Hint == "" {
				t.Fatalf("a broken step was taken: %v", err)
			}
			is(len(released))
		}
	}
	steps = append(released[:len(released):len(released)], one, two)
	for range 2 {
		db, err := Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		is(len(released) + 2)
	}
}
