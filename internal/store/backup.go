package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Epoch is one beginning of a database.
type Epoch struct {
	ID    string
	At    time.Time
	Cause string // init or restore
}

// companions are the files that SQLite keeps beside a database.
var companions = []string{"", "-wal", "-journal", "-shm"}

// Backup writes a copy of the database at path to a new file, mode 0600, whole
// and synced. masterd may be working meanwhile: the copy is one committed state.
func Backup(ctx context.Context, path, to string) (err error) {
	if err := checkHeader(path); err != nil {
		return err
	}
	part := to + ".part"
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return problem.Wrap(problem.DatabaseExists, err, "%s exists already", to).
			WithHint("a backup never replaces a file: give another name, or move the old one away")
	}
	if err := removeAll(part); err != nil { // of a backup that was killed
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(part))
		}
	}()
	if err := copyTo(ctx, path, part); err != nil {
		return err
	}
	if err := os.Link(part, to); err != nil {
		return problem.Wrap(problem.NotWritable, err, "the backup can't be put in its place")
	}
	if err := removeAll(part); err != nil {
		return err
	}
	return syncPath(filepath.Dir(to))
}

// copyTo copies the committed state of a database, checks the copy and syncs it.
func copyTo(ctx context.Context, path, to string) error {
	failed := func(err error) error {
		return problem.Wrap(problem.NotWritable, err, "%s can't be copied to %s", path, to).
			WithHint("both must be readable and writable for this user, with room for a second copy")
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return failed(err)
	}
	if err := f.Close(); err != nil {
		return failed(err)
	}
	from := pool(path, copying, 1)
	_, err = from.ExecContext(ctx, "VACUUM INTO ?", to)
	if err := errors.Join(err, from.Close()); err != nil {
		return explain(failedUnlessDamaged(err, failed), path)
	}
	// Read back as masterd would: a copy that can't be used is no backup.
	copied := pool(to, writing, 1)
	conn, err := copied.Conn(ctx)
	if err == nil {
		err = errors.Join(checkCopy(ctx, conn), conn.Close())
	}
	if err := errors.Join(err, copied.Close()); err != nil {
		return explain(err, to)
	}
	return syncPath(to)
}

func failedUnlessDamaged(err error, failed func(error) error) error {
	if damaged(err) || notADatabase(err) {
		return err
	}
	return failed(err)
}

func checkCopy(ctx context.Context, conn *sql.Conn) error {
	if err := checkSound(ctx, conn); err != nil {
		return err
	}
	if _, err := checkVersion(ctx, conn); err != nil { // an older one stays one: it is brought up where it is opened
		return err
	}
	return checkpoint(ctx, conn)
}

func checkpoint(ctx context.Context, conn *sql.Conn) error {
	var busy, frames, moved int
	return conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
}

// Restored says what a restore has done.
type Restored struct {
	Epoch    string // the new one
	Replaced string // where the database that was there lies now, "" if there was none
	Waiting  int    // receipts that waited in the copy: none of them is started
	Open     int    // receipts without an outcome besides those
}

// Restore puts a copy in the place of the database, as a new epoch. It is
// refused while a masterd has the database open. What was there is kept aside.
// from may be the database's own file: then that one begins a new epoch.
func Restore(ctx context.Context, cfg Config, from string) (r Restored, err error) {
	if cfg, err = cfg.checked(); err != nil {
		return r, err
	}
	if err := ownFolder(cfg.Path); err != nil {
		return r, err
	}
	if err := checkThere(from); err != nil {
		return r, problem.Wrap(problem.DatabaseMissing, err, "there is no backup at %s", from).WithHint("give the path of a file that masterd backup wrote")
	}
	held, err := lock(cfg.Path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := checkHeader(from); err != nil {
		return r, err
	}
	fresh := cfg.Path + ".restore"
	if err := removeAll(fresh); err != nil { // of a restore that was killed
		return r, err
	}
	if err := copyTo(ctx, from, fresh); err != nil {
		return r, errors.Join(err, removeAll(fresh))
	}
	m, err := r.begin(ctx, cfg, fresh)
	if err != nil {
		return r, errors.Join(problem.Wrap(problem.NotWritable, err, "a new epoch can't be begun in the copy"), removeAll(fresh))
	}
	if r.Replaced, err = setAside(cfg.Path, cfg.Now()); err != nil {
		return r, err
	}
	if err := os.Rename(fresh, cfg.Path); err != nil {
		return r, problem.Wrap(problem.NotWritable, err, "the copy can't be put in its place: it lies at %s", fresh)
	}
	if err := writeMark(held, m); err != nil {
		return r, problem.Wrap(problem.NotWritable, err, "the lock of the receipt database can't be written")
	}
	return r, errors.Join(removeAll(fresh), syncPath(filepath.Dir(cfg.Path)))
}

// ownFolder: files that another user made here couldn't be used by masterd.
func ownFolder(path string) error {
	owner, err := ownerOf(filepath.Dir(path))
	if err != nil {
		return problem.Wrap(problem.NotWritable, err, "the folder of the receipt database can't be looked at")
	}
	if owner != os.Geteuid() {
		return problem.New(problem.Forbidden, "the folder of the receipt database belongs to uid %d, not to us", owner).
			WithHint("run it as masterd's own user")
	}
	return nil
}

// begin writes the new epoch into the copy.
func (r *Restored) begin(ctx context.Context, cfg Config, path string) (m mark, err error) {
	if r.Epoch, err = newEpoch(cfg.Random); err != nil {
		return m, err
	}
	p := pool(path, writing, 1)
	defer func() { err = errors.Join(err, p.Close(), syncPath(path)) }()
	conn, err := p.Conn(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	m.epoch = r.Epoch
	for query, into := range map[string]any{
		"SELECT coalesce(max(n), 0) FROM requests":                                                 &m.requests,
		"SELECT coalesce(max(n), 0) FROM transitions":                                              &m.transitions,
		"SELECT count(*) FROM receipts WHERE state = 'queued'":                                     &r.Waiting,
		"SELECT count(*) FROM receipts WHERE state <> 'queued' AND state IN " + unresolvedStates(): &r.Open,
	} {
		if err := conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return m, err
		}
	}
	_, err = conn.ExecContext(ctx, "INSERT INTO epochs (epoch, at, cause, bound) VALUES (?, ?, 'restore', ?)",
		r.Epoch, cfg.Now().UnixMicro(), m.requests)
	if err != nil {
		return m, err
	}
	return m, checkpoint(ctx, conn)
}

// setAside moves a database and what SQLite keeps beside it out of the way. The
// database's own name goes last: as long as it is there, nothing was lost.
func setAside(path string, now time.Time) (aside string, err error) {
	aside = fmt.Sprintf("%s.replaced-%s", path, now.UTC().Format("20060102T150405.000000Z"))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		aside = ""
	}
	for i := len(companions) - 1; i >= 0; i-- {
		to := aside
		if to == "" {
			to = path + ".left"
		}
		err := os.Rename(path+companions[i], to+companions[i])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aside, problem.Wrap(problem.NotWritable, err, "the database that is there can't be moved aside")
		}
	}
	return aside, nil
}
