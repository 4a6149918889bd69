package eventbus

import (
	"sync"
	"time"
)

// queue stands between the reader, which never waits, and the consumer. It is
// bounded by events and by their bytes; where an event doesn't fit, a Gap
// takes its place. A Gap at the tail takes in every further one, so there is
// at most one Gap for each event and one more.
type queue struct {
	mu       sync.Mutex
	items    []Signal
	events   int
	bytes    int
	max      int
	maxBytes int
	filled   chan struct{} // capacity 1: something is there
}

func newQueue(maxEvents, maxBytes int) *queue {
	return &queue{max: maxEvents, maxBytes: maxBytes, filled: make(chan struct{}, 1)}
}

// putEvent says whether the event found room, and whether a Gap was begun.
func (q *queue) putEvent(ev Event, now func() time.Time) (kept, overflowed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(ev.Tag) + len(ev.Data)
	// An event that is larger than all the room is taken if it is alone.
	if q.events >= q.max || (q.events > 0 && q.bytes+size > q.maxBytes) {
		if g := q.tailGap(); g != nil && g.Reason == ReasonOverflow {
			return false, false
		}
		q.appendGap(Gap{Since: now(), Reason: ReasonOverflow})
		return false, true
	}
	q.events++
	q.bytes += size
	q.items = append(q.items, Signal{Event: &ev})
	q.notify()
	return true, false
}

func (q *queue) putGap(g Gap) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.appendGap(g)
}

// appendGap adds a Gap, or widens the one at the tail: the earlier Since holds
// for both, and the reason is the latest.
func (q *queue) appendGap(g Gap) {
	if tail := q.tailGap(); tail != nil {
		if tail.Since.Before(g.Since) {
			g.Since = tail.Since
		}
		q.items[len(q.items)-1] = Signal{Gap: &g}
	} else {
		q.items = append(q.items, Signal{Gap: &g})
	}
	q.notify()
}

func (q *queue) tailGap() *Gap {
	if len(q.items) == 0 {
		return nil
	}
	return q.items[len(q.items)-1].Gap
}

func (q *queue) notify() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// takeAll empties the queue into buf. Room for the reader is there at once,
// while the consumer still works: what it holds is bounded by the same limit.
func (q *queue) takeAll(buf []Signal) []Signal {
	q.mu.Lock()
	defer q.mu.Unlock()
	buf = append(buf[:0], q.items...)
	clear(q.items)
	q.items = q.items[:0]
	q.events, q.bytes = 0, 0
	return buf
}
