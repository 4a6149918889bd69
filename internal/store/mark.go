package store

import (
	"context"
	"fmt"
	"os"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// mark is how far this host has seen the database: it is written into the lock
// file after each commit, without a sync, so it may lag behind but never runs
// ahead. A database that is behind it is an older copy that somebody has put
// back by hand: what it says waits may have run.
type mark struct {
	epoch                 string
	requests, transitions int64
}

const markFormat = "oduflow-receipts %s %020d %020d\n"

// readMark gives the zero mark where there is none that can be read: then
// nothing is known, as on a new host.
func readMark(f *os.File) (m mark) {
	buf := make([]byte, len(fmt.Sprintf(markFormat, fmt.Sprintf("%032d", 0), 0, 0)))
	if _, err := f.ReadAt(buf, 0); err != nil {
		return mark{}
	}
	n, err := fmt.Sscanf(string(buf), "oduflow-receipts %32s %d %d\n", &m.epoch, &m.requests, &m.transitions)
	if err != nil || n != 3 || len(m.epoch) != 32 {
		return mark{}
	}
	return m
}

func writeMark(f *os.File, m mark) error {
	_, err := fmt.Fprintf(writerAt{f}, markFormat, m.epoch, m.requests, m.transitions)
	return err
}

// writerAt writes at the beginning, in one piece.
type writerAt struct{ f *os.File }

func (w writerAt) Write(p []byte) (int, error) { return w.f.WriteAt(p, 0) }

// look gives how far the database is.
func (f *files) look(ctx context.Context) (m mark, err error) {
	m.epoch = f.epoch
	err = f.write.seen.QueryRowContext(ctx).Scan(&m.requests, &m.transitions)
	return m, err
}

// checkMark refuses a database that is behind what this host has seen.
func checkMark(ctx context.Context, f *files, seen mark, path string) error {
	if seen.epoch == "" {
		return nil
	}
	now, err := f.look(ctx)
	if err != nil {
		return err
	}
	if seen.epoch != now.epoch {
		var known bool
		err := f.conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM epochs WHERE epoch = ?)", seen.epoch).Scan(&known)
		if err != nil || known {
			return err
		}
	} else if now.requests >= seen.requests && now.transitions >= seen.transitions {
		return nil
	}
	return rolledBack(path)
}

func rolledBack(path string) error {
	return problem.New(problem.DatabaseRolledBack, "%s is an older copy than the receipts that this master has worked with", path).
		WithHint("what it says waits may have run since. Put the newest database back; where that is lost, "+
			"masterd restore %s begins a new epoch with this one: nothing of it is started again, and the minions' ledgers say what ran", path)
}

// note writes the mark. It is the writer's own.
func (db *DB) note(ctx context.Context) {
	m, err := db.files.look(ctx)
	if err == nil {
		err = writeMark(db.lock, m)
	}
	if err != nil {
		db.cfg.Logger.Debug("the mark of the receipt database can't be written", "error", err)
	}
}
