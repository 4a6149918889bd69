package start

import "sync"

// changes wakes up waiters when a receipt changes. It carries no values: a
// waiter reads the store again.
type changes struct {
	mu      sync.Mutex
	waiters map[string]map[chan struct{}]struct{} // by execution
}

func newChanges() *changes {
	return &changes{waiters: map[string]map[chan struct{}]struct{}{}}
}

// watch gives a channel that is closed at the next change. Call stop in any case.
func (c *changes) watch(execution string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiters[execution] == nil {
		c.waiters[execution] = map[chan struct{}]struct{}{}
	}
	c.waiters[execution][ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiters[execution], ch)
		if len(c.waiters[execution]) == 0 {
			delete(c.waiters, execution)
		}
	}
}

func (c *changes) tell(execution string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.waiters[execution] {
		close(ch)
	}
	delete(c.waiters, execution)
}
