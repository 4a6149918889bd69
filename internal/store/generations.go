package store

import (
	"context"
	"math"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Lines gives what is known of a target's ledgers. Whoever asks the target reads
// it before the question goes out.
func (db *DB) Lines(ctx context.Context, target string) (receipt.Lines, error) {
	out := receipt.Lines{}
	err := db.view(ctx, func(r *reads) error { return r.loadLines(ctx, target, out) })
	return out, err
}

func (r *reads) loadLines(ctx context.Context, target string, into receipt.Lines) error {
	rows, err := r.lines.QueryContext(ctx, target)
	return each(rows, err, func(row scanner) error {
		var ledger string
		var line receipt.Line
		err := row.Scan(&ledger, &line.Adoption, &line.Generation)
		into[ledger] = line
		return err
	})
}

// Told keeps what an answer has told of its ledger.
func (db *DB) Told(ctx context.Context, told receipt.Told) error {
	return db.write(ctx, "store.told", func(t *tx) error { return t.keep(told) })
}

// Forgotten says that a ledger was put back after a request had been bound. Then
// it proves of that request only what it remembers.
func (db *DB) Forgotten(ctx context.Context, request, ledger string) (forgotten bool, err error) {
	err = db.view(ctx, func(r *reads) error {
		return r.forgotten.QueryRowContext(ctx, request, ledger).Scan(&forgotten)
	})
	return forgotten, err
}

// keep notes what an answer has told of its ledger: the highest generation, and
// the first time that it was behind.
func (t *tx) keep(told receipt.Told) error {
	if !told.News() {
		return nil
	}
	known, generation := kept(told.Known), kept(told.Generation)
	if told.PutBack() {
		if err := t.exec(t.ctx, t.insertPutBack, told.Adoption, t.now.UnixMicro(), known, generation); err != nil {
			return err
		}
	}
	if err := t.exec(t.ctx, t.insertGeneration, told.Adoption, generation); err != nil {
		return err
	}
	return t.exec(t.ctx, t.raiseGeneration, told.Adoption, generation)
}

// adoptUntold notes that a ledger which had told generations is adopted without
// one: it isn't known any more whether it was put back before, so what was bound
// by now stays in doubt.
func (t *tx) adoptUntold(x receipt.Target) error {
	if x.Generation > 0 {
		return nil
	}
	lines := receipt.Lines{}
	if err := t.loadLines(t.ctx, x.ID, lines); err != nil {
		return storage(err)
	}
	line := lines[x.Ledger]
	if line.Generation == 0 {
		return nil
	}
	return t.exec(t.ctx, t.insertPutBack, line.Adoption, t.now.UnixMicro(), kept(line.Generation), 0)
}

// kept gives a generation as the database keeps it.
func kept(generation uint64) int64 {
	return int64(min(generation, math.MaxInt64))
}
