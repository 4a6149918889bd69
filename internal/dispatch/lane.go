package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/evidence"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// lane does the work of one target. It alone decides whose turn it is, so two
// receipts of a target never prepare, start or look at once. At most one turn
// or question is under way (asking), and at most one write beside it (writing),
// so that a minion's silence never holds up what must be refused in time.
type lane struct {
	d      *Dispatcher
	target string
	wake   chan struct{} // capacity 1

	mu    sync.Mutex
	inbox []arrival
	gapIn time.Duration // -1: no gap since the last look
	hints bool          // a reason to look now
	onGap func()        // ends the question that is under way; may be nil

	// Owned by run.
	held       []*entry     // unresolved receipts in order of acceptance
	statements []*statement // authentic answers that are not judged yet
	asked      []*asked     // operators' questions
	asking     bool
	writing    bool
	done       chan func() // capacity 2: what a finished step wants changed
}

// arrival is what others tell a lane: a receipt that there is, and perhaps an
// answer about it.
type arrival struct {
	r         receipt.Receipt
	restored  bool // read from the store when masterd started
	statement *statement
	asked     *asked // an operator's question
	moved     bool   // somebody else has changed r in the store
}

// statement is one authentic answer about a receipt. It stays until the store
// has it.
type statement struct {
	e         *entry
	kind      message.Kind
	answer    message.Answer
	lines     receipt.Lines // known before it was asked for
	duplicate bool          // a second executor's answer to the same nonce
	witnessed bool          // its witness is in the store
	then      func()        // in the lane, once the store has it; may be nil
}

// entry is one receipt in a lane.
type entry struct {
	r        receipt.Receipt
	times    times
	trying   bool            // its turn is under way: nobody else touches it
	restored bool            // another process bound it: the ledger is asked before it is refused
	launch   Launch          // the start that this process published, nil after a restart
	lines    receipt.Lines   // known before that start
	unwatch  func()          // stops hints for its JID
	lastLook time.Time       // when evidence was asked last
	lookAt   time.Time       // asked earlier than the schedule says; zero: no reason to
	lookFor  time.Time       // when the reason for that arose
	again    int             // how often a question without an answer is still asked again early
	lost     int             // prepares whose answer a gap may have taken
	last     *message.Answer // newest authentic answer to evidence
	stale    bool            // the store may know more than r: read it again first
	retryAt  time.Time       // not before, after the store couldn't be used
}

func newLane(d *Dispatcher, target string) *lane {
	return &lane{d: d, target: target, wake: make(chan struct{}, 1), done: make(chan func(), 2), gapIn: -1}
}

func (l *lane) add(a arrival) {
	l.mu.Lock()
	l.inbox = append(l.inbox, a)
	l.mu.Unlock()
	l.nudge()
}

func (l *lane) gap(in time.Duration) {
	l.mu.Lock()
	l.gapIn = in
	if l.onGap != nil {
		l.onGap()
	}
	l.mu.Unlock()
	l.nudge()
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pending runs with the dispatcher's lock held.
func (l *lane) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inbox) > 0
}

func (l *lane) run(ctx context.Context) {
	defer l.release()
	for {
		l.takeIn()
		working := l.asking || l.writing
		if ctx.Err() == nil {
			l.step(ctx, l.d.cfg.Now())
		} else if !working {
			return
		}
		if l.idle() && l.d.retire(l) {
			return
		}
		l.wait(ctx)
	}
}

func (l *lane) idle() bool {
	return !l.asking && !l.writing && len(l.held) == 0 && len(l.statements) == 0 && len(l.asked) == 0
}

// release frees what is left when masterd stops.
func (l *lane) release() {
	for _, e := range l.held {
		e.close()
	}
}

func (e *entry) close() {
	if e.launch != nil {
		e.launch.Close()
		e.launch = nil
	}
	if e.unwatch != nil {
		e.unwatch()
		e.unwatch = nil
	}
}

// takeIn moves what arrived into the lane's own state.
func (l *lane) takeIn() {
	l.mu.Lock()
	inbox, gapIn, hints := l.inbox, l.gapIn, l.hints
	l.inbox, l.gapIn, l.hints = nil, -1, false
	l.mu.Unlock()
	for _, a := range inbox {
		e := l.entryOf(a)
		if a.statement != nil {
			a.statement.e = e
			l.statements = append(l.statements, a.statement)
		}
		if a.asked != nil {
			a.asked.e = e
			l.asked = append(l.asked, a.asked)
		}
		if a.moved && e.r.Seq < a.r.Seq {
			e.stale, e.retryAt = slices.Contains(l.held, e), time.Time{}
		}
	}
	now := l.d.cfg.Now()
	for _, e := range l.held {
		switch {
		case !e.open():
		case gapIn >= 0:
			e.lookAfterGap(now, gapIn)
		case hints:
			e.lookAt, e.lookFor = now, now
		}
	}
}

