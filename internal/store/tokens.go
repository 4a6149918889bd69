package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Token is a caller's right, known by the hash of its secret.
type Token struct {
	ID        string
	Hash      [sha256.Size]byte
	Scope     string
	Name      string
	CreatedAt time.Time
	CreatedBy string
	RevokedAt time.Time // zero while it is good
}

// CreateToken records a token. An ID or hash that exists is refused.
func (db *DB) CreateToken(ctx context.Context, t Token) error {
	return db.write(ctx, "store.token", func(x *tx) error {
		return x.exec(x.ctx, x.insertToken, t.ID, t.Hash[:], t.Scope, t.Name, t.CreatedAt.UnixMicro(), t.CreatedBy)
	})
}

// RevokeToken ends a token for ever and gives it. Doing it twice is no error:
// the first time stays.
func (db *DB) RevokeToken(ctx context.Context, id, by string) (out Token, err error) {
	err = db.write(ctx, "store.token", func(t *tx) error {
		found, err := maybe(scanToken(t.tokenByID.QueryRowContext(t.ctx, id)))
		switch {
		case err != nil:
			return storage(err)
		case found == nil:
			return problem.New(problem.UnknownToken, "there is no token %s", id).WithHint("masterd token list shows them")
		}
		out = *found
		if !out.RevokedAt.IsZero() {
			return nil
		}
		out.RevokedAt = t.now
		return t.exec(t.ctx, t.insertRevocation, id, t.now.UnixMicro(), by)
	})
	return out, err
}

// Tokens gives all tokens, revoked ones too, in order of creation.
func (db *DB) Tokens(ctx context.Context) (out []Token, err error) {
	err = db.view(ctx, func(r *reads) error {
		rows, err := r.tokens.QueryContext(ctx)
		return each(rows, err, func(row scanner) error {
			t, err := scanToken(row)
			out = append(out, t)
			return err
		})
	})
	return out, err
}

// TokenByHash gives the good token with this hash, nil where there is none or
// it was revoked.
func (db *DB) TokenByHash(ctx context.Context, hash [sha256.Size]byte) (out *Token, err error) {
	err = db.view(ctx, func(r *reads) (err error) {
		out, err = maybe(scanToken(r.token.QueryRowContext(ctx, hash[:])))
		return err
	})
	return out, err
}

func scanToken(row scanner) (Token, error) {
	var t Token
	var hash []byte
	var created, revoked sql.NullInt64
	err := row.Scan(&t.ID, &hash, &t.Scope, &t.Name, &created, &t.CreatedBy, &revoked)
	copy(t.Hash[:], hash)
	t.CreatedAt, t.RevokedAt = timeOf(created), timeOf(revoked)
	return t, err
}
