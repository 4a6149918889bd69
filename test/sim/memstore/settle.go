package memstore

import (
	"context"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// settle keeps an operator's word with the transition that it brings.
func (s *Store) settle(request string, word receipt.Settlement) {
	word.Request, word.At, word.DeliveredAt = request, micros(word.At), time.Time{}
	s.d.settlements[request] = word
	s.d.settled = append(s.d.settled, request)
}

// Settlement gives what an operator said of a receipt, nil where nobody has.
func (s *Store) Settlement(ctx context.Context, request string) (*receipt.Settlement, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	word, ok := s.d.settlements[request]
	if !ok {
		return nil, nil
	}
	return &word, nil
}

// Owed gives what the ledger of a target's server has to be told, the oldest
// first.
func (s *Store) Owed(ctx context.Context, target, instance string) (out []receipt.Debt, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.d.settled {
		word, body := s.d.settlements[request], s.d.receipts[request].Body
		if word.Owed() && body.Target == target && body.Instance == instance {
			out = append(out, receipt.Debt{Request: request, Digest: body.Digest, Outcome: word.Outcome})
		}
	}
	return out, nil
}

// Delivered notes that a settlement needn't be told any more. Twice is no error.
func (s *Store) Delivered(ctx context.Context, request string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	word, ok := s.d.settlements[request]
	if !ok {
		return problem.New(problem.Internal, "request %s was never settled", request)
	}
	if word.DeliveredAt.IsZero() {
		word.DeliveredAt = micros(s.now())
		s.d.settlements[request] = word
	}
	return nil
}

// FromLedger makes an uncertain receipt of a ledger's record that isn't known
// here. One of the same key that still waits is refused with it.
func (s *Store) FromLedger(ctx context.Context, rec receipt.Record) (receipt.Receipt, error) {
	if ctx.Err() != nil {
		return receipt.Receipt{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.d.requests[rec.Request]; ok {
		return s.d.receipts[known.execution], nil
	}
	now := micros(s.now())
	b, e := receipt.FromRecord(rec, now)
	for _, request := range s.d.order {
		r := s.d.receipts[request]
		if r.Body.Key() != b.Body.Key() || r.State != receipt.Queued && !r.State.Busy() {
			continue
		}
		blocker := receipt.Blocker{Request: rec.Request, Profile: rec.Profile, Since: now}
		if _, err := s.apply(r, receipt.Refuse(now, problem.TargetQuarantined, &blocker)); err != nil {
			return receipt.Receipt{}, err
		}
	}
	fresh := receipt.New(b)
	fresh.FromLedger = true
	next, err := receipt.Apply(fresh, e)
	if err != nil {
		return receipt.Receipt{}, err
	}
	s.d.requests[b.Request] = bound{b, b.Request}
	s.d.number[b.Request] = len(s.d.number) + 1
	s.d.receipts[b.Request] = fresh
	s.d.order = append(s.d.order, b.Request)
	if _, err := s.apply(fresh, e); err != nil {
		return receipt.Receipt{}, err
	}
	return next, nil
}
