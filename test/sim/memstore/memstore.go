// Package memstore keeps receipts in memory, by the same rules as
// internal/store: it passes the same suite (internal/store/storetest). The
// simulation and the tests of the use cases run on it.
//
// What it answers is "durable": it survives the end of a simulated masterd,
// which only drops its own memory. Copy and Restore put an older copy back.
package memstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// LostRaceError says that a receipt had moved on before its caller's change came.
type LostRaceError struct {
	Believed int
	Current  receipt.Receipt
}

func (e *LostRaceError) Error() string {
	return fmt.Sprintf("receipt %s is %s at %d, not at %d", e.Current.Request, e.Current.State, e.Current.Seq, e.Believed)
}

// Transition is one recorded change.
type Transition struct {
	Request string
	Seq     int
	Event   receipt.EventName
	From    receipt.State
	To      receipt.State
	At      time.Time
	Actor   string
	Code    problem.Code
}

type bound struct {
	binding   receipt.Binding
	execution string
}

// Defects are there on purpose, for the simulation.
type Defects struct {
	IgnoreQuarantine bool // nobody is refused for an uncertain receipt
	IgnoreRecords    bool // nor for one that was made of a ledger
	IgnoreEpochs     bool // what waited in a copy that is put back is as any other
	ReuseSettled     bool // an operator's success is reused
}

// data is what a copy holds. Its values are never changed in place.
type data struct {
	requests    map[string]bound
	receipts    map[string]receipt.Receipt
	order       []string // of receipts, as they were bound
	canonical   map[string][]byte
	sources     map[string][]byte
	targets     map[string]receipt.Target
	number      map[string]int // of requests, as they were bound
	adoptions   []adoption     // Target and Lines count them from 1
	lastJID     string
	witnesses   []receipt.Witness
	transitions []Transition
	settlements map[string]receipt.Settlement
	settled     []string // their requests, as they came
}

// adoption is a target's ledger since an operator recorded it.
type adoption struct {
	target, ledger string
	generation     uint64 // the highest told
	putBack        bool   // it told less than was known before it was asked
	bound          int    // the last request that was bound by then
}

// Store is safe for concurrent use.
type Store struct {
	Defects

	now func() time.Time
	mu  sync.Mutex
	d   data
}

// New makes an empty Store.
func New(now func() time.Time) *Store {
	return &Store{now: now, d: empty()}
}

func empty() data {
	return data{
		requests: map[string]bound{}, receipts: map[string]receipt.Receipt{},
		canonical: map[string][]byte{}, sources: map[string][]byte{}, targets: map[string]receipt.Target{},
		number: map[string]int{}, settlements: map[string]receipt.Settlement{},
	}
}

// micros cuts a time to what SQLite keeps: no monotonic reading, no nanoseconds.
func micros(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Round(0).Truncate(time.Microsecond).UTC()
}

// Bind binds a request, once.
func (s *Store) Bind(ctx context.Context, b receipt.Binding, source, canonical []byte) (receipt.Bound, error) {
	if ctx.Err() != nil {
		return receipt.Bound{}, ctx.Err()
	}
	b.AcceptedAt, b.AcceptUntil = micros(b.AcceptedAt), micros(b.AcceptUntil)
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := receipt.Decide(b, s.facts(b), s.now())
	if err != nil {
		return receipt.Bound{}, err
	}
	if sum := sha256.Sum256(canonical); d.Action != receipt.ActionRepeat && hex.EncodeToString(sum[:]) != b.Body.Digest {
		return receipt.Bound{}, problem.New(problem.Internal, "request %s: the digest isn't that of its canonical form", b.Request)
	}
	b.Claimed = "" // compared once, not kept
	switch d.Action {
	case receipt.ActionRepeat:
	case receipt.ActionAlias:
		s.d.requests[b.Request] = bound{b, d.Execution.Request}
		s.d.number[b.Request] = len(s.d.number) + 1
	case receipt.ActionNew, receipt.ActionRefuse:
		s.d.requests[b.Request] = bound{b, b.Request}
		s.d.number[b.Request] = len(s.d.number) + 1
		s.d.receipts[b.Request] = receipt.New(b)
		s.d.order = append(s.d.order, b.Request)
		if _, kept := s.d.canonical[b.Body.Digest]; !kept { // the first call's stays
			s.d.canonical[b.Body.Digest], s.d.sources[b.Body.Digest] = canonical, source
		}
		if d.Action == receipt.ActionRefuse {
			if _, err := s.apply(receipt.New(b), *d.Refusal); err != nil {
				return receipt.Bound{}, err
			}
		}
	}
	return s.look(b.Request), nil
}

