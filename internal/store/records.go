package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	stdhex "encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Canonical gives the canonical form that a digest stands for.
func (db *DB) Canonical(ctx context.Context, digest string) ([]byte, error) {
	var out []byte
	err := db.view(ctx, func(r *reads) error { return r.canonical.QueryRowContext(ctx, digest).Scan(&out) })
	if err != nil {
		return nil, noSource(err, digest)
	}
	if sum := sha256.Sum256(out); stdhex.EncodeToString(sum[:]) != digest {
		return nil, damage(nil, db.cfg.Path)
	}
	return out, nil
}

// Source gives the source of a digest, as the first request that named it sent
// it.
func (db *DB) Source(ctx context.Context, digest string) ([]byte, error) {
	var out []byte
	err := db.view(ctx, func(r *reads) error { return r.source.QueryRowContext(ctx, digest).Scan(&out) })
	if err != nil {
		return nil, noSource(err, digest)
	}
	return out, nil
}

func noSource(err error, digest string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return problem.Wrap(problem.Internal, err, "no source is stored for digest %s", digest)
	}
	return err
}

// Unresolved gives every receipt without an outcome, in order of acceptance.
func (db *DB) Unresolved(ctx context.Context) (out []receipt.Receipt, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.unresolved.QueryContext(ctx)
		return each(rows, err, appendReceipt(&out))
	})
	return out, err
}

func appendReceipt(to *[]receipt.Receipt) func(row scanner) error {
	return func(row scanner) error {
		r, err := scanReceipt(row)
		*to = append(*to, r)
		return err
	}
}

// Filter narrows List. Zero values don't.
type Filter struct {
	Target    string
	States    []receipt.State
	Code      problem.Code
	Conflicts bool // with evidence that contradicts them
	Owed      bool // settled, and their ledger doesn't know yet
	Limit     int  // the newest so many; 0 is 100, at most 10,000
}

const (
	listDefault = 100
	listLongest = 10_000
)

// List gives receipts, the newest accepted first.
func (db *DB) List(ctx context.Context, f Filter) (out []receipt.Receipt, err error) {
	query := "SELECT " + receiptColumns + " FROM " + receiptTablesJoined + " WHERE 1"
	var args []any
	if f.Target != "" {
		query += " AND r.target = ?"
		args = append(args, f.Target)
	}
	if len(f.States) > 0 {
		query += " AND r.state IN (?" + strings.Repeat(", ?", len(f.States)-1) + ")" //nolint:gosec // placeholders only
		for _, s := range f.States {
			args = append(args, string(s))
		}
	}
	if f.Code != "" {
		query += " AND t.code = ?"
		args = append(args, string(f.Code))
	}
	if f.Conflicts {
		query += " AND EXISTS (SELECT 1 FROM witnesses w WHERE w.request = r.request AND w.conflict = 1)"
	}
	if f.Owed {
		query += " AND EXISTS (SELECT 1 FROM settlements s WHERE s.request = r.request AND s.server_gone = 0" +
			" AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request = s.request))"
	}
	limit := f.Limit
	if limit <= 0 {
		limit = listDefault
	}
	query += " ORDER BY r.accepted DESC LIMIT ?"
	args = append(args, min(limit, listLongest))
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.pool.QueryContext(ctx, query, args...)
		return each(rows, err, appendReceipt(&out))
	})
	return out, err
}

// Target gives the newest adoption of a target, nil if there is none.
func (db *DB) Target(ctx context.Context, id string) (out *receipt.Target, err error) {
	err = db.view(ctx, func(r *reads) (err error) {
		out, err = r.loadTarget(ctx, id)
		return err
	})
	return out, err
}

