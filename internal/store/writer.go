package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	// readers is the number of read-only connections.
	readers = 3
	// maxBatch bounds what one commit holds, and so how long the first in it waits.
	maxBatch = 128
	// reopenAfter is how long the writer leaves a broken database alone when
	// nobody asks for it.
	reopenAfter = time.Second
)

// DB is an open receipt database. All methods may be called at the same time.
type DB struct {
	cfg  Config
	lock *os.File // locked until Close; it holds the mark

	jobs    chan *job
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once
	closeOf error

	mu     sync.RWMutex // guards files; held for reading while one is used
	files  *files       // nil while the database is broken or closed
	broken atomic.Pointer[problem.Error]
	epoch  string

	// unsynced says that a sync failed since the last settle: until then nothing
	// may be read. It is the writer's own.
	unsynced bool
}

// Open opens an existing database, with all checks, and holds its lock until
// Close. What it refuses comes with a code and a hint.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	if err := checkThere(cfg.Path); err != nil {
		return nil, err // before a lock file is left beside nothing
	}
	held, err := lock(cfg.Path)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(ctx, cfg.Path, cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	if err := checkMark(ctx, f, readMark(held), cfg.Path); err != nil {
		return nil, errors.Join(err, f.close(), held.Close())
	}
	db := &DB{
		cfg: cfg, lock: held, files: f, epoch: f.epoch,
		jobs: make(chan *job, maxBatch), closing: make(chan struct{}), closed: make(chan struct{}),
	}
	db.note(ctx)
	// The writer outlives the call that opened it; Close ends it.
	go db.writeLoop(context.WithoutCancel(ctx))
	return db, nil
}

// Epoch is the random identity that this database got from init or restore.
func (db *DB) Epoch() string { return db.epoch }

// Writable says whether receipts can be written, as far as is known: nil, or
// why the last commit or reopening failed.
func (db *DB) Writable() error {
	if p := db.broken.Load(); p != nil {
		return p
	}
	select {
	case <-db.closing:
		return stopped()
	default:
		return nil
	}
}

// Close finishes what is queued, closes the files and gives the lock back.
func (db *DB) Close() error {
	db.once.Do(func() {
		close(db.closing)
		<-db.closed
		db.closeOf = errors.Join(db.closeFiles(), db.lock.Close())
	})
	return db.closeOf
}

func (db *DB) closeFiles() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.files == nil {
		return nil
	}
	err := db.files.close()
	db.files = nil
	return err
}

func stopped() *problem.Error {
	return problem.New(problem.NotWritable, "masterd is stopping; nothing was written")
}

func unknownOutcome(cause error) *problem.Error {
	return problem.Wrap(problem.NotWritable, cause, "the receipt database couldn't be written").
		WithHint("send the same request UUID again later: if it was stored after all, it is answered, not repeated")
}

// job is one piece of writing. It is taken by the writer or cancelled by its
// caller, never both.
type job struct {
	ctx   context.Context //nolint:containedctx // of the caller that waits for done
	name  string          // of its step, for the fault seam
	run   func(tx *tx) error
	taken atomic.Bool
	done  chan error
}

// tx is what a job may use: the writer's statements, and one time for all.
type tx struct {
	ctx context.Context //nolint:containedctx // lives for one job
	*writes
	now time.Time
}

// write has the writer run one job and waits for its commit. When ctx ends
// before the job was begun, nothing is written; after that the answer is the
// truth, whatever becomes of ctx.
func (db *DB) write(ctx context.Context, name string, run func(tx *tx) error) error {
	j := &job{ctx: ctx, name: name, run: run, done: make(chan error, 1)}
	select {
	case <-db.closing:
		return stopped()
	default:
	}
	select {
	case db.jobs <- j:
	case <-db.closing:
		return stopped()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		if j.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		return <-j.done
	case <-db.closed:
		// The job came in beside the last look at the queue, or was answered
		// just before the end.
		if j.taken.CompareAndSwap(false, true) {
			return stopped()
		}
		return <-j.done
	}
}