func (s *Store) facts(b receipt.Binding) (f receipt.Facts) {
	if known, ok := s.d.requests[b.Request]; ok {
		f.Known = &receipt.Known{Body: known.binding.Body, Execution: s.d.receipts[known.execution]}
	}
	f.Target = s.target(b.Body.Target)
	for _, request := range s.byAcceptance() {
		r := s.d.receipts[request]
		if r.Body.Key() == b.Body.Key() && (r.State == receipt.Queued || r.State.Busy()) {
			f.Open = &r
		}
	}
	for _, t := range slices.Backward(s.d.transitions) { // the latest is the one that ended last
		if r := s.d.receipts[t.Request]; r.Body.Key() == b.Body.Key() && r.State.Terminal() {
			f.Confirmed, f.Forgotten = &r, s.forgotten(r.Request, r.Ledger)
			break
		}
	}
	if s.ReuseSettled && f.Confirmed != nil {
		f.Confirmed.Settled = false
	}
	if previous, ok := s.d.requests[b.Body.Previous]; ok {
		r := s.d.receipts[previous.execution]
		f.Previous = &r
	}
	f.Quarantine = s.quarantine(b.Body.Target, "")
	return f
}

func (s *Store) byAcceptance() []string {
	order := slices.Clone(s.d.order)
	slices.SortStableFunc(order, func(a, b string) int {
		return s.d.receipts[a].AcceptedAt.Compare(s.d.receipts[b].AcceptedAt)
	})
	return order
}

func isBusy(r receipt.Receipt) bool { return r.State.Busy() }

func (s *Store) blocker(target, except string, is func(receipt.Receipt) bool) *receipt.Blocker {
	for _, request := range s.d.order {
		if r := s.d.receipts[request]; r.Body.Target == target && request != except && is(r) {
			return r.Blocker()
		}
	}
	return nil
}

func (s *Store) quarantine(target, except string) *receipt.Blocker {
	if s.IgnoreQuarantine {
		return nil
	}
	for _, t := range s.d.transitions { // the one that has been uncertain longest
		r := s.d.receipts[t.Request]
		if t.To == receipt.Uncertain && r.State == receipt.Uncertain && r.Body.Target == target && r.Request != except &&
			(!s.IgnoreRecords || !r.FromLedger) {
			return r.Blocker()
		}
	}
	return nil
}

