package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	stdhex "encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Phase says on which side of a step a fault is put.
type Phase string

// The phases. An error from Before means that the step isn't done; one from
// After means that it is done and we are told that it failed.
const (
	Before Phase = "before"
	After  Phase = "after"
)

// Config of a database. Now and Random must be set; the rest but Path may be
// left zero.
type Config struct {
	Path   string
	Now    func() time.Time
	Random io.Reader
	Logger hclog.Logger
	// Steps is the seam for fault tests: it is called around each named step
	// ("store.commit", "store.bind", "store.claim" and so on) and may crash the
	// process or make the step fail. nil in production.
	Steps func(step string, phase Phase) error
}

func (c Config) step(name string, phase Phase) error {
	if c.Steps == nil {
		return nil
	}
	return c.Steps(name, phase)
}

func (c Config) checked() (Config, error) {
	if c.Path == "" || c.Now == nil || c.Random == nil {
		return c, problem.New(problem.Internal, "a receipt database without path, clock or randomness")
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return c, problem.Wrap(problem.Internal, err, "the path of the receipt database can't be made absolute")
	}
	c.Path = path
	return c, nil
}

const fileMode = 0o600

// Create makes an empty receipt database with a new epoch. It never touches an
// existing one: the file is built under another name, synced, and linked to
// its own.
func Create(ctx context.Context, cfg Config) (err error) {
	cfg, err = cfg.checked()
	if err != nil {
		return err
	}
	held, err := lock(cfg.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	for _, suffix := range companions {
		if _, statErr := os.Lstat(cfg.Path + suffix); !errors.Is(statErr, fs.ErrNotExist) {
			return problem.Wrap(problem.DatabaseExists, statErr, "%s exists already", cfg.Path+suffix).
				WithHint("it may hold receipts: masterd uses it as it is; to start over, an operator moves it away first")
		}
	}
	fresh := cfg.Path + ".init"
	if err := removeAll(fresh); err != nil { // of an init that was killed
		return err
	}
	if err := held.Truncate(0); err != nil { // the mark of one that was here before
		return problem.Wrap(problem.NotWritable, err, "the lock of the receipt database can't be written")
	}
	if err := build(ctx, cfg, fresh); err != nil {
		return errors.Join(problem.Wrap(problem.NotWritable, err, "the receipt database can't be created"), removeAll(fresh))
	}
	if err := os.Link(fresh, cfg.Path); err != nil {
		return errors.Join(problem.Wrap(problem.NotWritable, err, "the receipt database can't be put in its place"), removeAll(fresh))
	}
	if err := removeAll(fresh); err != nil {
		return err
	}
	return syncPath(filepath.Dir(cfg.Path))
}

func removeAll(path string) error {
	for _, suffix := range companions {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return problem.Wrap(problem.NotWritable, err, "a left-over of an earlier init can't be removed")
		}
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return problem.Wrap(problem.NotWritable, err, "%s can't be synced", path)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return problem.Wrap(problem.NotWritable, err, "%s can't be synced", path)
	}
	return nil
}

// build fills a fresh file. SQLite gives its companions (-wal, -shm) the mode
// of the database, so creating it 0600 holds for all, whatever the umask.
func build(ctx context.Context, cfg Config, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	epoch, err := newEpoch(cfg.Random)
	if err != nil {
		return err
	}
	p := pool(path, creating, 1)
	defer func() { err = errors.Join(err, p.Close()) }()
	tx, err := p.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := raise(ctx, tx, 0, schemaVersion()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO epochs (epoch, at, cause, bound) VALUES (?, ?, 'init', 0)",
		epoch, cfg.Now().UnixMicro()); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	// Everything into the one file, so that it can be linked to its name.
	var busy, frames, moved int
	if err := p.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	return syncPath(path)
}

// ownerOf gives the user that a file belongs to.
func ownerOf(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	return int(st.Uid), nil
}

func newEpoch(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	return stdhex.EncodeToString(b[:]), nil
}

// lock takes the exclusive lock of a database, for as long as the file that it
// gives is open. The file stays: removing it would let two processes each lock
// their own. It also holds the mark.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, problem.Wrap(problem.NotWritable, err, "the lock of the receipt database can't be opened").
			WithHint("its folder must exist and belong to masterd's user")
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, problem.Wrap(problem.DatabaseLocked, err, "another masterd has this receipt database open").
			WithHint("there is one masterd a database: ask that one, or stop it first")
	}
	return nil, problem.Wrap(problem.NotWritable, err, "the receipt database can't be locked")
}

