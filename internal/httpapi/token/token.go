// Package token is what a caller over TLS proves itself with: a bearer token
// that carries a scope. masterd keeps its SHA-256 alone, so a copy of the
// database logs nobody in.
//
// A token's text is odf_<id>_<secret>: a name for lists and logs, then 256
// random bits. That is why one plain hash is enough: there is nothing to guess.
package token

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Scope says what a token may do. Each scope includes the ones after it.
type Scope string

// The scopes, the widest first.
const (
	Custom   Scope = "custom"   // start custom states, ask for status, validate
	Status   Scope = "status"   // ask for status, validate
	Validate Scope = "validate" // validate
)

// Scopes gives all scopes, the widest first.
func Scopes() []Scope { return []Scope{Custom, Status, Validate} }

// Includes says that whoever holds s may do what needs other.
func (s Scope) Includes(other Scope) bool {
	have, want := s.rank(), other.rank()
	return have > 0 && want > 0 && have >= want
}

// rank is 0 for anything that isn't a scope, so that it includes nothing.
func (s Scope) rank() int {
	switch s {
	case Custom:
		return 3
	case Status:
		return 2
	case Validate:
		return 1
	}
	return 0
}

// ParseScope reads a scope's name.
func ParseScope(name string) (Scope, error) {
	if s := Scope(name); s.rank() > 0 {
		return s, nil
	}
	return "", problem.New(problem.BadField, "scope isn't one of custom, status, validate")
}

// Token is what is known of a token without its secret.
type Token struct {
	ID        string
	Scope     Scope
	Name      string // an operator's label
	CreatedAt time.Time
	CreatedBy string
	RevokedAt time.Time // zero while it is good
}

// Hash is what is stored of a token's text.
type Hash [sha256.Size]byte

const (
	prefix      = "odf_"
	idBytes     = 6
	secretBytes = 32
	textLength  = len(prefix) + 2*idBytes + 1 + 2*secretBytes
)

// New makes a token from 38 random bytes. The text is shown once and never
// stored; the Hash is what to store. Name and times are the caller's to fill.
func New(random io.Reader, scope Scope) (text string, t Token, hash Hash, err error) {
	if scope.rank() == 0 {
		return "", Token{}, Hash{}, problem.New(problem.BadField, "scope isn't one of custom, status, validate")
	}
	raw := make([]byte, idBytes+secretBytes)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", Token{}, Hash{}, problem.Wrap(problem.Internal, err, "no random bytes for a token")
	}
	id := hex.EncodeToString(raw[:idBytes])
	text = prefix + id + "_" + hex.EncodeToString(raw[idBytes:])
	return text, Token{ID: id, Scope: scope}, HashOf(text), nil
}

// HashOf hashes a token's whole text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// IDOf gives the id in a token's text, or false for what can't be a token.
func IDOf(text string) (string, bool) {
	if len(text) != textLength || !strings.HasPrefix(text, prefix) {
		return "", false
	}
	id, secret := text[len(prefix):len(prefix)+2*idBytes], text[len(prefix)+2*idBytes:]
	if secret[0] != '_' || !isHex(id) || !isHex(secret[1:]) {
		return "", false
	}
	return id, true
}

// ValidID says that id has the shape of a token's id.
func ValidID(id string) bool { return len(id) == 2*idBytes && isHex(id) }

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