func (db *DB) writeLoop(ctx context.Context) {
	defer close(db.closed)
	for {
		var retry <-chan time.Time
		if db.broken.Load() != nil {
			retry = time.After(reopenAfter)
		}
		select {
		case j := <-db.jobs:
			db.runBatch(ctx, db.gather(j))
		case <-retry:
			_ = db.reopen(ctx) // says why in the log and in Writable
		case <-db.closing:
			for {
				batch := db.gather(nil)
				if len(batch) == 0 {
					if db.files != nil {
						// So that the one file is the whole database while masterd is
						// stopped. Where it fails the WAL is beside it, as after a kill.
						_ = checkpoint(ctx, db.files.conn)
					}
					return
				}
				db.runBatch(ctx, batch)
			}
		}
	}
}

// gather takes what waits, without waiting. Jobs whose callers have gone are
// left out.
func (db *DB) gather(first *job) []*job {
	var batch []*job
	take := func(j *job) {
		if j.taken.CompareAndSwap(false, true) {
			batch = append(batch, j)
		}
	}
	if first != nil {
		take(first)
	}
	for len(batch) < maxBatch {
		select {
		case j := <-db.jobs:
			take(j)
		default:
			return batch
		}
	}
	return batch
}

// runBatch commits a batch and tells each caller what became of its part.
func (db *DB) runBatch(ctx context.Context, batch []*job) {
	if len(batch) == 0 {
		return
	}
	if db.broken.Load() != nil {
		if err := db.reopen(ctx); err != nil {
			answerAll(batch, err)
			return
		}
	}
	answers := make([]error, len(batch))
	if err := db.commit(ctx, batch, answers); err != nil {
		db.breakDown(err)
		answerAll(batch, unknownOutcome(err))
		return
	}
	db.note(ctx)
	for i, j := range batch {
		if answers[i] == nil {
			if err := db.cfg.step(j.name, After); err != nil {
				answers[i] = unknownOutcome(err)
			}
		}
		j.done <- answers[i]
	}
}

func answerAll(batch []*job, err error) {
	for _, j := range batch {
		j.done <- err
	}
}

// commit runs every job under a SAVEPOINT within one transaction. An error
// means that nobody knows whether the transaction is on disk.
func (db *DB) commit(ctx context.Context, batch []*job, answers []error) error {
	w := db.files.write // only the writer replaces files
	if err := w.exec(ctx, w.begin); err != nil {
		return err
	}
	t := &tx{ctx: ctx, writes: w, now: toMicros(db.cfg.Now())}
	for i, j := range batch {
		err := db.runJob(t, j)
		if fatal(err) {
			return errors.Join(err, w.exec(ctx, w.rollback))
		}
		answers[i] = err
	}
	if err := db.cfg.step("store.commit", Before); err != nil {
		return errors.Join(err, w.exec(ctx, w.rollback))
	}
	if err := w.exec(ctx, w.commit); err != nil {
		return err
	}
	return db.cfg.step("store.commit", After)
}

// runJob leaves nothing of a job that was refused.
func (db *DB) runJob(t *tx, j *job) error {
	if err := db.cfg.step(j.name, Before); err != nil {
		return unknownOutcome(err)
	}
	if err := t.exec(t.ctx, t.savepoint); err != nil {
		return storage(err)
	}
	err := j.run(t)
	if err != nil {
		if fatal(err) {
			return err
		}
		if undo := t.exec(t.ctx, t.undo); undo != nil {
			return storage(undo)
		}
	}
	if release := t.exec(t.ctx, t.release); release != nil {
		return storage(release)
	}
	if refusedByGuard(err) {
		err = problem.Wrap(problem.Internal, err, "the receipt database refused what it was given")
	}
	return err
}

