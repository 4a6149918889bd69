package dispatch

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// times are the moments of a receipt's life that something is counted from.
// The store's times have no monotonic reading. How long ago each was is
// measured once, when this process learns of it; from then on no step of the
// wall clock moves it.
type times struct {
	learned    time.Time // when this process got to know the receipt
	accepted   time.Time
	dispatched time.Time // zero: not yet
	ticket     time.Time // zero: not yet, or never
}

// learn fills in what isn't known yet.
func (t *times) learn(r receipt.Receipt, now time.Time) {
	set := func(at *time.Time, stored time.Time) {
		if at.IsZero() && !stored.IsZero() {
			*at = ago(now, stored)
		}
	}
	set(&t.learned, now)
	set(&t.accepted, r.AcceptedAt)
	set(&t.dispatched, r.DispatchedAt)
	set(&t.ticket, r.TicketAt)
}

// ago gives a stored time as one that can be compared with now. One that lies
// in the future, since a clock was set back, counts as now: then a wait begins
// anew, and nothing waits for as long as the step was.
func ago(now, stored time.Time) time.Time {
	return now.Add(-max(0, now.Sub(stored)))
}

// nextLook says when a busy or uncertain receipt is to be asked about next,
// given when it was asked last (zero: not since this process started). The
// points are 30 s and 130 s after the dispatch, then every 10 minutes, and once
// when Salt's time is over.
func nextLook(state receipt.State, dispatched, last time.Time) time.Time {
	if state == receipt.Uncertain {
		if last.IsZero() {
			return dispatched
		}
		return last.Add(receipt.LookInterval)
	}
	for p := receipt.FenceAfter - receipt.LookInterval; p < receipt.SaltWait; p += receipt.LookInterval {
		if at := dispatched.Add(max(p, receipt.FirstLook)); at.After(last) {
			return at
		}
	}
	if at := dispatched.Add(receipt.SaltWait); at.After(last) {
		return at
	}
	return last.Add(receipt.LookInterval)
}

// mayFence says that masterd's evidence may fence: the ticket it got is dead
// on the minion by then.
func mayFence(ticket, now time.Time) bool {
	return !ticket.IsZero() && now.Sub(ticket) >= receipt.FenceAfter
}
