package memstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
	"github.com/oduflow/oduflow-salt/test/sim/memstore"
)

// The store of the simulation passes the suite of the real one.
func TestExercise(t *testing.T) {
	storetest.Exercise(t, func(_ *testing.T, clock *storetest.Clock) storetest.Store {
		return adapter{memstore.New(clock.Now)}
	})
}

// adapter gives the memory's rows in the types of internal/store.
type adapter struct{ *memstore.Store }

func translate(err error) error {
	var lost *memstore.LostRaceError
	if errors.As(err, &lost) {
		return &store.LostRaceError{Believed: lost.Believed, Current: lost.Current}
	}
	return err
}

func (a adapter) Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error) {
	r, err := a.Store.Apply(ctx, request, believed, e)
	return r, translate(err)
}

func (a adapter) Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error) {
	r, err := a.Store.Claim(ctx, request, believed, c)
	return r, translate(err)
}

func (a adapter) Witnesses(_ context.Context, request string) ([]receipt.Witness, error) {
	return a.Store.Witnesses(request), nil
}

func (a adapter) Transitions(_ context.Context, request string) (out []store.Transition, err error) {
	for _, t := range a.Store.Transitions(request) {
		out = append(out, store.Transition{
			Transition: receipt.Transition{Event: t.Event, From: t.From, To: t.To}, Seq: t.Seq, At: t.At, Actor: t.Actor, Code: t.Code,
		})
	}
	return out, nil
}

func (a adapter) List(_ context.Context, f store.Filter) (out []receipt.Receipt, err error) {
	all := a.Receipts()
	slices.Reverse(all)
	for _, r := range all {
		if (f.Target == "" || r.Body.Target == f.Target) && (len(f.States) == 0 || slices.Contains(f.States, r.State)) {
			out = append(out, r)
		}
	}
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, nil
}

func (a adapter) Stats(context.Context) (s store.Stats, err error) {
	for _, r := range a.Receipts() {
		switch r.State {
		case receipt.Queued:
			s.Queued++
		case receipt.Dispatching, receipt.Dispatched:
			s.Running++
		case receipt.Uncertain:
			s.Uncertain++
		case receipt.Refused, receipt.Succeeded, receipt.Failed:
		}
	}
	return s, nil
}
