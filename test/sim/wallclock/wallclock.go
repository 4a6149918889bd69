// Package wallclock is a clock whose wall reading can be stepped, as an
// operator or NTP does it, while its monotonic reading goes on. A synctest
// bubble's own time.Now has no monotonic reading, so that code that compares
// wall clocks by mistake could not be told from code that doesn't.
package wallclock

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Clock is safe for concurrent use.
type Clock struct {
	base time.Time // the source's reading when the clock was made
	from func() time.Time
	step atomic.Int64
}

// New makes a Clock that reads what from reads.
func New(from func() time.Time) *Clock { return &Clock{base: from(), from: from} }

// Step moves the wall clock, and the wall clock only.
func (c *Clock) Step(by time.Duration) { c.step.Add(int64(by)) }

// Stepped is the sum of all steps.
func (c *Clock) Stepped() time.Duration { return time.Duration(c.step.Load()) }

// Now gives a time with both readings, as time.Now does outside of a bubble.
func (c *Clock) Now() time.Time {
	now := c.from().Round(0)
	wall := now.Add(c.Stepped())
	return compose(wall, now.Sub(c.base)+time.Second)
}

// stdTime is how package time lays out a Time (see its source: wall holds a
// flag, 33 bits of seconds since 1885 and 30 bits of nanoseconds, ext the
// monotonic reading). The test of this package fails where that changes.
type stdTime struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMonotonic = 1 << 63
	nsecShift    = 30
	unixTo1885   = (1970*365 + 1970/4 - 1970/100 + 1970/400 - (1885*365 + 1885/4 - 1885/100 + 1885/400)) * 86400
)

func compose(wall time.Time, monotonic time.Duration) time.Time {
	out := stdTime{
		wall: hasMonotonic | uint64(wall.Unix()+unixTo1885)<<nsecShift | uint64(wall.Nanosecond()),
		ext:  int64(monotonic),
		loc:  time.UTC,
	}
	return *(*time.Time)(unsafe.Pointer(&out))
}
