package message

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/msgpackwalk"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Protocol is the version this build speaks; MinProtocol the oldest that it
// still understands. Protocol 1 is the first.
const (
	Protocol    = 1
	MinProtocol = 1
)

// Sizes in bytes, of the texts as Salt carries them.
const (
	MaxMessage = 256 << 10
	MaxAnswer  = 4 << 10
)

// NonceSize and TicketSize are in random bytes; both travel as lower-case hex.
const (
	NonceSize     = 16
	TicketSize    = 16
	ResultKeySize = 32
)

// maxDepth is how deep a message nests: the envelope, its fields.
const maxDepth = 4

const signatureDomain = "oduflow-salt message v1\x00"

// Kind is what a message asks for.
type Kind string

// The kinds.
const (
	Prepare  Kind = "prepare"
	Start    Kind = "start"
	Evidence Kind = "evidence"
	Settle   Kind = "settle"
	Update   Kind = "update"
)

// Message is one opened or to-be-sealed message. All strings are in canonical
// form: UUIDs and hex in lower case. Ticket is empty but for Start, Digest is
// empty for Update. Body is the msgpack form of the kind's own body.
type Message struct {
	Protocol int
	Kind     Kind
	Target   string
	Instance string
	Request  string
	Ticket   string
	Digest   string
	Nonce    string
	Body     []byte
}

// Body is what a message carries besides its identity. ResultKey is always
// there; the rest belongs to the kinds named.
type Body struct {
	ResultKey []byte `msgpack:"result_key"`
	Profile   string `msgpack:"profile,omitempty"`   // prepare, start
	Canonical []byte `msgpack:"canonical,omitempty"` // start: the canonical form whose SHA-256 is Digest
	Fence     bool   `msgpack:"fence,omitempty"`     // evidence: a prepared record with a dead ticket may be fenced
	Update    string `msgpack:"update,omitempty"`    // update: what is updated, "identity" for now

	// What masterd knew of the ledger that was adopted before it asked: an executor
	// that finds it at less writes nothing into it, or it would count up to that.
	Ledger     string `msgpack:"ledger,omitempty"`     // its id
	Generation uint64 `msgpack:"generation,omitempty"` // the highest that it has told, 0 for none

	Outcome Outcome      `msgpack:"outcome,omitempty"` // settle: what an operator found to be true
	Owed    []Settlement `msgpack:"owed,omitempty"`    // prepare: settlements to be done first, at most MaxOwed
}

// UpdateIdentity is the Update that writes the minion's identity file.
const UpdateIdentity = "identity"

// Outcome is what an operator says that came of a request.
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
)

// Valid says whether it is one of them.
func (o Outcome) Valid() bool { return o == OutcomeSucceeded || o == OutcomeFailed }

// Settlement is an operator's outcome for one started record. On its own it
// travels as a Settle message, whose Request and Digest name the record. One
// that couldn't be delivered so travels with each later Prepare of the target
// until an Answer's Settlements has it as settled, or as something else that
// is final.
type Settlement struct {
	Request string  `msgpack:"request"`
	Digest  string  `msgpack:"digest"`
	Outcome Outcome `msgpack:"outcome"`
}

// MaxOwed is how many settlements a Prepare carries: what came of them has to
// fit into one answer.
const MaxOwed = 8

// EncodeBody gives a Body's bytes for Message.Body.
func EncodeBody(b Body) ([]byte, error) { return msgpack.Marshal(&b) }

// DecodeBody is the inverse of EncodeBody. It refuses a body without a result
// key of the right size.
func DecodeBody(raw []byte) (Body, error) {
	var b Body
	if err := msgpack.Unmarshal(raw, &b); err != nil {
		return Body{}, problem.Wrap(Unreadable, err, "a message's body can't be decoded")
	}
	if len(b.ResultKey) != ResultKeySize {
		return Body{}, problem.New(Unreadable, "a message's body has no result key")
	}
	return b, nil
}

// Codes of messages that change nothing. They appear on the minion only, in
// its counters and in the plain text that it answers with.
const (
	Unreadable  problem.Code = "message_unreadable"   // not ours in form, or not sealed to us
	Unsigned    problem.Code = "message_unsigned"     // no signature of the pinned key
	WrongTarget problem.Code = "message_wrong_target" // signed, but for somebody else
	WrongKind   problem.Code = "message_wrong_kind"   // signed, but for another entry point
	Unsupported problem.Code = "message_unsupported"  // signed, in a protocol that we don't speak
)

// envelope is the sealed plaintext.
type envelope struct {
	_msgpack  struct{} `msgpack:",as_array"` //nolint:unused // msgpack reads the tag
	Protocol  int
	Kind      string
	Target    string
	Instance  string
	Request   string
	Ticket    string
	Digest    string
	Nonce     string
	Body      []byte
	Signature []byte
}

