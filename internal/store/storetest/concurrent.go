package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
)

// together runs fn n times at once.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

const callers = 50

func fiftyCallers(r *rig) {
	var got [callers]receipt.Bound
	var errs [callers]error
	together(callers, func(i int) {
		b := receipttest.Binding(1, alpha, word)
		b.AcceptedAt = b.AcceptedAt.Add(time.Duration(i) * time.Microsecond)
		got[i], errs[i] = Bind(r.ctx, r.Store, b, word)
	})
	r.ok(errors.Join(errs[:]...))
	for _, g := range got {
		equal(r, g, got[0])
	}
	all, err := r.List(r.ctx, store.Filter{})
	r.ok(err)
	equal(r, len(all), 1)
}

func fiftyAliases(r *rig) {
	var got [callers]receipt.Bound
	var errs [callers]error
	together(callers, func(i int) { got[i], errs[i] = Bind(r.ctx, r.Store, receipttest.Binding(i+1, alpha, word), word) })
	r.ok(errors.Join(errs[:]...))
	own := 0
	for i, g := range got {
		equal(r, g.Request, receipttest.Request(i+1))
		equal(r, g.Execution, got[0].Execution)
		if !g.Reused {
			own++
		}
	}
	equal(r, own, 1)
}

func fiftyClaims(r *rig) {
	for i := range callers {
		r.bind(receipttest.Binding(i+1, alpha, fmt.Sprint(i)), fmt.Sprint(i))
	}
	var got [callers]receipt.Receipt
	var errs [callers]error
	together(callers, func(i int) {
		got[i], errs[i] = r.Claim(r.ctx, receipttest.Request(i+1), 0, receipttest.Claim(alpha))
	})
	r.ok(errors.Join(errs[:]...))
	busy := 0
	for _, g := range got {
		if g.State.Busy() {
			busy++
		} else {
			equal(r, g.Code, problem.TargetBusy)
		}
	}
	equal(r, busy, 1)
}
