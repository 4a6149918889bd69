package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Settlement gives what an operator said of a receipt, nil where nobody has.
func (db *DB) Settlement(ctx context.Context, request string) (out *receipt.Settlement, err error) {
	err = db.view(ctx, func(r *reads) error {
		var s receipt.Settlement
		var at, delivered sql.NullInt64
		err := r.settlement.QueryRowContext(ctx, request).Scan(&s.Request, &s.Outcome, &s.Reason, &s.Observed,
			&s.ServerGone, &s.By, &at, &delivered)
		s.At, s.DeliveredAt = timeOf(at), timeOf(delivered)
		out, err = maybe(s, err)
		return err
	})
	return out, err
}

// Owed gives what a target's ledger has to be told, the oldest first. instance
// is the server's: another one's ledger never knew of these.
func (db *DB) Owed(ctx context.Context, target, instance string) (out []receipt.Debt, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.owed.QueryContext(ctx, target, instance)
		return each(rows, err, func(row scanner) error {
			var d receipt.Debt
			err := row.Scan(&d.Request, &d.Digest, &d.Outcome)
			out = append(out, d)
			return err
		})
	})
	return out, err
}

// Delivered notes that a settlement needn't be told any more: the ledger has
// recorded it, or has something final of its own to say. Twice is no error.
func (db *DB) Delivered(ctx context.Context, request string) error {
	return db.write(ctx, "store.delivered", func(t *tx) error {
		var s receipt.Settlement
		var at, delivered sql.NullInt64
		err := t.settlement.QueryRowContext(t.ctx, request).Scan(&s.Request, &s.Outcome, &s.Reason, &s.Observed,
			&s.ServerGone, &s.By, &at, &delivered)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return problem.New(problem.Internal, "request %s was never settled", request)
		case err != nil:
			return storage(err)
		case delivered.Valid:
			return nil
		}
		return t.exec(t.ctx, t.insertDelivery, request, t.now.UnixMicro())
	})
}

// FromLedger makes an uncertain receipt of a ledger's record that this database
// doesn't know. Where it knows the request, it answers with the receipt that
// there is, unchanged. A receipt of the same key that still waits is refused in
// the same transaction: the target is quarantined from now on.
func (db *DB) FromLedger(ctx context.Context, rec receipt.Record) (out receipt.Receipt, err error) {
	err = db.write(ctx, "store.from_ledger", func(t *tx) error {
		known, err := t.loadBound(t.ctx, rec.Request)
		if err != nil {
			return storage(err)
		}
		if known != nil {
			out = known.Execution
			return nil
		}
		b, e := receipt.FromRecord(rec, t.now)
		k := b.Body.Key()
		waiting, err := t.loadReceipt(t.ctx, t.open, k.Target, k.Instance, string(k.Profile), k.Digest)
		if err != nil {
			return storage(err)
		}
		if waiting != nil {
			blocker := receipt.Blocker{Request: rec.Request, Profile: rec.Profile, Since: t.now}
			if _, err := t.apply(*waiting, receipt.Refuse(t.now, problem.TargetQuarantined, &blocker)); err != nil {
				return err
			}
		}
		if err := t.exec(t.ctx, t.insertRecord, b.Request, k.Target, k.Instance, string(k.Profile), k.Digest,
			b.AcceptedAt.UnixMicro()); err != nil {
			return err
		}
		fresh := receipt.New(b)
		fresh.FromLedger = true
		out, err = t.apply(fresh, e)
		return err
	})
	return out, err
}

// Marks are the receipts that a list points out.
type Marks struct {
	Conflicts map[string]bool // evidence contradicts them
	Owed      map[string]bool // settled, and their ledger doesn't know yet
}

// Marks gives them; they are few.
func (db *DB) Marks(ctx context.Context) (Marks, error) {
	m := Marks{Conflicts: map[string]bool{}, Owed: map[string]bool{}}
	err := db.view(ctx, func(r *reads) error {
		for query, into := range map[string]map[string]bool{
			"SELECT DISTINCT request FROM witnesses WHERE conflict = 1": m.Conflicts,
			"SELECT request FROM settlements s WHERE s.server_gone = 0" +
				" AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request = s.request)": m.Owed,
		} {
			rows, err := r.pool.QueryContext(ctx, query)
			err = each(rows, err, func(row scanner) error {
				var request string
				err := row.Scan(&request)
				into[request] = true
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}

// Epochs gives every beginning of this database, the newest last.
func (db *DB) Epochs(ctx context.Context) (out []Epoch, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.epochs.QueryContext(ctx)
		return each(rows, err, func(row scanner) error {
			var e Epoch
			var at sql.NullInt64
			err := row.Scan(&e.ID, &at, &e.Cause)
			e.At = timeOf(at)
			out = append(out, e)
			return err
		})
	})
	return out, err
}