// Adopt records an adoption. The newest of a target counts; the others stay.
// What was known of its ledger's generation counts no more: t.Generation is what
// the ledger has told now.
func (db *DB) Adopt(ctx context.Context, t receipt.Target) error {
	return db.write(ctx, "store.adopt", func(x *tx) error {
		if err := x.adoptUntold(t); err != nil {
			return err
		}
		result, err := x.insertAdoption.ExecContext(x.ctx, t.ID, t.Instance, t.Fingerprint, t.Ledger, t.Machine,
			t.AdoptedAt.UnixMicro(), t.AdoptedBy, t.Reason)
		if err != nil {
			return err
		}
		n, err := result.LastInsertId()
		if err != nil {
			return storage(err)
		}
		return x.keep(receipt.Told{Adoption: n, Generation: t.Generation})
	})
}

// Witness adds to the log of evidence. It holds names and numbers, never raw
// text: the database refuses a kind, result or code that isn't a word.
func (db *DB) Witness(ctx context.Context, w receipt.Witness) error {
	return db.write(ctx, "store.witness", func(t *tx) error {
		var declared, passed, failed, notRun any
		if c := w.Counts; c != nil {
			declared, passed, failed, notRun = c.Declared, c.Passed, c.Failed, c.NotRun
		}
		if err := t.exec(t.ctx, t.insertWitness, w.Request, w.At.UnixMicro(), w.Kind, w.Result, textOrNull(w.Code),
			declared, passed, failed, notRun, textOrNull(w.Ledger), w.Conflict); err != nil {
			return err
		}
		return t.keep(w.Told)
	})
}

// Witnesses gives the log of evidence of a receipt, the oldest first.
func (db *DB) Witnesses(ctx context.Context, request string) (out []receipt.Witness, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.witnesses.QueryContext(ctx, request)
		return each(rows, err, func(row scanner) error {
			w := receipt.Witness{Request: request}
			var at, declared, passed, failed, notRun sql.NullInt64
			var code, ledger sql.NullString
			err := row.Scan(&at, &w.Kind, &w.Result, &code, &declared, &passed, &failed, &notRun, &ledger, &w.Conflict)
			w.At, w.Code, w.Ledger = timeOf(at), problem.Code(code.String), ledger.String
			if declared.Valid {
				w.Counts = &receipt.Counts{
					Declared: int(declared.Int64), Passed: int(passed.Int64),
					Failed: int(failed.Int64), NotRun: int(notRun.Int64),
				}
			}
			out = append(out, w)
			return err
		})
	})
	return out, err
}

// Transition is one recorded change of a receipt.
type Transition struct {
	receipt.Transition
	Seq   int
	At    time.Time
	Actor string
	Code  problem.Code
}

// Transitions gives the history of a receipt.
func (db *DB) Transitions(ctx context.Context, request string) (out []Transition, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.history.QueryContext(ctx, request)
		return each(rows, err, func(row scanner) error {
			var t Transition
			var at sql.NullInt64
			var code sql.NullString
			err := row.Scan(&t.Seq, &t.Event, &t.From, &t.To, &at, &t.Actor, &code)
			t.At, t.Code = timeOf(at), problem.Code(code.String)
			out = append(out, t)
			return err
		})
	})
	return out, err
}

// Stats counts receipts without an outcome, and what an operator should know of.
type Stats struct {
	Queued, Running, Uncertain int
	Conflicts                  int // receipts with evidence that contradicts them
	Owed                       int // settlements that a target's ledger doesn't know of yet
}

// Stats counts.
func (db *DB) Stats(ctx context.Context) (s Stats, err error) {
	err = db.view(ctx, func(r *reads) error {
		if err := r.conflicts.QueryRowContext(ctx).Scan(&s.Conflicts); err != nil {
			return err
		}
		if err := r.debts.QueryRowContext(ctx).Scan(&s.Owed); err != nil {
			return err
		}
		rows, err := r.stats.QueryContext(ctx)
		return each(rows, err, func(row scanner) error {
			var state receipt.State
			var n int
			if err := row.Scan(&state, &n); err != nil {
				return err
			}
			switch state.Status() {
			case receipt.StatusQueued:
				s.Queued += n
			case receipt.StatusRunning:
				s.Running += n
			case receipt.StatusUncertain:
				s.Uncertain += n
			case receipt.StatusSucceeded, receipt.StatusFailed: // not asked for
			}
			return nil
		})
	})
	return s, err
}