// storageError marks an error of the database itself, as against a refusal: the
// transaction it happened in can't be trusted any more.
type storageError struct{ error }

func (e storageError) Unwrap() error { return e.error }

func storage(err error) error {
	if err == nil {
		return nil
	}
	return storageError{err}
}

// fatal says that err is the database's failure and not a refusal of one job.
func fatal(err error) bool {
	var marked storageError
	if errors.As(err, &marked) {
		return true
	}
	_, sqlite := sqliteError(err)
	return sqlite && !refusedByGuard(err)
}

// breakDown closes the files after a failed commit. Nothing is read from them
// any more: what they show need not be what is on disk.
func (db *DB) breakDown(cause error) {
	db.cfg.Logger.Error("the receipt database failed; it is closed and opened again from disk", "error", cause)
	db.broken.Store(unknownOutcome(cause))
	db.unsynced = db.unsynced || syncFailed(cause)
	if err := db.closeFiles(); err != nil {
		db.cfg.Logger.Warn("the failed receipt database didn't close cleanly", "error", err)
	}
}

// reopen opens the files anew with all checks, and proves with a write that
// they can be written. While only that fails (a full disk), they can be read,
// unless a sync had failed.
func (db *DB) reopen(ctx context.Context) error {
	err := db.openAgain(ctx)
	if err != nil {
		p := unknownOutcome(err)
		db.broken.Store(p)
		db.cfg.Logger.Error("the receipt database can't be opened again for writing", "error", err)
		return p
	}
	db.unsynced = false
	db.broken.Store(nil)
	db.cfg.Logger.Info("the receipt database is open again")
	return nil
}

func (db *DB) openAgain(ctx context.Context) error {
	db.mu.Lock() // no reader of ours keeps the WAL from being moved
	defer db.mu.Unlock()
	f := db.files // open for reading since the last try
	if f == nil {
		var err error
		if f, err = openFiles(ctx, db.cfg.Path, db.cfg.Logger); err != nil {
			return err
		}
		if f.epoch != db.epoch {
			return errors.Join(problem.New(problem.DatabaseForeign, "another receipt database was put in the place of ours").
				WithHint("stop masterd before a database is replaced"), f.close())
		}
		if err := checkMark(ctx, f, readMark(db.lock), db.cfg.Path); err != nil {
			return errors.Join(err, f.close())
		}
	}
	err := settle(ctx, f, db.unsynced)
	db.unsynced = db.unsynced || syncFailed(err)
	if err != nil && db.unsynced {
		db.files = nil
		return errors.Join(err, f.close())
	}
	db.files = f
	return err
}

// settle writes once and moves the whole WAL into the database file, which is
// synced. After a failed sync the kernel may show pages of the WAL that never
// reached the disk; then (whole) answers are given only once all of it was
// written and synced anew. Else another program that reads may keep a part of
// it back.
func settle(ctx context.Context, f *files, whole bool) error {
	if _, err := f.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion())); err != nil {
		return err
	}
	var busy, frames, moved int
	if err := f.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved); err != nil {
		return err
	}
	if whole && busy != 0 {
		return errors.New("another program has the receipt database open")
	}
	return nil
}

// view runs fn on the read-only connections.
func (db *DB) view(ctx context.Context, fn func(r *reads) error) error {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if db.files == nil {
		if p := db.broken.Load(); p != nil {
			return p
		}
		return stopped()
	}
	return readFailure(ctx, fn(db.files.read))
}

// readFailure tells a caller that went away, and a database that can't be
// read, from an answer.
func readFailure(ctx context.Context, err error) error {
	var known *problem.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return problem.Wrap(problem.NotWritable, err, "the receipt database can't be read")
}

// toMicros cuts a time to what the database keeps. Zero stays zero.
func toMicros(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func microsOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func timeOf(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}

func textOrNull[T ~string](s T) any {
	if s == "" {
		return nil
	}
	return string(s)
}

var _ io.Closer = (*DB)(nil)
