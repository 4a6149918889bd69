package message

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	answerPrefix  = "odf1."
	answerDomain  = "oduflow-salt answer v1\x00"
	resultKeyInfo = "oduflow-salt result key v1\x00"
)

// Result is what an executor states about a request. The list is closed.
type Result string

// The results. Prepare answers Prepared or Refused, or, where a record of this
// very request exists that is past prepared, what Evidence would answer.
// Start answers Finished, Fenced, or what Evidence would answer, and
// Disregarded for a ticket that isn't the record's current one. Update answers
// Updated or Refused.
//
// Settle answers Settled, or Refused (ledger_changed, ledger_unwritable,
// instance_differs, request_conflict for another digest), or, where there is
// nothing to settle, what Evidence would answer: Running while the lease is
// held for it or a survivor lives, Finished, Fenced, NeverBegan or Lapsed where
// the ledger knows by itself, NotStartedYet, Absent. Repeated it answers the
// same. A record that was settled with another outcome before stays so: Settled
// comes with the Outcome that is recorded, which is the one to compare.
const (
	Prepared      Result = "prepared"        // Ticket is live
	Refused       Result = "refused"         // nothing was prepared; Code says why
	Finished      Result = "finished"        // Outcome holds the counts; Code "" is success
	Fenced        Result = "fenced"          // will never start; Code never_started or start_refused_*
	Running       Result = "running"         // started, and its lease is held (or a survivor lives)
	Interrupted   Result = "interrupted"     // effect begun, no finish, lease free
	NeverBegan    Result = "never_began"     // started, effect not begun, lease free
	NotStartedYet Result = "not_started_yet" // prepared, may still start
	Absent        Result = "absent"          // no record; proves nothing
	Disregarded   Result = "disregarded"     // nothing changed, nothing is proved
	Updated       Result = "updated"
	Settled       Result = "settled" // closed by an operator; Outcome holds which. No executor saw it
	Lapsed        Result = "lapsed"  // prepared, can't start any more, and whether it did is not proved: another boot, or a ledger put back
)

// Counts account for the declared states of one request.
type Counts struct {
	Declared int `json:"declared"`
	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	NotRun   int `json:"not_run"`
}

// Answer is what an executor states, under a MAC. It holds identity, counts
// and codes, never output.
type Answer struct {
	Protocol   int          `json:"protocol"`
	Executor   string       `json:"executor"` // version of the executor, for diagnostics
	Kind       Kind         `json:"kind"`
	Request    string       `json:"request"`
	Target     string       `json:"target"`
	Nonce      string       `json:"nonce"`
	Result     Result       `json:"result"`
	Code       problem.Code `json:"code,omitempty"`
	Ticket     string       `json:"ticket,omitempty"`
	Digest     string       `json:"digest,omitempty"`     // of the record that the result is about
	Ledger     string       `json:"ledger,omitempty"`     // ledger id
	Machine    string       `json:"machine,omitempty"`    // machine-id, hashed by the executor
	Instance   string       `json:"instance,omitempty"`   // of the identity file
	Unfinished string       `json:"unfinished,omitempty"` // record_unfinished: the record that blocks
	Survivors  int          `json:"survivors,omitempty"`
	Counts     *Counts      `json:"counts,omitempty"`
	Outcome    Outcome      `json:"outcome,omitempty"` // of a Settled record

	// Generation counts what was ever written to this ledger. It only grows, so
	// an answer whose generation is lower than one that was known before it was
	// asked for, under the same Ledger, comes from a ledger that was put back
	// (or from another copy of it): no Fenced, NeverBegan, Absent or
	// NotStartedYet of it is proof, and nothing should be prepared on it until
	// it was adopted. 0 where the executor is older, or no ledger was read.
	Generation uint64 `json:"generation,omitempty"`

	// Settlements says what came of each of a Prepare's Owed, in their order.
	// They are done whatever else the prepare answers, but not in a ledger that
	// isn't this machine's. A pointer, as Counts is: answers can be compared.
	Settlements *SettlementStates `json:"settlements,omitempty"`
}

// SettlementStates is one state for each owed settlement, in their order.
type SettlementStates []SettlementState

