package store

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// applicationID marks our databases in the file's own header: "OdSR".
const applicationID = 0x4f645352

var (
	//go:embed schema/1.sql
	version1 string
	//go:embed schema/2.sql
	version2 string
)

// steps bring a database from each schema version to the next: steps[0] makes
// version 1 of an empty one. A new database is made by all of them and an older
// one is brought up by those that it lacks, so both are the same to the letter,
// and a step may be any SQL, ALTER TABLE too. What is released never changes (a
// test holds it): another schema is another file and another line here. Words of
// the domain (states, profiles, transitions) stand in the files as they were
// then; where the domain gets another one a step brings it to the database, and
// tests compare the two.
var steps = []string{version1, version2}

// schemaVersion is what this program reads and writes.
func schemaVersion() int { return len(steps) }

// querier is a connection, a pool, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// raise brings a database from one schema version to another, and says so in it.
func raise(ctx context.Context, q querier, from, to int) error {
	for n, step := range steps[from:to] {
		if _, err := q.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("schema version %d: %w", from+n+1, err)
		}
	}
	_, err := q.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", to))
	return err
}

// checkVersion gives the schema version of a database whose guards are as that
// version made them.
func checkVersion(ctx context.Context, q querier) (version int, err error) {
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	switch {
	case version > schemaVersion():
		return 0, problem.New(problem.DatabaseNewer, "the receipt database has schema version %d, this masterd knows %d", version, schemaVersion()).
			WithHint("it was used by a newer masterd: install that one again; an older one can't read it safely")
	case version < 1:
		return 0, problem.New(problem.DatabaseOlder, "the receipt database has schema version %d, which this masterd can't bring up to %d", version, schemaVersion()).
			WithHint("start the masterd version between the two once, or restore a newer backup")
	}
	return version, checkSchema(ctx, q, version)
}

// bringUp makes an older database one of this program's schema, in one
// transaction: whole, or not at all.
func bringUp(ctx context.Context, conn *sql.Conn, from int, path string, log hclog.Logger) error {
	if from == schemaVersion() {
		return nil
	}
	err := raiseAtOnce(ctx, conn, from)
	var known *problem.Error
	switch {
	case errors.As(err, &known) || damaged(err):
		return err
	case err != nil:
		return problem.Wrap(problem.NotWritable, err, "the receipt database can't be brought from schema version %d to %d", from, schemaVersion()).
			WithHint("nothing was changed in it: the masterd that it comes from still opens it; look for a full or read-only disk")
	}
	log.Warn("the receipt database was brought to a newer schema; an older masterd doesn't open it any more. "+
		"To go back to one, put a backup from before in its place with masterd restore",
		"path", path, "from", from, "to", schemaVersion())
	return nil
}

func raiseAtOnce(ctx context.Context, conn *sql.Conn, from int) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := raise(ctx, tx, from, schemaVersion()); err != nil {
		return err
	}
	if err := checkSchema(ctx, tx, schemaVersion()); err != nil {
		return err
	}
	return tx.Commit()
}

// checkSchema compares what guards a database with what this program makes for
// that version: a trigger that somebody dropped is found here, and so is a table
// of transitions other than the domain's.
func checkSchema(ctx context.Context, q querier, version int) error {
	changed := func(what string) error {
		return problem.New(problem.DatabaseDamaged, "the receipt database's own guards were changed: %s", what).
			WithHint("keep the file for investigation; put the newest backup in its place with masterd restore")
	}
	want, err := guardsOf(ctx, version)
	if err != nil {
		return err
	}
	got, err := readGuards(ctx, q)
	if err != nil {
		return err
	}
	for _, text := range got.schema {
		if !slices.Contains(want.schema, text) {
			return changed("something was added")
		}
	}
	if len(got.schema) != len(want.schema) {
		return changed("something is missing")
	}
	if !slices.Equal(got.transitions, want.transitions) {
		return changed("its table of transitions")
	}
	return nil
}

// guards are what a database refuses changes with.
type guards struct {
	schema      []string // the text of every table, index and trigger
	transitions []string
}

func readGuards(ctx context.Context, q querier) (g guards, err error) {
	g.schema, err = texts(ctx, q, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY name")
	if err != nil {
		return g, err
	}
	g.transitions, err = texts(ctx, q, "SELECT event || ' ' || from_state || ' ' || to_state FROM allowed_transitions ORDER BY 1")
	return g, err
}

// guardsOf makes an empty database of a version, in memory, and reads them.
func guardsOf(ctx context.Context, version int) (g guards, err error) {
	p := pool("", sketching, 1)
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := raise(ctx, p, 0, version); err != nil {
		return g, err
	}
	return readGuards(ctx, p)
}

func texts(ctx context.Context, q querier, query string) (out []string, err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// states of the domain, sorted by what statements need.
func statesWhere(keep func(receipt.State) bool) string {
	var out []string
	for _, s := range receipt.States() {
		if keep(s) {
			out = append(out, "'"+string(s)+"'")
		}
	}
	return "(" + strings.Join(out, ", ") + ")"
}

func busyStates() string       { return statesWhere(receipt.State.Busy) }
func terminalStates() string   { return statesWhere(receipt.State.Terminal) }
func unresolvedStates() string { return statesWhere(receipt.State.Unresolved) }

// openStates are those that a second request of the same key is bound to.
func openStates() string {
	return statesWhere(func(s receipt.State) bool { return s == receipt.Queued || s.Busy() })
}