// entryOf finds the entry of a receipt, or makes it. It also sets up hints: a
// return on the bus under a claimed JID is a reason to ask sooner. A receipt
// that is terminal gets an entry only to judge a statement by.
func (l *lane) entryOf(a arrival) *entry {
	for _, e := range l.held {
		if e.r.Request == a.r.Request {
			return e
		}
	}
	e := &entry{r: a.r, restored: a.restored}
	e.times.learn(a.r, l.d.cfg.Now())
	if a.r.State.Terminal() {
		return e
	}
	l.watch(e)
	after := func(x *entry) bool { return x.r.AcceptedAt.After(a.r.AcceptedAt) }
	place := slices.IndexFunc(l.held, after)
	if place < 0 {
		place = len(l.held)
	}
	l.held = slices.Insert(l.held, place, e)
	if a.restored && e.open() { // masterd heard nothing while it was down
		e.lookAfterGap(l.d.cfg.Now(), l.d.spread(gapSpread))
	}
	return e
}

func (l *lane) watch(e *entry) {
	if e.unwatch != nil || e.r.JID == "" {
		return
	}
	e.unwatch = l.d.cfg.Exchange.WatchJID(e.r.JID, l.hint)
}

// hint is called from the bus: it only leaves a note.
func (l *lane) hint() {
	l.mu.Lock()
	l.hints = true
	l.mu.Unlock()
	l.nudge()
}

// busy gives the receipt that holds the target, if any.
func (l *lane) busy() *entry {
	for _, e := range l.held {
		if e.r.State.Busy() {
			return e
		}
	}
	return nil
}

// quarantine gives the receipt that quarantines the target, if any: the one that
// has been uncertain longest.
func (l *lane) quarantine() *entry {
	var first *entry
	for _, e := range l.held {
		if e.r.State == receipt.Uncertain && (first == nil || e.r.LostAt.Before(first.r.LostAt)) {
			first = e
		}
	}
	return first
}

// step starts what is most urgent now, if there is anything.
func (l *lane) step(ctx context.Context, now time.Time) {
	if l.writing {
		return
	}
	if write := l.nextWrite(now); write != nil {
		l.writing = true
		l.begin(ctx, write, func() { l.writing = false })
		return
	}
	if l.asking {
		return
	}
	if len(l.asked) > 0 {
		l.asking = true
		q := l.asked[0]
		r, fence := q.e.r, q.e.fences(now)
		l.begin(ctx, func(ctx context.Context) func() { return l.ask(ctx, q, r, fence) }, func() { l.asking = false })
		return
	}
	if e := l.dueForLook(now); e != nil {
		l.asking = true
		r, fence := e.r, e.fences(now)
		l.begin(ctx, func(ctx context.Context) func() { return l.look(ctx, e, r, fence) }, func() { l.asking = false })
		return
	}
	if e := l.next(now); e != nil {
		l.asking, e.trying = true, true
		l.begin(ctx, func(ctx context.Context) func() { return l.attempt(ctx, e) }, func() { l.asking, e.trying = false, false })
	}
}

// nextWrite gives what has to be done with the store alone: a receipt to be
// read again, a statement to be judged, an end that time has brought.
func (l *lane) nextWrite(now time.Time) func(context.Context) func() {
	for _, e := range l.held {
		if e.stale && !e.trying && !now.Before(e.retryAt) {
			return func(ctx context.Context) func() { return l.reread(ctx, e) }
		}
	}
	for _, s := range l.statements {
		if !s.e.stale && !s.e.trying && !now.Before(s.e.retryAt) {
			return func(ctx context.Context) func() { return l.take(ctx, s) }
		}
	}
	o := l.obstruction()
	for _, e := range l.held {
		if e.stale || e.trying || now.Before(e.retryAt) {
			continue
		}
		if at, ok := e.endsAt(o, now); ok && !now.Before(at) {
			event := e.end(o, now)
			return func(ctx context.Context) func() { return l.write(ctx, e, event) }
		}
	}
	return nil
}

