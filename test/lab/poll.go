package lab

import (
	"context"
	"time"
)

const (
	pollEvery = 20 * time.Millisecond
	// pollShare bounds what asking costs: a fifth of the time. A look at all processes takes some
	// milliseconds, and several tests look at once.
	pollShare = 4
	pollMost  = 250 * time.Millisecond // between two questions, however long one of them took
)

// Poll asks until done, an error, or the end of ctx, whose error it returns then.
//
// It is the one place where tests ask again and again, for what real processes do: a file that
// appears, a process that ends, a line in a log, an answer of masterd's. Salt, masterd and the kernel
// tell nobody of these. What a test can be told of (a channel, an event of the bus, the end of a
// child) it waits for directly, and time that has to pass is a timer's, never Poll's.
func Poll(ctx context.Context, done func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		asked := time.Now()
		ok, err := done()
		if err != nil || ok {
			return err
		}
		timer.Reset(min(max(pollEvery, pollShare*time.Since(asked)), pollMost))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}