// files are the open handles of a database, replaced together.
type files struct {
	writer *sql.DB
	conn   *sql.Conn // the writer's only connection
	write  *writes
	reader *sql.DB
	read   *reads
	epoch  string
}

func (f *files) close() error {
	return errors.Join(f.reader.Close(), f.conn.Close(), f.writer.Close())
}

// openFiles opens an existing database with all checks, and brings it up to
// this program's schema.
func openFiles(ctx context.Context, path string, log hclog.Logger) (f *files, err error) {
	if err := checkHeader(path); err != nil {
		return nil, err
	}
	f = &files{writer: pool(path, writing, 1), reader: pool(path, reading, readers)}
	defer func() {
		if err != nil {
			err = errors.Join(explain(err, path), f.reader.Close(), f.writer.Close())
			f = nil
		}
	}()
	if f.conn, err = f.writer.Conn(ctx); err != nil {
		return f, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.conn.Close())
		}
	}()
	if err := checkSound(ctx, f.conn); err != nil {
		return f, err
	}
	version, err := checkVersion(ctx, f.conn)
	if err != nil {
		return f, err
	}
	if err := bringUp(ctx, f.conn, version, path, log); err != nil {
		return f, err
	}
	if f.write, err = prepareWrites(ctx, f.conn); err != nil {
		return f, err
	}
	if f.read, err = prepareReads(ctx, f.reader); err != nil {
		return f, err
	}
	err = f.conn.QueryRowContext(ctx, "SELECT epoch FROM epochs ORDER BY n DESC LIMIT 1").Scan(&f.epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return f, damage(err, path)
	}
	return f, err
}

// explain gives an error that isn't a problem yet one that says what to do.
func explain(err error, path string) error {
	var known *problem.Error
	switch {
	case errors.As(err, &known):
		return err
	case damaged(err):
		return damage(err, path)
	case notADatabase(err):
		return foreign(err, path)
	}
	return problem.Wrap(problem.NotWritable, err, "the receipt database can't be opened").
		WithHint("see the log for SQLite's own code; disk full, read-only or permissions are the usual causes")
}

func damage(cause error, path string) *problem.Error {
	return problem.Wrap(problem.DatabaseDamaged, cause, "the receipt database %s is damaged", path).
		WithHint("keep the file, it still says what was started; put the newest backup in its place with masterd restore")
}

func foreign(cause error, path string) *problem.Error {
	return problem.Wrap(problem.DatabaseForeign, cause, "%s isn't a receipt database of masterd", path).
		WithHint("check the configured path; masterd init makes a new database where there is no file")
}

// checkThere tells a missing database from all others.
func checkThere(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return problem.Wrap(problem.DatabaseMissing, err, "there is no receipt database at %s", path).
			WithHint("on a new master: masterd init; if there was one, masterd restore with the newest backup, " +
				"since without its receipts masterd knows of no start it has made")
	}
	return nil // any other error is met again, under the lock
}

// checkHeader looks at the file itself, before SQLite may change anything. It
// isn't called while this process has the file open otherwise: closing it here
// would give back SQLite's own locks.
func checkHeader(path string) error {
	if err := checkThere(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return problem.Wrap(problem.NotWritable, err, "the receipt database can't be opened").
			WithHint("it must belong to masterd's user")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return problem.Wrap(problem.NotWritable, err, "the receipt database can't be looked at")
	}
	if !info.Mode().IsRegular() {
		return foreign(nil, path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return problem.New(problem.DatabaseUnsafe, "others may read the receipt database %s (mode %04o)", path, info.Mode().Perm()).
			WithHint("it holds sources: chmod 600 %s", path)
	}
	header := make([]byte, 100)
	if _, err := io.ReadFull(f, header); err != nil {
		if info.Size() == 0 {
			return damage(errors.New("an empty file"), path)
		}
		return foreign(err, path)
	}
	if !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) ||
		binary.BigEndian.Uint32(header[68:72]) != applicationID {
		return foreign(nil, path)
	}
	return nil
}

func checkSound(ctx context.Context, conn *sql.Conn) error {
	var verdict string
	if err := conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return problem.Wrap(problem.DatabaseDamaged, errors.New(verdict), "the receipt database is damaged").
			WithHint("keep the file, it still says what was started; put the newest backup in its place with masterd restore")
	}
	return nil
}
