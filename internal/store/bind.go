package store

import (
	"context"
	"crypto/sha256"
	stdhex "encoding/hex"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Bind binds a request, once. What it answers is on disk. Its errors are those
// of receipt.Decide (nothing is stored) and not_writable (unknown; repeat the
// call with the same UUID).
//
// source is the text as it was sent, canonical the form that the digest is
// taken of. They are kept once for each digest, as its first request sent them.
func (db *DB) Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	b.AcceptedAt, b.AcceptUntil = toMicros(b.AcceptedAt), toMicros(b.AcceptUntil)

	// A repetition needs no writer: it is answered also while the database
	// can't be written.
	var known *receipt.Bound
	lookErr := db.view(ctx, func(r *reads) (err error) {
		known, err = r.loadBound(ctx, b.Request)
		return err
	})
	if lookErr == nil && known != nil {
		return repeated(b, known)
	}
	if ctx.Err() != nil {
		return receipt.Bound{}, ctx.Err()
	}
	if sum := sha256.Sum256(canonical); stdhex.EncodeToString(sum[:]) != b.Body.Digest {
		return receipt.Bound{}, problem.New(problem.Internal, "request %s: the digest isn't that of its canonical form", b.Request)
	}
	var out receipt.Bound
	err := db.write(ctx, "store.bind", func(t *tx) (err error) {
		out, err = bind(t, b, source, canonical)
		return err
	})
	if err != nil {
		return receipt.Bound{}, err
	}
	return out, nil
}

func repeated(b receipt.Binding, known *receipt.Bound) (receipt.Bound, error) {
	_, err := receipt.Decide(b, receipt.Facts{Known: knownFact(known)}, b.AcceptedAt)
	if err != nil {
		return receipt.Bound{}, err
	}
	return *known, nil
}

func knownFact(b *receipt.Bound) *receipt.Known {
	return &receipt.Known{Body: b.Body, Execution: b.Execution}
}

func bind(t *tx, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	known, err := t.loadBound(t.ctx, b.Request)
	if err != nil {
		return receipt.Bound{}, storage(err)
	}
	if known != nil {
		return repeated(b, known)
	}
	facts, err := t.facts(b.Body)
	if err != nil {
		return receipt.Bound{}, storage(err)
	}
	d, err := receipt.Decide(b, facts, t.now)
	if err != nil {
		return receipt.Bound{}, err
	}
	b.Claimed = "" // compared, not kept
	out := receipt.Bound{Request: b.Request, Body: b.Body}
	switch d.Action {
	case receipt.ActionAlias:
		out.Execution, out.Reused = *d.Execution, true
		return out, t.insert(b, d.Execution.Request)
	case receipt.ActionNew, receipt.ActionRefuse:
		if err := t.exec(t.ctx, t.insertSource, b.Body.Digest, nonNil(source), canonical); err != nil {
			return receipt.Bound{}, err
		}
		out.Execution = receipt.New(b)
		if err := t.insert(b, b.Request); err != nil {
			return receipt.Bound{}, err
		}
		if d.Action == receipt.ActionRefuse {
			out.Execution, err = t.apply(out.Execution, *d.Refusal)
		}
		return out, err
	case receipt.ActionRepeat: // only for a known request
	}
	return receipt.Bound{}, problem.New(problem.Internal, "request %s: action %d without facts for it", b.Request, d.Action)
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// facts reads what Decide needs to know, in the transaction that will write
// its decision.
func (t *tx) facts(body receipt.Body) (f receipt.Facts, err error) {
	if f.Target, err = t.loadTarget(t.ctx, body.Target); err != nil {
		return f, err
	}
	key := []any{body.Target, body.Instance, string(body.Profile), body.Digest}
	if f.Open, err = t.loadReceipt(t.ctx, t.open, key...); err != nil {
		return f, err
	}
	if f.Confirmed, err = t.loadReceipt(t.ctx, t.confirmed, key...); err != nil {
		return f, err
	}
	if c := f.Confirmed; c != nil {
		if err = t.forgotten.QueryRowContext(t.ctx, c.Request, c.Ledger).Scan(&f.Forgotten); err != nil {
			return f, err
		}
	}
	if body.Previous != "" {
		previous, err := t.loadBound(t.ctx, body.Previous)
		if err != nil {
			return f, err
		}
		if previous != nil {
			f.Previous = &previous.Execution
		}
	}
	f.Quarantine, err = t.loadBlocker(t.ctx, t.quarantine, body.Target, "")
	return f, err
}

func (t *tx) insert(b receipt.Binding, execution string) error {
	return t.exec(t.ctx, t.insertRequest, b.Request, execution, b.Body.Target, b.Body.Instance,
		string(b.Body.Profile), b.Body.Digest, b.Body.Revision, textOrNull(b.Body.Previous), b.Body.Again,
		b.Requester, microsOrNull(b.AcceptUntil), b.Declared, b.AcceptedAt.UnixMicro())
}

// Lookup gives what a request is bound to.
func (db *DB) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	var found *receipt.Bound
	err := db.view(ctx, func(r *reads) (err error) {
		found, err = r.loadBound(ctx, request)
		return err
	})
	if err != nil {
		return receipt.Bound{}, err
	}
	if found == nil {
		return receipt.Bound{}, db.unknown(request)
	}
	return *found, nil
}

func (db *DB) unknown(request string) error {
	return problem.New(problem.UnknownRequest, "request %s isn't known to this receipt database (epoch %s)", request, db.epoch).
		WithHint("if it was sent before this epoch began, its receipt is lost or in a backup; don't take this for \"never ran\"")
}
