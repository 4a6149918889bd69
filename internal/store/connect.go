package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// mode says what a connection may do.
type mode int

const (
	creating  mode = iota + 1 // a fresh file
	writing                   // an existing file
	reading                   // an existing file, never changed by this connection
	copying                   // an existing file, to be copied by VACUUM INTO
	sketching                 // no file: an empty database in memory, to compare with
)

// walLimit bounds what a checkpoint leaves of the WAL file.
const walLimit = 16 << 20

// dataSource spells out every setting that durability or append-only hangs on.
// The driver's own defaults are weaker: in WAL mode it takes synchronous=NORMAL,
// with which a commit can vanish at power loss.
func dataSource(path string, m mode) string {
	q := url.Values{}
	q.Set("_busy_timeout", "5000")
	q.Set("_synchronous", "FULL")
	q.Set("_foreign_keys", "1")
	q.Set("_recursive_triggers", "1")
	q.Set("_cache_size", "-1024") // KiB a connection; it is taken only as far as it is used
	switch m {
	case creating:
		q.Set("mode", "rwc")
		q.Set("_journal_mode", "WAL")
	case writing:
		q.Set("mode", "rw")
		q.Set("_txlock", "immediate")
		q.Set("_cache_size", "-4096") // a batch that doesn't fit is written twice
		q.Set("_journal_mode", "WAL")
	case reading:
		q.Set("mode", "ro")
		q.Set("_query_only", "1")
	case copying:
		q.Set("mode", "rw") // a WAL that a killed masterd left is read too
	case sketching:
		q.Set("mode", "memory")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// connector makes connections and reads back, on each of them, what was asked
// for: database/sql may open a new one at any time.
type connector struct {
	path   string
	mode   mode
	driver sqlite3.SQLiteDriver
}

func (c *connector) Driver() driver.Driver { return &c.driver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(dataSource(c.path, c.mode))
	if err != nil {
		return nil, err
	}
	sqlite, ok := conn.(*sqlite3.SQLiteConn)
	if !ok {
		_ = conn.Close()
		return nil, problem.New(problem.Internal, "the SQLite driver gave a %T", conn)
	}
	if err := c.readBack(ctx, sqlite); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// promised are the settings without which nothing is kept as promised.
var promised = []struct{ pragma, want string }{
	{"journal_mode", "wal"},
	{"synchronous", "2"},
	{"recursive_triggers", "1"},
	{"foreign_keys", "1"},
}

func (c *connector) readBack(ctx context.Context, conn *sqlite3.SQLiteConn) error {
	if c.mode == copying || c.mode == sketching {
		return nil // it promises nothing: the copy is checked instead, and the sketch is thrown away
	}
	for _, p := range promised {
		got, err := pragma(ctx, conn, p.pragma)
		if err != nil {
			return err
		}
		if got != p.want {
			return problem.New(problem.DatabaseUnsafe, "the receipt database has %s=%s, not %s", p.pragma, got, p.want).
				WithHint("WAL needs a local file system that can lock and map files; keep the database on one")
		}
	}
	if c.mode == writing {
		// Not in the DSN's vocabulary.
		_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA journal_size_limit=%d", walLimit), nil)
		return err
	}
	return nil
}

func pragma(ctx context.Context, conn *sqlite3.SQLiteConn, name string) (value string, err error) {
	rows, err := conn.QueryContext(ctx, "PRAGMA "+name, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	got := make([]driver.Value, 1)
	if err := rows.Next(got); err != nil {
		return "", err
	}
	return strings.ToLower(fmt.Sprint(got[0])), nil
}

// pool gives a database/sql pool of at most n connections.
func pool(path string, m mode, n int) *sql.DB {
	p := sql.OpenDB(&connector{path: path, mode: m})
	p.SetMaxOpenConns(n)
	p.SetMaxIdleConns(n)
	return p
}

// Which errors of SQLite mean what. Its texts are never looked at.

func sqliteError(err error) (sqlite3.Error, bool) {
	var e sqlite3.Error
	ok := errors.As(err, &e)
	return e, ok
}

// refusedByGuard says that a CHECK, trigger or key refused one statement. The
// transaction is as it was before that statement.
func refusedByGuard(err error) bool {
	e, ok := sqliteError(err)
	return ok && e.Code == sqlite3.ErrConstraint
}

// damaged says that the file isn't, or is no longer, a sound database.
func damaged(err error) bool {
	e, ok := sqliteError(err)
	return ok && e.Code == sqlite3.ErrCorrupt
}

// syncFailed says that a sync failed: what the kernel shows of the file since
// then need not be on disk.
func syncFailed(err error) bool {
	e, ok := sqliteError(err)
	return ok && (e.ExtendedCode == sqlite3.ErrIoErrFsync || e.ExtendedCode == sqlite3.ErrIoErrDirFsync)
}

func notADatabase(err error) bool {
	e, ok := sqliteError(err)
	return ok && e.Code == sqlite3.ErrNotADB
}
