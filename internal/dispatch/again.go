package dispatch

import (
	"context"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// After a gap of the bus, or a restart of masterd, an answer may have been lost,
// and the minions may need a moment to be back too. So every open receipt is asked
// about soon, and where nobody answers a few times more before the schedule goes
// on. The first answer ends that.

// againAfter are the pauses after a question that nobody answered, each with a
// quarter more at random.
var againAfter = [...]time.Duration{5 * time.Second, 15 * time.Second, 45 * time.Second, 135 * time.Second}

// prepareAgain is how often a prepare is repeated because of a gap.
const prepareAgain = 3

// untilGap gives a context that ends with the next gap too: the answer that is
// waited for may be lost then, and isn't waited for in vain. gapped ends that, and
// says whether there was one. A lane waits for one answer at a time.
func (l *lane) untilGap(ctx context.Context) (_ context.Context, gapped func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	came := false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onGap = func() { came = true; cancel() }
	return ctx, func() bool {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.onGap = nil
		return came
	}
}

// open says that a receipt waits for evidence.
func (e *entry) open() bool { return e.r.State.Busy() || e.r.State == receipt.Uncertain }

// lookAfterGap has the receipt asked about soon, and again if need be.
func (e *entry) lookAfterGap(now time.Time, in time.Duration) {
	e.lookAt, e.lookFor, e.again = now.Add(in), now, len(againAfter)
}

// lookAgain sets when a question that nobody answered is asked again, where that
// is well before the schedule has it: it must not be in the way of that.
func (e *entry) lookAgain(now time.Time, spread func(time.Duration) time.Duration) {
	if e.again == 0 {
		return
	}
	pause := againAfter[len(againAfter)-e.again]
	at := now.Add(pause + spread(pause/4))
	if nextLook(e.r.State, e.times.dispatched, e.lastLook).Before(at.Add(evidenceWait)) {
		return
	}
	e.lookAt, e.lookFor = at, now
	e.again--
}

// heard puts a look off for a while that is due while no answer can be learned:
// the bus may be back in a moment.
func (l *lane) heard(e *entry, at, now time.Time) time.Time {
	due := at
	if due.Before(e.times.learned) {
		due = e.times.learned
	}
	if now.Before(at) || l.d.cfg.Joined() || !now.Before(due.Add(deafPatience)) {
		return at
	}
	return now.Add(deafRetry)
}