// begin runs a step beside the lane, so that the lane still hears of hints and
// new receipts. What the step returns runs in the lane, after over.
func (l *lane) begin(ctx context.Context, step func(context.Context) func(), over func()) {
	l.d.wg.Go(func() {
		change := step(ctx)
		l.done <- func() { over(); change() }
	})
}

// obstruction is what keeps a target's queued receipts waiting, looked up once
// for all of them: thousands may wait.
type obstruction struct {
	quarantine, busy *entry
}

func (l *lane) obstruction() obstruction {
	return obstruction{quarantine: l.quarantine(), busy: l.busy()}
}

// endsAt says when the clock alone ends an entry: a busy one at its deadline,
// once it was asked after Salt's time was over; a queued one when it is refused.
func (e *entry) endsAt(o obstruction, now time.Time) (at time.Time, ok bool) {
	switch {
	case e.r.State.Busy():
		asked := !e.lastLook.Before(e.times.dispatched.Add(receipt.SaltWait))
		return e.times.dispatched.Add(receipt.DispatchDeadline), asked
	case e.carried():
		return e.carriedEnds(now)
	case e.r.State != receipt.Queued || e.restored:
		return time.Time{}, false
	}
	return e.waitEnds(o, now), true
}

// waitEnds says when a queued entry gives up its place.
func (e *entry) waitEnds(o obstruction, now time.Time) time.Time {
	switch {
	case o.quarantine != nil:
		return now // waiting ones too are refused at once
	case o.busy != nil:
		return e.times.accepted.Add(receipt.TurnWait)
	}
	return e.times.accepted.Add(receipt.CustomWindow)
}

// end is the event that endsAt announces.
func (e *entry) end(o obstruction, now time.Time) receipt.Event {
	switch {
	case e.r.State.Busy():
		return evidence.AtDeadline(e.last, now)
	case e.carried():
		return evidence.LoseCarried(now)
	case o.quarantine != nil:
		return receipt.Refuse(now, problem.TargetQuarantined, o.quarantine.r.Blocker())
	case o.busy != nil:
		return receipt.Refuse(now, problem.TargetBusy, o.busy.r.Blocker())
	}
	return receipt.Refuse(now, problem.StartWindowPassed, nil)
}

// dueForLook gives a receipt whose evidence is to be asked for now.
func (l *lane) dueForLook(now time.Time) *entry {
	for _, e := range l.held {
		if at, ok := l.lookTime(e, now); ok && !now.Before(at) {
			return e
		}
	}
	return nil
}

// lookTime says when evidence about a receipt is due.
func (l *lane) lookTime(e *entry, now time.Time) (time.Time, bool) {
	switch {
	case e.stale:
		return time.Time{}, false
	case e.carried():
		return l.carriedLook(e, now)
	case e.r.State == receipt.Queued:
		return l.restoredLook(e, now)
	}
	at := nextLook(e.r.State, e.times.dispatched, e.lastLook)
	if !e.lookAt.IsZero() {
		early := e.lookAt
		if pause := e.lastLook.Add(hintPause); !e.lastLook.IsZero() && early.Before(pause) {
			early = pause
		}
		if early.Before(at) {
			at = early
		}
	}
	if at.Before(e.retryAt) {
		at = e.retryAt
	}
	return l.heard(e, at, now), true
}

// restoredLook: a waiting receipt that this process hasn't bound can't have its
// turn now, so it may have to be refused. Where the database is an older copy,
// put back, its request may have run in the meantime; its ledger knows. While
// masterd is deaf that waits a little.
func (l *lane) restoredLook(e *entry, now time.Time) (time.Time, bool) {
	if !e.restored {
		return time.Time{}, false
	}
	o := l.obstruction()
	if at := e.waitEnds(o, now); o.busy == nil && now.Before(at) {
		return at, true
	}
	if until := e.times.learned.Add(receipt.TurnWait); !l.d.cfg.Joined() && now.Before(until) {
		return now.Add(deafRetry), true
	}
	return now, true
}

// next gives the receipt whose turn it is, if the target is free. Where it
// isn't known what became of a claim, the target may not be.
func (l *lane) next(now time.Time) *entry {
	if l.busy() != nil || l.quarantine() != nil || !l.d.cfg.Joined() {
		return nil
	}
	for _, e := range l.held {
		if e.stale || now.Before(e.retryAt) {
			return nil
		}
	}
	for _, e := range l.held {
		if e.r.State == receipt.Queued && !e.r.Carried {
			return e
		}
	}
	return nil
}