// signedBytes is what the signature covers: the domain, each field of the
// identity with its length before it, and the hash of the body. The lengths
// make it impossible to move bytes from one field to the next.
func (m *Message) signedBytes() []byte {
	bodyHash := sha256.Sum256(m.Body)
	out := []byte(signatureDomain)
	out = binary.BigEndian.AppendUint32(out, uint32(m.Protocol)) //nolint:gosec // a small positive constant, or refused later
	for _, field := range []string{string(m.Kind), m.Target, m.Instance, m.Request, m.Ticket, m.Digest, m.Nonce} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(field))) //nolint:gosec // bounded by MaxMessage
		out = append(out, field...)
	}
	return append(out, bodyHash[:]...)
}

// Seal signs m and seals it to a minion's accepted Salt key (PEM). The result
// is the one opaque argument of a publish. Errors: TooLarge where the text
// would be over MaxMessage; KeyChanged where the key can't be used.
func Seal(m Message, signing ed25519.PrivateKey, minionKeyPEM string) (string, error) {
	env := envelope{
		Protocol: m.Protocol, Kind: string(m.Kind), Target: m.Target, Instance: m.Instance,
		Request: m.Request, Ticket: m.Ticket, Digest: m.Digest, Nonce: m.Nonce, Body: m.Body,
		Signature: ed25519.Sign(signing, m.signedBytes()),
	}
	plain, err := msgpack.Marshal(&env)
	if err != nil {
		return "", problem.Wrap(problem.Internal, err, "a message can't be encoded")
	}
	sealed, err := sealTo(plain, minionKeyPEM)
	if err != nil {
		return "", err
	}
	// Without padding: Salt would take a text that ends in one "=" for a keyword.
	text := base64.RawStdEncoding.EncodeToString(sealed)
	if len(text) > MaxMessage {
		return "", problem.New(problem.TooLarge, "a message of %d bytes is over the limit of %d", len(text), MaxMessage)
	}
	return text, nil
}

// Opener opens what Seal made.
type Opener struct {
	Target       string            // this minion's ID, taken literally
	Pinned       ed25519.PublicKey // masterd's key
	MinionKeyPEM []byte            // the minion's own private Salt key
}

// Open opens, verifies and returns a message for the entry point kind. It
// checks the protocol last, so that a signed message from a newer masterd can
// be answered as such: the error is Unsupported and the Message is returned
// with it. Every other error returns no Message.
func (o Opener) Open(text string, kind Kind) (*Message, error) {
	if len(text) > MaxMessage {
		return nil, problem.New(Unreadable, "a message of %d bytes is over the limit of %d", len(text), MaxMessage)
	}
	sealed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, problem.Wrap(Unreadable, err, "a message isn't base64")
	}
	plain, err := openWith(sealed, o.MinionKeyPEM)
	if err != nil {
		return nil, err
	}
	// Anybody can seal, so these bytes are hostile until the signature is right,
	// and a msgpack header may announce more than memory holds.
	if err := msgpackwalk.Check(plain, maxDepth); err != nil {
		return nil, problem.Wrap(Unreadable, err, "a message can't be decoded")
	}
	var env envelope
	if err := msgpack.Unmarshal(plain, &env); err != nil {
		return nil, problem.Wrap(Unreadable, err, "a message can't be decoded")
	}
	m := &Message{
		Protocol: env.Protocol, Kind: Kind(env.Kind), Target: env.Target, Instance: env.Instance,
		Request: env.Request, Ticket: env.Ticket, Digest: env.Digest, Nonce: env.Nonce, Body: env.Body,
	}
	switch {
	case len(o.Pinned) != ed25519.PublicKeySize || !ed25519.Verify(o.Pinned, m.signedBytes(), env.Signature):
		return nil, problem.New(Unsigned, "a message doesn't carry the signature of the pinned masterd key")
	case m.Target != o.Target:
		return nil, problem.New(WrongTarget, "a message is for another target")
	case m.Kind != kind:
		return nil, problem.New(WrongKind, "a message is of another kind than the function it came to")
	case m.Protocol < MinProtocol || m.Protocol > Protocol:
		return m, problem.New(Unsupported, "a message is in protocol %d, this executor speaks %d to %d", m.Protocol, MinProtocol, Protocol)
	}
	return m, nil
}

// NewNonce draws a nonce from random.
func NewNonce(random io.Reader) (string, error) { return drawHex(random, NonceSize) }

// NewTicket draws a ticket from random.
func NewTicket(random io.Reader) (string, error) { return drawHex(random, TicketSize) }

func drawHex(random io.Reader, size int) (string, error) {
	buf := make([]byte, size)
	if _, err := io.ReadFull(random, buf); err != nil {
		return "", fmt.Errorf("drawing %d random bytes: %w", size, err)
	}
	return hex.EncodeToString(buf), nil
}
