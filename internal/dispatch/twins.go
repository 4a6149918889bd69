package dispatch

import (
	"context"
	"sync"
	"time"
)

// twins are the targets for which two executors answered. The store's own mark
// (receipt.Target.Duplicate) is made from the witness of it and outlives us;
// this one is there at once. A new adoption ends both.
type twins struct {
	mu sync.Mutex
	of map[string]time.Time // target: when it had been adopted
}

// noteTwin remembers that two executors answer for a target.
func (d *Dispatcher) noteTwin(ctx context.Context, target string) {
	var adopted time.Time
	if t, err := d.cfg.Store.Target(ctx, target); err == nil && t != nil {
		adopted = t.AdoptedAt
	}
	d.twins.mu.Lock()
	defer d.twins.mu.Unlock()
	if d.twins.of == nil {
		d.twins.of = map[string]time.Time{}
	}
	d.twins.of[target] = adopted
}

// duplicated says that two executors answer for a target since its adoption.
func (d *Dispatcher) duplicated(ctx context.Context, target string) bool {
	t, err := d.cfg.Store.Target(ctx, target)
	if err == nil && t != nil && t.Duplicate {
		return true
	}
	d.twins.mu.Lock()
	defer d.twins.mu.Unlock()
	adopted, noted := d.twins.of[target]
	if !noted {
		return false
	}
	return err != nil || t == nil || t.AdoptedAt.Equal(adopted)
}