// wait blocks until something may have changed, or masterd is to stop.
func (l *lane) wait(ctx context.Context) {
	timer := time.NewTimer(l.sleepFor())
	defer timer.Stop()
	answered := l.ownAnswer()
	stop := ctx.Done()
	if l.asking || l.writing {
		stop = nil // the step ends by itself soon after ctx
	}
	select {
	case change := <-l.done:
		change()
	case <-l.wake:
	case a := <-answered.answers:
		l.answered(answered.e, a)
	case <-timer.C:
	case <-stop:
	}
}

type awaited struct {
	e       *entry
	answers <-chan message.Answer
}

// ownAnswer gives the channel of the start that this process published.
func (l *lane) ownAnswer() awaited {
	for _, e := range l.held {
		if e.launch != nil {
			return awaited{e: e, answers: e.launch.Answers()}
		}
	}
	return awaited{}
}

// answered takes the executor's own answer to a start.
func (l *lane) answered(e *entry, a message.Answer) {
	e.launch.Close()
	e.launch = nil
	l.statements = append(l.statements, &statement{e: e, kind: message.Start, answer: a, lines: e.lines})
}

// sleepFor gives the time until something is due by the clock. What waits for a
// step that is under way isn't: the end of the step wakes the lane.
func (l *lane) sleepFor() time.Duration {
	const idle = time.Hour
	if l.writing {
		return idle
	}
	now := l.d.cfg.Now()
	soonest := now.Add(idle)
	earlier := func(at time.Time) {
		if at.Before(soonest) {
			soonest = at
		}
	}
	for _, s := range l.statements {
		earlier(s.e.retryAt)
	}
	o := l.obstruction()
	for _, e := range l.held {
		if e.trying {
			continue
		}
		if e.stale || now.Before(e.retryAt) {
			earlier(e.retryAt)
			continue
		}
		if at, ok := e.endsAt(o, now); ok {
			earlier(at)
		}
		if l.asking {
			continue
		}
		if at, ok := l.lookTime(e, now); ok {
			earlier(at)
		}
		if e.r.State == receipt.Queued && !e.r.Carried && o.busy == nil {
			earlier(now.Add(deafRetry)) // only deafness keeps it waiting
		}
	}
	return max(soonest.Sub(now), time.Millisecond)
}

// changed takes over what the store made of a receipt. It runs in the lane.
func (l *lane) changed(e *entry, r receipt.Receipt) {
	moved := r.Seq != e.r.Seq
	e.r, e.stale, e.retryAt = r, false, time.Time{}
	e.times.learn(r, l.d.cfg.Now())
	l.watch(e)
	if r.State.Terminal() {
		e.close()
		l.held = slices.DeleteFunc(l.held, func(x *entry) bool { return x == e })
	}
	if moved {
		l.d.cfg.Changed(r)
		l.d.cfg.Logger.Info("receipt changed", "request", r.Request, "target", r.Body.Target,
			"state", r.State, "code", r.Code, "jid", r.JID)
	}
}

// failed notes that a write's outcome isn't known: the receipt is read again
// before anything else is done with it. It runs in the lane.
func (l *lane) failed(e *entry, err error) {
	e.stale = slices.Contains(l.held, e)
	e.retryAt = l.d.cfg.Now().Add(storeRetry)
	var illegal *receipt.IllegalError
	if errors.As(err, &illegal) {
		e.retryAt = time.Time{}
	}
	l.d.cfg.Logger.Warn("a receipt must be read again", "request", e.r.Request, "target", l.target, "error", err)
}

// reread brings an entry up to date with the store.
func (l *lane) reread(ctx context.Context, e *entry) func() {
	bound, err := l.d.cfg.Store.Lookup(ctx, e.r.Request)
	return func() {
		if err != nil {
			l.failed(e, err)
			return
		}
		l.changed(e, bound.Execution)
	}
}

// write applies one event and tells the lane.
func (l *lane) write(ctx context.Context, e *entry, event receipt.Event) func() {
	r, err := l.d.cfg.Store.Apply(context.WithoutCancel(ctx), e.r.Request, e.r.Seq, event)
	return func() {
		if err != nil {
			l.failed(e, err)
			return
		}
		l.changed(e, r)
	}
}
