package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

type scanner interface{ Scan(into ...any) error }

// bindingRow takes bindingColumns in their order.
type bindingRow struct {
	b           receipt.Binding
	previous    sql.NullString
	acceptUntil sql.NullInt64
	acceptedAt  sql.NullInt64
}

func (r *bindingRow) columns() []any {
	b := &r.b
	return []any{
		&b.Request, &b.Body.Target, &b.Body.Instance, &b.Body.Profile, &b.Body.Digest, &b.Body.Revision,
		&r.previous, &b.Body.Again, &b.Requester, &r.acceptUntil, &b.Declared, &r.acceptedAt,
	}
}

func (r *bindingRow) binding() receipt.Binding {
	b := r.b
	b.Body.Previous = r.previous.String
	b.AcceptUntil, b.AcceptedAt = timeOf(r.acceptUntil), timeOf(r.acceptedAt)
	return b
}

// receiptRow takes receiptColumns in their order.
type receiptRow struct {
	bindingRow
	state                                      receipt.State
	seq                                        int
	jid, code, detail, ticket, fingerprint     sql.NullString
	ledger                                     sql.NullString
	ticketAt, dispatchedAt, finishedAt, at     sql.NullInt64
	declared, passed, failed, notRun           sql.NullInt64
	checksPassed, checks, blockerSince, settle sql.NullInt64
	blocker, blockerProfile                    sql.NullString
	fromLedger, carried                        bool
}

func (r *receiptRow) columns() []any {
	return append(r.bindingRow.columns(),
		&r.state, &r.seq, &r.jid,
		&r.code, &r.detail, &r.ticket, &r.fingerprint, &r.ledger, &r.ticketAt, &r.dispatchedAt, &r.finishedAt, &r.at,
		&r.declared, &r.passed, &r.failed, &r.notRun, &r.checksPassed, &r.checks,
		&r.blocker, &r.blockerProfile, &r.blockerSince, &r.settle, &r.fromLedger, &r.carried)
}

func (r *receiptRow) receipt() receipt.Receipt {
	out := receipt.New(r.binding())
	out.FromLedger, out.Carried = r.fromLedger, r.carried
	if r.seq == 0 {
		return out
	}
	out.State, out.Seq, out.Code = r.state, r.seq, problem.Code(r.code.String)
	out.Detail = r.detail.String
	out.JID, out.Ticket = r.jid.String, r.ticket.String
	out.Fingerprint, out.Ledger = r.fingerprint.String, r.ledger.String
	out.TicketAt, out.DispatchedAt, out.FinishedAt = timeOf(r.ticketAt), timeOf(r.dispatchedAt), timeOf(r.finishedAt)
	if r.state == receipt.Uncertain {
		out.LostAt = timeOf(r.at) // of its newest transition, which made it so
	}
	out.Counts = receipt.Counts{
		Declared: int(r.declared.Int64), Passed: int(r.passed.Int64),
		Failed: int(r.failed.Int64), NotRun: int(r.notRun.Int64),
	}
	out.Preflight = receipt.Preflight{Passed: int(r.checksPassed.Int64), Total: int(r.checks.Int64)}
	if r.blocker.Valid {
		out.BlockedBy = &receipt.Blocker{
			Request: r.blocker.String, Profile: receipt.Profile(r.blockerProfile.String), Since: timeOf(r.blockerSince),
		}
	}
	out.Settled = r.settle.Int64 == 1
	return out
}

func scanReceipt(row scanner) (receipt.Receipt, error) {
	var r receiptRow
	if err := row.Scan(r.columns()...); err != nil {
		return receipt.Receipt{}, err
	}
	return r.receipt(), nil
}

// maybe gives nil for no row.
func maybe[T any](value T, err error) (*T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // "there is none" is an answer here, not an error
	}
	if err != nil {
		return nil, err
	}
	return &value, nil
}

// loadBound gives what a request is bound to, nil if it is unknown.
func (r *reads) loadBound(ctx context.Context, request string) (*receipt.Bound, error) {
	var own bindingRow
	var exec receiptRow
	err := r.bound.QueryRowContext(ctx, request).Scan(append(own.columns(), exec.columns()...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // unknown is an answer here, not an error
	}
	if err != nil {
		return nil, err
	}
	b := receipt.Bound{Request: request, Body: own.binding().Body, Execution: exec.receipt()}
	b.Reused = b.Execution.Request != request
	return &b, nil
}

func (r *reads) loadReceipt(ctx context.Context, s *sql.Stmt, args ...any) (*receipt.Receipt, error) {
	return maybe(scanReceipt(s.QueryRowContext(ctx, args...)))
}

func (r *reads) loadBlocker(ctx context.Context, s *sql.Stmt, target, except string) (*receipt.Blocker, error) {
	var b receipt.Blocker
	var since sql.NullInt64
	err := s.QueryRowContext(ctx, target, except).Scan(&b.Request, &b.Profile, &since)
	b.Since = timeOf(since)
	return maybe(b, err)
}

func (r *reads) loadTarget(ctx context.Context, id string) (*receipt.Target, error) {
	var t receipt.Target
	var at sql.NullInt64
	err := r.target.QueryRowContext(ctx, id).Scan(&t.ID, &t.Instance, &t.Fingerprint, &t.Ledger, &t.Machine,
		&at, &t.AdoptedBy, &t.Reason, &t.Duplicate, &t.Generation, &t.PutBack)
	t.AdoptedAt = timeOf(at)
	return maybe(t, err)
}
