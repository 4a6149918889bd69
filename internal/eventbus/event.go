package eventbus

import "time"

// Event is one event of a wanted tag. Data is its raw msgpack. It is owned by
// the receiver.
type Event struct {
	Tag  string
	Data []byte
}

// Gap says that events may be missing: those fired between Since and the
// moment at which the Gap is received.
type Gap struct {
	Since  time.Time
	Reason Reason
}

// Signal is what Events gives: exactly one of both is set.
type Signal struct {
	Event *Event
	Gap   *Gap
}

// Reason says why there is a Gap. It is a closed list of stable words.
type Reason string

// The reasons. All but the first and the last say how the connection before
// this one ended.
const (
	ReasonFirstJoin Reason = "first_join"
	ReasonClosed    Reason = "closed"    // between two events
	ReasonCut       Reason = "cut"       // within an event
	ReasonGarbled   Reason = "garbled"   // bytes that are no framing
	ReasonTooLarge  Reason = "too_large" // a frame beyond the limit
	ReasonOverflow  Reason = "overflow"  // our own queue was full
)

// Stats are counters since New.
type Stats struct {
	Events     uint64 // given to the queue
	Skipped    uint64 // of a tag that isn't wanted
	BadEvents  uint64 // whole, with a content that can't be used
	Oversized  uint64 // of a wanted tag, with more data than MaxBody
	BadFrames  uint64 // framing errors; each closes a connection
	Cuts       uint64 // connections that ended within a frame
	Overflows  uint64 // Gaps of a full queue
	Dropped    uint64 // events that didn't fit the queue
	Joins      uint64 // connections made
	DialErrors uint64
}