// SettlementState is what came of one owed settlement: Result, Code and Outcome
// as a Settle of its own would have answered. Settled, Finished, Fenced,
// NeverBegan, Lapsed and Absent are final and pay the debt, whether they agree
// or not; Running, NotStartedYet and Refused leave it owed.
type SettlementState struct {
	Request string       `json:"request"`
	Result  Result       `json:"result"`
	Code    problem.Code `json:"code,omitempty"`
	Outcome Outcome      `json:"outcome,omitempty"`
}

// ResultKey derives the key that answers about one request are under.
func ResultKey(secret []byte, request, target, instance string) ([]byte, error) {
	info := []byte(resultKeyInfo)
	for _, field := range []string{request, target, instance} {
		info = binary.BigEndian.AppendUint32(info, uint32(len(field))) //nolint:gosec // short identifiers
		info = append(info, field...)
	}
	return hkdf.Key(sha256.New, secret, nil, string(info), ResultKeySize)
}

// EncodeAnswer gives the text that an executor returns through Salt. It is at
// most MaxAnswer bytes, or an error.
func EncodeAnswer(a Answer, resultKey []byte) (string, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return "", problem.Wrap(problem.Internal, err, "an answer can't be encoded")
	}
	text := answerPrefix + base64.RawURLEncoding.EncodeToString(raw) + "." +
		base64.RawURLEncoding.EncodeToString(answerMAC(raw, resultKey))
	if len(text) > MaxAnswer {
		return "", problem.New(problem.TooLarge, "an answer of %d bytes is over the limit of %d", len(text), MaxAnswer)
	}
	return text, nil
}

func answerMAC(raw, resultKey []byte) []byte {
	mac := hmac.New(sha256.New, resultKey)
	mac.Write([]byte(answerDomain))
	mac.Write(raw)
	return mac.Sum(nil)
}

// LooksLikeAnswer is a cheap test for texts that PeekNonce may understand.
func LooksLikeAnswer(text string) bool {
	return len(text) <= MaxAnswer && strings.HasPrefix(text, answerPrefix)
}

// PeekNonce reads the nonce of an answer that is not verified yet, to find who
// waits for it. The answer is worth nothing before DecodeAnswer has verified it.
func PeekNonce(text string) (string, bool) {
	raw, _, ok := splitAnswer(text)
	if !ok {
		return "", false
	}
	var peek struct {
		Nonce string `json:"nonce"`
	}
	if json.Unmarshal(raw, &peek) != nil || peek.Nonce == "" {
		return "", false
	}
	return peek.Nonce, true
}

func splitAnswer(text string) (raw, mac []byte, ok bool) {
	if !LooksLikeAnswer(text) {
		return nil, nil, false
	}
	rawText, macText, found := strings.Cut(text[len(answerPrefix):], ".")
	if !found {
		return nil, nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rawText)
	if err != nil {
		return nil, nil, false
	}
	mac, err = base64.RawURLEncoding.Strict().DecodeString(macText)
	if err != nil {
		return nil, nil, false
	}
	return raw, mac, true
}

// BadAnswer is the code of a text that is no answer to the question asked:
// wrong form, wrong MAC, or about something else. It proves nothing.
const BadAnswer problem.Code = "bad_answer"

// DecodeAnswer verifies a text under the result key and checks that it answers
// this question: the same kind, request, target and nonce. Unknown fields are
// allowed, so that a newer executor may say more.
func DecodeAnswer(text string, resultKey []byte, question Message) (*Answer, error) {
	raw, mac, ok := splitAnswer(text)
	if !ok {
		return nil, problem.New(BadAnswer, "a return isn't an executor's answer")
	}
	if !hmac.Equal(mac, answerMAC(raw, resultKey)) {
		return nil, problem.New(BadAnswer, "an answer's MAC is wrong")
	}
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&a); err != nil {
		return nil, problem.Wrap(BadAnswer, err, "an answer can't be decoded")
	}
	if a.Kind != question.Kind || a.Request != question.Request || a.Target != question.Target || a.Nonce != question.Nonce {
		return nil, problem.New(BadAnswer, "an answer is to another question")
	}
	return &a, nil
}
