package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// LostRaceError says that a receipt had moved on before its caller's change
// came: nothing was written. Current is what it is now.
type LostRaceError struct {
	Believed int // the sequence number that the caller believed
	Current  receipt.Receipt
}

func (e *LostRaceError) Error() string {
	return fmt.Sprintf("receipt %s is %s at %d, not at %d", e.Current.Request, e.Current.State, e.Current.Seq, e.Believed)
}

// Apply applies one event to a receipt that the caller believes to be at seq
// believed. It gives the changed receipt once that is on disk. Errors:
// *LostRaceError, *receipt.IllegalError, unknown_request, target_busy (another
// receipt of the target is busy, and the event would make this one so too).
func (db *DB) Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error) {
	return db.move(ctx, "store.apply", request, believed, func(_ *tx, _ receipt.Receipt) (receipt.Event, error) {
		return e, nil
	})
}

// Claim makes the claim durable that must come before the first byte of a
// start, with a JID that no receipt has had, or refuses the receipt: what
// receipt.DecideClaim says of the facts of the same transaction.
func (db *DB) Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error) {
	return db.move(ctx, "store.claim", request, believed, func(t *tx, r receipt.Receipt) (receipt.Event, error) {
		facts, err := t.claimFacts(r)
		if err != nil {
			return receipt.Event{}, storage(err)
		}
		return receipt.DecideClaim(r, c, facts, t.now), t.keep(c.Told)
	})
}

func (db *DB) move(ctx context.Context, step, request string, believed int,
	decide func(*tx, receipt.Receipt) (receipt.Event, error),
) (receipt.Receipt, error) {
	var out receipt.Receipt
	err := db.write(ctx, step, func(t *tx) error {
		current, err := t.loadReceipt(t.ctx, t.receipt, request)
		switch {
		case err != nil:
			return storage(err)
		case current == nil:
			return db.unknown(request)
		case current.Seq != believed:
			return &LostRaceError{Believed: believed, Current: *current}
		}
		e, err := decide(t, *current)
		if err != nil {
			return err
		}
		out, err = t.apply(*current, e)
		return err
	})
	if err != nil {
		return receipt.Receipt{}, err
	}
	return out, nil
}

func (t *tx) claimFacts(r receipt.Receipt) (f receipt.ClaimFacts, err error) {
	if err = t.lastJID.QueryRowContext(t.ctx).Scan(&f.LastJID); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return f, err
	}
	if f.Busy, err = t.loadBlocker(t.ctx, t.busy, r.Body.Target, r.Request); err != nil {
		return f, err
	}
	if f.Quarantine, err = t.loadBlocker(t.ctx, t.quarantine, r.Body.Target, r.Request); err != nil {
		return f, err
	}
	err = t.putBack.QueryRowContext(t.ctx, r.Body.Target).Scan(&f.PutBack)
	return f, err
}

// apply changes a receipt by receipt.Apply and adds the transition.
func (t *tx) apply(current receipt.Receipt, e receipt.Event) (receipt.Receipt, error) {
	next, err := receipt.Apply(current, inMicros(e))
	if err != nil {
		return current, err
	}
	if s := e.Settlement; e.Name == receipt.EventSettle {
		if err := t.exec(t.ctx, t.insertSettlement, current.Request, string(s.Outcome), s.Reason, s.Observed,
			s.ServerGone, s.By, toMicros(s.At).UnixMicro()); err != nil {
			return current, err
		}
	}
	if next.State.Busy() && !current.State.Busy() {
		busy, err := t.loadBlocker(t.ctx, t.busy, current.Body.Target, current.Request)
		if err != nil {
			return current, storage(err)
		}
		if busy != nil {
			return current, problem.New(problem.TargetBusy, "request %s has the target's lease", busy.Request)
		}
	}
	var blocker, profile, since any
	if b := next.BlockedBy; b != nil {
		blocker, profile, since = b.Request, string(b.Profile), microsOrNull(b.Since)
	}
	err = t.exec(t.ctx, t.insertTransition,
		next.Request, next.Seq, string(e.Name), string(current.State), string(next.State), toMicros(e.At).UnixMicro(),
		e.Actor, textOrNull(next.Code), textOrNull(next.Detail), textOrNull(next.JID), textOrNull(next.Ticket), textOrNull(next.Fingerprint),
		textOrNull(next.Ledger), microsOrNull(next.TicketAt), microsOrNull(next.DispatchedAt), microsOrNull(next.FinishedAt),
		next.Counts.Declared, next.Counts.Passed, next.Counts.Failed, next.Counts.NotRun,
		next.Preflight.Passed, next.Preflight.Total, blocker, profile, since, next.Settled)
	if err != nil {
		return current, err
	}
	return next, nil
}

// inMicros cuts an event's times to what the database keeps, so that what is
// answered is what would be read.
func inMicros(e receipt.Event) receipt.Event {
	e.At = toMicros(e.At)
	if e.Claim != nil {
		c := *e.Claim
		c.TicketAt = toMicros(c.TicketAt)
		e.Claim = &c
	}
	if e.Blocker != nil {
		b := *e.Blocker
		b.Since = toMicros(b.Since)
		e.Blocker = &b
	}
	return e
}
