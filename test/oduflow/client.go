// Package oduflow is the caller's side for the demo, the end-to-end tests and
// the benchmarks: it speaks the fixed entry points over HTTPS or the Unix
// socket, as Odoo's module does.
package oduflow

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Client of one masterd. Token is "" over the Unix socket.
type Client struct {
	URL   string
	Token string
	HTTP  *http.Client
}

// OverTLS makes a client that trusts exactly one certificate.
func OverTLS(url, certificate, token string) (*Client, error) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + certificate)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 64}
	return &Client{URL: url, Token: token, HTTP: &http.Client{Transport: transport}}, nil
}

// Start is the body of custom_start. Fields that are nil or "" are left out.
type Start struct {
	Request   string `json:"request"`
	Target    string `json:"target"`
	Instance  string `json:"instance"`
	Source    string `json:"source"`
	Revision  int    `json:"revision"`
	Digest    string `json:"digest,omitempty"`
	Previous  string `json:"previous,omitempty"`
	Again     bool   `json:"again,omitempty"`
	Requester string `json:"requester,omitempty"`
}

// Answer is what custom_start and custom_status say.
type Answer struct {
	Request   string `json:"request"`
	Execution string `json:"execution"`
	Target    string `json:"target"`
	Profile   string `json:"profile"`
	Status    string `json:"status"`
	JID       string `json:"jid"`
	Revision  int    `json:"revision"`
	Digest    string `json:"digest"`
	Counts    struct {
		Declared int `json:"declared"`
		Passed   int `json:"passed"`
		Failed   int `json:"failed"`
		NotRun   int `json:"not_run"`
	} `json:"counts"`
	Preflight struct {
		Passed int `json:"passed"`
		Total  int `json:"total"`
	} `json:"preflight"`
	Code      string `json:"code"`
	Hint      string `json:"hint"`
	BlockedBy *struct {
		Request string `json:"request"`
		Profile string `json:"profile"`
		Since   string `json:"since"`
	} `json:"blocked_by"`
	AcceptedAt   string  `json:"accepted_at"`
	DispatchedAt string  `json:"dispatched_at"`
	ExpiresAt    string  `json:"expires_at"`
	FinishedAt   string  `json:"finished_at"`
	PollAfterS   float64 `json:"poll_after_s"`
	Reused       bool    `json:"reused"`
}

// Terminal says that nothing changes any more by itself.
func (a Answer) Terminal() bool { return a.Status == "succeeded" || a.Status == "failed" }

// Refusal is an error answer.
type Refusal struct {
	Status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Code, r.Message) }

// Call posts any body to an entry point and decodes a good answer into out.
func (c *Client) Call(ctx context.Context, entry string, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/"+entry, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error Refusal }
		if err := json.Unmarshal(answer, &e); err != nil || e.Error.Code == "" {
			return fmt.Errorf("status %d without a code", resp.StatusCode)
		}
		e.Error.Status = resp.StatusCode
		return &e.Error
	}
	return json.Unmarshal(answer, out)
}

// CustomStart calls custom_start once.
func (c *Client) CustomStart(ctx context.Context, s Start) (Answer, error) {
	var a Answer
	err := c.Call(ctx, "custom_start", s, &a)
	return a, err
}

// CustomStatus calls custom_status, waiting up to wait for a change.
func (c *Client) CustomStatus(ctx context.Context, request string, wait time.Duration) (Answer, error) {
	var a Answer
	err := c.Call(ctx, "custom_status", map[string]any{"request": request, "wait_s": int(wait.Seconds())}, &a)
	return a, err
}

// Await follows a request until it is terminal or uncertain. Each state that it
// sees on the way is given to seen, which may be nil.
func (c *Client) Await(ctx context.Context, request string, seen func(Answer)) (Answer, error) {
	last := ""
	for {
		a, err := c.CustomStatus(ctx, request, 10*time.Second)
		if err != nil {
			return a, err
		}
		if a.Status != last && seen != nil {
			seen(a)
		}
		last = a.Status
		if a.Terminal() || a.Status == "uncertain" {
			return a, nil
		}
	}
}

// NewUUID draws a request UUID, as a caller does before it calls.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
