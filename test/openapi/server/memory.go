package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// memory remembers requests and lets time pass by being asked: a receipt is
// queued when bound, running when first asked for, and ends when asked again.
// How it ends is in the target's name: one that begins with "fail" fails, with
// "lost" is uncertain, with "busy" is refused; "slow" ones never end and
// "down" ones answer 503.
type memory struct {
	now func() time.Time

	mu       sync.Mutex
	receipts map[string]*receipt.Receipt
	tokens   map[token.Hash]*token.Token
	starts   map[string]int // calls of custom_start by target
}

func newMemory(now func() time.Time) *memory {
	return &memory{
		now: now, receipts: map[string]*receipt.Receipt{}, tokens: map[token.Hash]*token.Token{},
		starts: map[string]int{},
	}
}

// judge is a stand-in for the state language.
func judge(source []byte) start.Validation {
	text := string(source)
	for i, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, "{{"); at >= 0 {
			return start.Validation{Errors: []*problem.Error{
				problem.New(problem.Jinja, "Jinja isn't rendered").WithHint("write the value itself").At(i+1, at+1),
			}}
		}
	}
	switch {
	case len(source) > 64<<10:
		return start.Validation{Errors: []*problem.Error{problem.New(problem.SourceTooLarge, "the source has more than 65536 bytes").At(1, 1)}}
	case strings.TrimSpace(text) == "":
		return start.Validation{Errors: []*problem.Error{problem.New(problem.SourceEmpty, "the source declares nothing").At(1, 1)}}
	}
	sum := sha256.Sum256(source)
	return start.Validation{OK: true, Digest: hex.EncodeToString(sum[:]), States: 3}
}

func (m *memory) StateValidate(_ context.Context, source []byte) start.Validation {
	return judge(source)
}

func (m *memory) Health(context.Context) start.Health {
	return start.Health{OK: true, Version: "0.0.0-test", Epoch: "1", BusJoined: true}
}

func (m *memory) CustomStart(_ context.Context, r start.CustomRequest) (start.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts[r.Target]++
	if strings.HasPrefix(r.Target, "down") && m.starts[r.Target] < 3 {
		return start.Answer{}, problem.New(problem.Deaf, "masterd can't learn answers").WithHint("try again later")
	}
	v := judge(r.Source)
	if !v.OK {
		return start.Answer{}, v.Errors[0]
	}
	body := receipt.Body{
		Target: r.Target, Instance: r.Instance, Profile: receipt.Custom, Digest: v.Digest,
		Revision: r.Revision, Previous: r.Previous, Again: r.Again,
	}
	if known, ok := m.receipts[r.Request]; ok {
		if known.Body != body {
			return start.Answer{}, problem.New(problem.RequestConflict, "request %s is already bound to another body", r.Request)
		}
		return answer(*known), nil
	}
	switch {
	case r.Digest != "" && r.Digest != v.Digest:
		return start.Answer{}, problem.New(problem.DigestMismatch, "the digest given isn't the source's")
	case !r.AcceptUntil.IsZero() && m.now().After(r.AcceptUntil):
		return start.Answer{}, problem.New(problem.AcceptUntilPassed, "accept_until has passed")
	}
	bound := &receipt.Receipt{
		Binding: receipt.Binding{Request: r.Request, Body: body, Requester: r.Requester, Declared: v.States, AcceptedAt: m.now()},
		State:   receipt.Queued, Counts: receipt.Counts{Declared: v.States},
	}
	m.receipts[r.Request] = bound
	return answer(*bound), nil
}

func (m *memory) CustomStatus(_ context.Context, request string, _ time.Duration) (start.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.receipts[request]
	if !ok {
		return start.Answer{}, problem.New(problem.UnknownRequest, "no such request in epoch 1")
	}
	m.advance(r)
	return answer(*r), nil
}

func (m *memory) advance(r *receipt.Receipt) {
	var events []receipt.Event
	target, now := r.Body.Target, m.now()
	switch {
	case r.State == receipt.Queued && strings.HasPrefix(target, "busy"):
		events = append(events, receipt.Refuse(now, problem.TargetBusy, &receipt.Blocker{
			Request: "00000000-0000-4000-8000-000000000001", Profile: receipt.Custom, Since: now,
		}))
	case r.State == receipt.Queued:
		events = append(events,
			receipt.ClaimStart(now, receipt.Claim{JID: "20261130180000000000", Ticket: "t", Ledger: "l", TicketAt: now}),
			receipt.Acknowledge(now))
	case r.State != receipt.Dispatched || strings.HasPrefix(target, "slow"):
	case strings.HasPrefix(target, "lost"):
		events = append(events, receipt.Event{
			Name: receipt.EventLose, To: receipt.Uncertain, At: now, Actor: receipt.ActorMasterd, Code: problem.NoAnswer,
		})
	case strings.HasPrefix(target, "fail"):
		events = append(events, receipt.Event{
			Name: receipt.EventFinish, To: receipt.Failed, At: now, Actor: receipt.ActorMasterd,
			Code: problem.StateFailed, Counts: &receipt.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1},
		})
	default:
		events = append(events, receipt.Event{
			Name: receipt.EventFinish, To: receipt.Succeeded, At: now, Actor: receipt.ActorMasterd,
			Counts: &receipt.Counts{Declared: 3, Passed: 3},
		})
	}
	for _, e := range events {
		if next, err := receipt.Apply(*r, e); err == nil {
			*r = next
		}
	}
}

func answer(r receipt.Receipt) start.Answer {
	a := start.Answer{Request: r.Request, Execution: r, Status: r.State.Status(), Blocked: r.BlockedBy, Revision: r.Body.Revision}
	if r.State.Unresolved() {
		a.PollAfter = time.Second
	}
	return a
}

func (m *memory) Check(_ context.Context, hash token.Hash) (token.Token, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tokens[hash]
	if !ok || !t.RevokedAt.IsZero() {
		return token.Token{}, false, nil
	}
	return *t, true, nil
}

func (m *memory) create(scope token.Scope, name string) (string, token.Token, error) {
	text, t, hash, err := token.New(rand.Reader, scope)
	if err != nil {
		return "", token.Token{}, err
	}
	t.Name, t.CreatedAt, t.CreatedBy = name, m.now(), "test"
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens[hash] = &t
	return text, t, nil
}

func (m *memory) TokenCreate(_ context.Context, r httpapi.TokenRequest) (string, token.Token, error) {
	return m.create(r.Scope, r.Name)
}

func (m *memory) TokenList(context.Context) ([]token.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []token.Token{}
	for _, t := range m.tokens {
		list = append(list, *t)
	}
	return list, nil
}

func (m *memory) TokenRevoke(_ context.Context, id, _ string) (token.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		if t.ID == id {
			if t.RevokedAt.IsZero() {
				t.RevokedAt = m.now()
			}
			return *t, nil
		}
	}
	return token.Token{}, problem.New(problem.NotFound, "there is no token %s", id)
}

func (m *memory) Adopt(_ context.Context, r httpapi.AdoptRequest) (httpapi.AdoptAnswer, error) {
	return httpapi.AdoptAnswer{
		Target: r.Target, Instance: r.Instance, Fingerprint: "fp", Ledger: "l", Machine: "m", AdoptedAt: m.now(),
	}, nil
}