// Lookup gives what a request is bound to.
func (s *Store) Lookup(ctx context.Context, request string) (receipt.Bound, error) {
	if ctx.Err() != nil {
		return receipt.Bound{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.d.requests[request]; !ok {
		return receipt.Bound{}, unknown(request)
	}
	return s.look(request), nil
}

func unknown(request string) error {
	return problem.New(problem.UnknownRequest, "request %s isn't known here", request)
}

func (s *Store) look(request string) receipt.Bound {
	b := s.d.requests[request]
	return receipt.Bound{
		Request: request, Body: b.binding.Body, Execution: s.d.receipts[b.execution], Reused: b.execution != request,
	}
}

// Claim makes the claim, or refuses: what receipt.DecideClaim says.
func (s *Store) Claim(ctx context.Context, request string, believed int, c receipt.Claim) (receipt.Receipt, error) {
	return s.move(ctx, request, believed, func(r receipt.Receipt) receipt.Event {
		f := receipt.ClaimFacts{
			LastJID:    s.d.lastJID,
			Busy:       s.blocker(r.Body.Target, request, isBusy),
			Quarantine: s.quarantine(r.Body.Target, request),
		}
		if t := s.target(r.Body.Target); t != nil {
			f.PutBack = t.PutBack
		}
		s.keep(c.Told)
		return receipt.DecideClaim(r, c, f, s.now())
	})
}

// Apply applies one event.
func (s *Store) Apply(ctx context.Context, request string, believed int, e receipt.Event) (receipt.Receipt, error) {
	return s.move(ctx, request, believed, func(receipt.Receipt) receipt.Event { return e })
}

func (s *Store) move(ctx context.Context, request string, believed int, decide func(receipt.Receipt) receipt.Event) (receipt.Receipt, error) {
	if ctx.Err() != nil {
		return receipt.Receipt{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.d.receipts[request]
	switch {
	case !ok:
		return receipt.Receipt{}, unknown(request)
	case r.Seq != believed:
		return receipt.Receipt{}, &LostRaceError{Believed: believed, Current: r}
	}
	next, err := s.apply(r, decide(r))
	if err != nil {
		return receipt.Receipt{}, err
	}
	return next, nil
}

func (s *Store) apply(r receipt.Receipt, e receipt.Event) (receipt.Receipt, error) {
	e.At = micros(e.At)
	if e.Claim != nil {
		c := *e.Claim
		c.TicketAt = micros(c.TicketAt)
		e.Claim = &c
	}
	next, err := receipt.Apply(r, e)
	if err != nil {
		return r, err
	}
	if next.State.Busy() && !r.State.Busy() {
		if b := s.blocker(r.Body.Target, r.Request, isBusy); b != nil {
			return r, problem.New(problem.TargetBusy, "request %s has the target's lease", b.Request)
		}
	}
	if e.Name == receipt.EventSettle {
		s.settle(r.Request, *e.Settlement)
	}
	s.d.receipts[r.Request] = next
	s.d.lastJID = max(s.d.lastJID, next.JID)
	s.d.transitions = append(s.d.transitions, Transition{
		Request: r.Request, Seq: next.Seq, Event: e.Name, From: r.State, To: next.State, At: e.At, Actor: e.Actor, Code: e.Code,
	})
	return next, nil
}

// Unresolved gives every receipt without an outcome, in order of acceptance.
func (s *Store) Unresolved(ctx context.Context) (out []receipt.Receipt, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.byAcceptance() {
		if r := s.d.receipts[request]; r.State.Unresolved() {
			out = append(out, r)
		}
	}
	return out, nil
}

// Receipts gives every receipt, in order of acceptance.
func (s *Store) Receipts() (out []receipt.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.byAcceptance() {
		out = append(out, s.d.receipts[request])
	}
	return out
}

// Receipt gives one receipt; ok is false where there is none of that request.
func (s *Store) Receipt(request string) (r receipt.Receipt, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok = s.d.receipts[request]
	return r, ok
}

// Target gives the newest adoption of a target, nil if there is none.
func (s *Store) Target(ctx context.Context, id string) (*receipt.Target, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target(id), nil
}

func (s *Store) target(id string) *receipt.Target {
	t, ok := s.d.targets[id]
	if !ok {
		return nil
	}
	for _, a := range s.d.adoptions {
		if a.target == id { // the newest counts
			t.Generation, t.PutBack = a.generation, a.putBack
		}
	}
	return &t
}

// Lines gives what is known of a target's ledgers.
func (s *Store) Lines(ctx context.Context, target string) (receipt.Lines, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := receipt.Lines{}
	for i, a := range s.d.adoptions {
		if a.target == target {
			out[a.ledger] = receipt.Line{Adoption: int64(i + 1), Generation: a.generation}
		}
	}
	return out, nil
}

// Told keeps what an answer has told of its ledger.
func (s *Store) Told(ctx context.Context, told receipt.Told) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(told)
	return nil
}

func (s *Store) keep(told receipt.Told) {
	if !told.News() || int(told.Adoption) > len(s.d.adoptions) {
		return
	}
	a := &s.d.adoptions[told.Adoption-1]
	a.generation = max(a.generation, told.Generation)
	if told.PutBack() && !a.putBack {
		a.putBack, a.bound = true, len(s.d.number)
	}
}

// Forgotten says that a ledger was put back after a request had been bound.
func (s *Store) Forgotten(ctx context.Context, request, ledger string) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten(request, ledger), nil
}

func (s *Store) forgotten(request, ledger string) bool {
	n, target := s.d.number[request], s.d.requests[request].binding.Body.Target
	return n > 0 && slices.ContainsFunc(s.d.adoptions, func(a adoption) bool {
		return a.target == target && a.ledger == ledger && a.putBack && n <= a.bound
	})
}

// Adopt records an adoption. The newest of a target counts.
func (s *Store) Adopt(ctx context.Context, t receipt.Target) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.AdoptedAt, t.Duplicate, t.PutBack = micros(t.AdoptedAt), false, false
	for i := len(s.d.adoptions) - 1; i >= 0 && t.Generation == 0; i-- {
		// One that had told generations and tells none now: nobody knows.
		if a := &s.d.adoptions[i]; a.target == t.ID && a.ledger == t.Ledger {
			if a.generation > 0 && !a.putBack {
				a.putBack, a.bound = true, len(s.d.number)
			}
			break
		}
	}
	s.d.targets[t.ID] = t
	s.d.adoptions = append(s.d.adoptions, adoption{target: t.ID, ledger: t.Ledger, generation: t.Generation})
	return nil
}

// Canonical gives the canonical form that a digest stands for.
func (s *Store) Canonical(ctx context.Context, digest string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.d.canonical[digest]
	if !ok {
		return nil, problem.New(problem.Internal, "no source is stored for digest %s", digest)
	}
	return c, nil
}

// Source gives the source of a digest, as the first request that named it sent it.
func (s *Store) Source(ctx context.Context, digest string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.d.sources[digest]
	if !ok {
		return nil, problem.New(problem.Internal, "no source is stored for digest %s", digest)
	}
	return c, nil
}

// Witness adds to the log of evidence. A witness of duplicate_target marks the
// target's adoption.
func (s *Store) Witness(ctx context.Context, w receipt.Witness) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.d.receipts[w.Request]
	if !ok {
		return unknown(w.Request)
	}
	if !isWord(w.Kind) || !isWord(w.Result) || w.Code != "" && !isWord(string(w.Code)) {
		return problem.New(problem.Internal, "a witness holds names and numbers, never raw text")
	}
	s.keep(w.Told)
	w.At, w.Told = micros(w.At), receipt.Told{}
	s.d.witnesses = append(s.d.witnesses, w)
	if t, ok := s.d.targets[r.Body.Target]; ok && w.Code == problem.DuplicateTarget {
		t.Duplicate = true
		s.d.targets[r.Body.Target] = t
	}
	return nil
}

func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// Witnesses gives the log of evidence of a receipt, the oldest first.
func (s *Store) Witnesses(request string) (out []receipt.Witness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.d.witnesses {
		if w.Request == request {
			out = append(out, w)
		}
	}
	return out
}

// Written counts all transitions.
func (s *Store) Written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.d.transitions)
}

// Since gives the transitions after the first n.
func (s *Store) Since(n int) []Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.d.transitions[min(n, len(s.d.transitions)):])
}

// Transitions gives the history of a receipt.
func (s *Store) Transitions(request string) (out []Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.d.transitions {
		if t.Request == request {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Transition) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}
