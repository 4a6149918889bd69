package httpapi

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// Service is the use case behind the entry points of callers.
type Service interface {
	// CustomStart binds a request. Its errors carry the codes of the answers
	// that store nothing, those of the state language among them; several of
	// these may come as one errors.Join.
	CustomStart(ctx context.Context, r start.CustomRequest) (start.Answer, error)
	// CustomStatus tells what became of a request, or unknown_request. It waits
	// up to wait for a change; when ctx ends it answers with what it knows.
	CustomStatus(ctx context.Context, request string, wait time.Duration) (start.Answer, error)
	// StateValidate judges a source and executes nothing.
	StateValidate(ctx context.Context, source []byte) start.Validation
	// Health never waits.
	Health(ctx context.Context) start.Health
}

// Operator is what an operator may do on the master's own host. Every call
// arrives with By filled: who called, by peer credentials.
type Operator interface {
	Adopt(ctx context.Context, r AdoptRequest) (AdoptAnswer, error)
	// TokenCreate gives the token's text, which is shown this once.
	TokenCreate(ctx context.Context, r TokenRequest) (text string, t token.Token, err error)
	TokenList(ctx context.Context) ([]token.Token, error)
	// TokenRevoke is idempotent; not_found for an id that never was.
	TokenRevoke(ctx context.Context, id, by string) (token.Token, error)
}

// AdoptRequest records a server that was configured before we came.
type AdoptRequest struct {
	Target   string
	Instance string // UUID, canonical lower-case
	Replaces string // the target's former name, where the minion was renamed
	Reason   string
	By       string
}

// AdoptAnswer is what was recorded.
type AdoptAnswer struct {
	Target      string    `json:"target"`
	Instance    string    `json:"instance"`
	Fingerprint string    `json:"fingerprint"`
	Ledger      string    `json:"ledger"`
	Machine     string    `json:"machine"`
	AdoptedAt   time.Time `json:"adopted_at"`
}

// TokenRequest asks for a new token.
type TokenRequest struct {
	Scope token.Scope
	Name  string
	By    string
}

// Tokens looks up a bearer token by the hash of its text. ok is false for one
// that was never made or is revoked. An error says that nobody knows.
type Tokens interface {
	Check(ctx context.Context, hash token.Hash) (t token.Token, ok bool, err error)
}

// Config is what a Server needs. Service, Logger and Now are required; without
// Operator there are no operator entry points, without Tokens nobody gets past
// health over TLS.
type Config struct {
	Service  Service
	Operator Operator
	Receipts Receipts // nil: no entry points for them
	Tokens   Tokens
	Logger   hclog.Logger
	Now      func() time.Time

	// Lab lets masterd's own user, OwnUID, act as an operator; else root alone.
	Lab    bool
	OwnUID uint32

	Limits Limits
}

// Limits bound what callers can take. A zero field has the default.
type Limits struct {
	BodyBytes    int64         // 1 MiB: a source of 64 KiB, escaped, is 384 KiB
	HeaderBytes  int           // 16 KiB
	ReadHeader   time.Duration // 5 s
	Read         time.Duration // 15 s, header and body
	Write        time.Duration // 60 s, longer than the longest wait_s
	Idle         time.Duration // 60 s
	Close        time.Duration // 10 s for calls under way when ctx ends
	Connections  int           // 512 for each listener
	PerAddress   int           // of those, for one address over TLS: three quarters
	WaitingCalls int           // 256; what comes beyond is answered without waiting
}

func (l Limits) withDefaults() Limits {
	set(&l.BodyBytes, 1<<20)
	set(&l.HeaderBytes, 16<<10)
	set(&l.ReadHeader, 5*time.Second)
	set(&l.Read, 15*time.Second)
	set(&l.Write, 60*time.Second)
	set(&l.Idle, 60*time.Second)
	set(&l.Close, 10*time.Second)
	set(&l.Connections, 512)
	set(&l.PerAddress, max(1, l.Connections*3/4))
	set(&l.WaitingCalls, 256)
	return l
}

func set[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
