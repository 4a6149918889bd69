package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Holder gives the target that an instance is recorded for: of those whose
// newest adoption names it, the one that was adopted last; nil for none.
func (db *DB) Holder(ctx context.Context, instance string) (out *receipt.Target, err error) {
	const query = `SELECT a.target FROM adoptions a WHERE a.instance = ?
  AND a.n = (SELECT max(b.n) FROM adoptions b WHERE b.target = a.target) ORDER BY a.n DESC LIMIT 1`
	err = db.view(ctx, func(r *reads) error {
		var id string
		err := r.pool.QueryRowContext(ctx, query, instance).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		out, err = r.loadTarget(ctx, id)
		return err
	})
	return out, err
}
