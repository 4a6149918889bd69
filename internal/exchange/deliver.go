package exchange

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Late is a valid answer that nobody waited for any more, or a second one that
// differs from the first. It is as authentic as any other.
type Late struct {
	Kind    message.Kind
	Request string
	Target  string
	Answer  message.Answer
	Lines   receipt.Lines // of its Question
	// Duplicate: an earlier answer to the same nonce had another ticket or
	// ledger, so two executors answer for this target.
	Duplicate bool
}

// How long and for how many questions late answers are understood. Each of
// them is held in memory, so both have an end.
const (
	lingerFor  = time.Hour
	lingerMost = 4096
	lateMost   = 4 // for each question
)

// OnLate sets who is told of late answers. The function must not block. Set it
// before the first question.
func (x *Exchange) OnLate(f func(Late)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.onLate = f
}

// close ends the wait. An answer that nobody has taken yet is a late one.
func (x *Exchange) close(w *waiter) {
	x.mu.Lock()
	onLate := x.onLate
	var late *Late
	if a := x.linger(w); a != nil {
		late = x.late(w, *a, false)
	}
	x.mu.Unlock()
	if late != nil && onLate != nil {
		onLate(*late)
	}
}

// linger runs with mu held. From then on nobody waits, but a late answer, or a
// second one that tells of a duplicate, is still understood. It gives the
// answer that came and wasn't taken, if any.
func (x *Exchange) linger(w *waiter) *message.Answer {
	if w.lingers {
		return nil
	}
	now := x.cfg.Now()
	w.lingers, w.until = true, now.Add(lingerFor)
	x.spent = append(x.spent, w)
	for len(x.spent) > 0 && (len(x.spent) > lingerMost || !now.Before(x.spent[0].until)) {
		delete(x.waiting, x.spent[0].question.Nonce)
		x.spent = x.spent[1:]
	}
	select {
	case a := <-w.answers:
		return &a
	default:
		return nil
	}
}

// forget ends the wait for what was never sent.
func (x *Exchange) forget(w *waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.waiting, w.question.Nonce)
}

// Deliver takes one return from the bus. Nothing of it is trusted: any minion
// can have made all of it. It never blocks.
func (x *Exchange) Deliver(jid, minion, text string) {
	x.mu.Lock()
	wake, onLate := x.byJID[jid], x.onLate
	handled, late := x.match(minion, text)
	x.mu.Unlock()
	if late != nil && onLate != nil {
		onLate(*late)
	}
	if wake != nil && !handled {
		wake()
	}
}

// match runs with mu held. It reports whether the text was a valid answer that
// somebody waits for, and what it says where nobody does.
func (x *Exchange) match(minion, text string) (handled bool, late *Late) {
	nonce, ok := message.PeekNonce(text)
	if !ok {
		x.noteSilence(minion, classify(text))
		return false, nil
	}
	w := x.waiting[nonce]
	if w == nil {
		x.stats.Strays.Add(1)
		x.noteSilence(minion, SilenceUnverified) // an old answer, perhaps, and none to what is asked now
		return false, nil
	}
	a, err := message.DecodeAnswer(text, w.key, w.question)
	if err != nil {
		x.stats.BadAnswers.Add(1)
		w.silence = SilenceUnverified
		x.cfg.Logger.Warn("an answer that proves nothing", "request", w.question.Request,
			"target", w.question.Target, "code", problem.CodeOf(err))
		return false, nil
	}
	first := w.first
	if first == nil {
		w.first = a
		x.stats.Verified.Add(1)
		if !w.lingers {
			w.answers <- *a
			return true, nil
		}
		return false, x.late(w, *a, false)
	}
	if same(*first, *a) {
		x.stats.Strays.Add(1)
		return !w.lingers, nil
	}
	duplicate := differ(a.Ticket, first.Ticket) || differ(a.Ledger, first.Ledger)
	if duplicate {
		x.stats.Duplicates.Add(1)
	}
	return !w.lingers, x.late(w, *a, duplicate)
}

// same says that a second answer says nothing new. Repeats are common, and
// whoever records the bus can make as many as he likes. Another generation is
// news: it may be another copy of the ledger that says the same.
func same(a, b message.Answer) bool {
	return a.Result == b.Result && a.Code == b.Code && a.Ticket == b.Ticket && a.Ledger == b.Ledger && a.Digest == b.Digest &&
		a.Generation == b.Generation
}

// differ: both say something, and not the same. One message that a minion runs
// twice is answered with a ticket only the first time.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

func (x *Exchange) late(w *waiter, a message.Answer, duplicate bool) *Late {
	if w.said >= lateMost {
		return nil
	}
	w.said++
	return &Late{
		Kind: w.question.Kind, Request: w.question.Request, Target: w.question.Target, Answer: a, Lines: w.lines,
		Duplicate: duplicate,
	}
}
