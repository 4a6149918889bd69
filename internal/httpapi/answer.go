package httpapi

import (
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// stamp is a time as the API writes it: UTC, RFC 3339, always microseconds.
const stamp = "2006-01-02T15:04:05.000000Z"

// answerJSON is what custom_start and custom_status say (A13). Every key is
// always there; what isn't known yet is null.
type answerJSON struct {
	Request      string          `json:"request"`
	Execution    string          `json:"execution"`
	Target       string          `json:"target"`
	Profile      receipt.Profile `json:"profile"`
	Status       receipt.Status  `json:"status"`
	JID          *string         `json:"jid"`
	Revision     int64           `json:"revision"`
	Digest       string          `json:"digest"`
	Counts       countsJSON      `json:"counts"`
	Preflight    preflightJSON   `json:"preflight"`
	Code         *problem.Code   `json:"code"`
	Hint         *string         `json:"hint"`
	BlockedBy    *blockerJSON    `json:"blocked_by"`
	AcceptedAt   *string         `json:"accepted_at"`
	DispatchedAt *string         `json:"dispatched_at"`
	ExpiresAt    *string         `json:"expires_at"`
	FinishedAt   *string         `json:"finished_at"`
	PollAfter    int64           `json:"poll_after_s"`
	Reused       bool            `json:"reused"`
}

type countsJSON struct {
	Declared int `json:"declared"`
	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	NotRun   int `json:"not_run"`
}

type preflightJSON struct {
	Passed int `json:"passed"`
	Total  int `json:"total"`
}

type blockerJSON struct {
	Request string          `json:"request"`
	Profile receipt.Profile `json:"profile"`
	Since   *string         `json:"since"`
}

func answerOf(a start.Answer) answerJSON {
	r := a.Execution
	j := answerJSON{
		Request:      a.Request,
		Execution:    r.Request,
		Target:       r.Body.Target,
		Profile:      r.Body.Profile,
		Status:       a.Status,
		JID:          orNull(r.JID),
		Revision:     a.Revision,
		Digest:       r.Body.Digest,
		Counts:       countsJSON(r.Counts),
		Preflight:    preflightJSON{Passed: r.Preflight.Passed, Total: 1}, // of every profile
		Code:         orNull(r.Code),
		Hint:         orNull(a.Hint),
		AcceptedAt:   timeOrNull(r.AcceptedAt),
		DispatchedAt: timeOrNull(r.DispatchedAt),
		ExpiresAt:    timeOrNull(r.ExpiresAt()),
		FinishedAt:   timeOrNull(r.FinishedAt),
		PollAfter:    wholeSeconds(a.PollAfter),
		Reused:       a.Reused,
	}
	if b := a.Blocked; b != nil {
		j.BlockedBy = &blockerJSON{Request: b.Request, Profile: b.Profile, Since: timeOrNull(b.Since)}
	}
	return j
}

// exitOfStatus is the exit status that a receipt's answer carries.
func exitOfStatus(s receipt.Status) int {
	switch s {
	case receipt.StatusQueued, receipt.StatusRunning, receipt.StatusSucceeded:
		return problem.ExitOK
	case receipt.StatusFailed:
		return problem.ExitFailed
	case receipt.StatusUncertain:
		return problem.ExitUncertain
	}
	// A status that isn't in the list is nothing to build a success on.
	return problem.ExitUncertain
}

type validationJSON struct {
	OK       bool        `json:"ok"`
	Digest   *string     `json:"digest"`
	States   int         `json:"states"`
	Errors   []errorJSON `json:"errors"`
	Warnings []errorJSON `json:"warnings"`
}

func validationOf(v start.Validation) validationJSON {
	return validationJSON{
		OK:       v.OK,
		Digest:   orNull(v.Digest),
		States:   v.States,
		Errors:   errorsOf(v.Errors),
		Warnings: errorsOf(v.Warnings),
	}
}

// publicHealthJSON is what somebody without a token learns.
type publicHealthJSON struct {
	OK bool `json:"ok"`
}

type healthJSON struct {
	OK         bool          `json:"ok"`
	Version    string        `json:"version"`
	Code       *problem.Code `json:"code"`
	Epoch      *string       `json:"epoch"`
	BusJoined  bool          `json:"bus_joined"`
	Queued     int           `json:"queued"`
	Running    int           `json:"running"`
	Uncertain  int           `json:"uncertain"`
	Conflicts  int           `json:"conflicts"`
	Owed       int           `json:"owed"`
	BadAnswers uint64        `json:"bad_answers"`
	Gaps       uint64        `json:"gaps"`
	Refused    uint64        `json:"refused_connections"`
}

func healthOf(h start.Health, refused uint64) healthJSON {
	return healthJSON{
		OK: h.OK, Version: h.Version, Code: orNull(h.Code), Epoch: orNull(h.Epoch), BusJoined: h.BusJoined,
		Queued: h.Queued, Running: h.Running, Uncertain: h.Uncertain,
		Conflicts: h.Conflicts, Owed: h.Owed, BadAnswers: h.BadAnswers, Gaps: h.Gaps, Refused: refused,
	}
}

type adoptJSON struct {
	Target      string  `json:"target"`
	Instance    string  `json:"instance"`
	Fingerprint string  `json:"fingerprint"`
	Ledger      string  `json:"ledger"`
	Machine     string  `json:"machine"`
	AdoptedAt   *string `json:"adopted_at"`
}

type tokenJSON struct {
	ID        string      `json:"id"`
	Scope     token.Scope `json:"scope"`
	Name      string      `json:"name"`
	CreatedAt *string     `json:"created_at"`
	CreatedBy string      `json:"created_by"`
	RevokedAt *string     `json:"revoked_at"`
}

type newTokenJSON struct {
	tokenJSON
	Token string `json:"token"`
}

func tokenOf(t token.Token) tokenJSON {
	return tokenJSON{
		ID: t.ID, Scope: t.Scope, Name: t.Name, CreatedBy: t.CreatedBy,
		CreatedAt: timeOrNull(t.CreatedAt), RevokedAt: timeOrNull(t.RevokedAt),
	}
}

func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(stamp)
	return &s
}

// wholeSeconds rounds up, so that nobody asks too early.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Second - 1) / time.Second)
}
