package httpapi_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

const (
	requestA  = "0b0e6cd4-6f6b-4b8e-9e43-3f3a52f1c0de"
	instanceA = "9a3c6f6e-2f0e-4f43-8d1b-d1a7f0a1b2c3"
	hidden    = "hidden-word-5a1c"
)

// realNow is for what goes by the real clock whatever we do: certificates and
// deadlines of sockets.
var realNow = time.Now

// service is a Service and an Operator by hand; a nil function answers with
// something valid. It counts what got past the checks.
type service struct {
	mu        sync.Mutex
	starts    []start.CustomRequest
	statuses  []time.Duration
	operators int

	start    func(context.Context, start.CustomRequest) (start.Answer, error)
	status   func(context.Context, string, time.Duration) (start.Answer, error)
	validate func([]byte) start.Validation
	healthy  *start.Health
	adopted  []httpapi.AdoptRequest
	failWith error
}

func (s *service) CustomStart(ctx context.Context, r start.CustomRequest) (start.Answer, error) {
	s.mu.Lock()
	s.starts = append(s.starts, r)
	s.mu.Unlock()
	if s.start != nil {
		return s.start(ctx, r)
	}
	return start.Answer{Request: r.Request, Status: receipt.StatusQueued}, nil
}

func (s *service) CustomStatus(ctx context.Context, request string, wait time.Duration) (start.Answer, error) {
	s.mu.Lock()
	s.statuses = append(s.statuses, wait)
	s.mu.Unlock()
	if s.status != nil {
		return s.status(ctx, request, wait)
	}
	return start.Answer{Request: request, Status: receipt.StatusRunning}, nil
}

func (s *service) StateValidate(_ context.Context, source []byte) start.Validation {
	if s.validate != nil {
		return s.validate(source)
	}
	return start.Validation{OK: true, Digest: strings.Repeat("a", 64), States: 1}
}

func (s *service) Health(context.Context) start.Health {
	if s.healthy != nil {
		return *s.healthy
	}
	return start.Health{OK: true, Version: "1.2.3", Epoch: "e1"}
}

func (s *service) Adopt(_ context.Context, r httpapi.AdoptRequest) (httpapi.AdoptAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operators++
	s.adopted = append(s.adopted, r)
	return httpapi.AdoptAnswer{
		Target: r.Target, Instance: r.Instance, Fingerprint: "aa:bb", Ledger: "l1", Machine: "m1",
		AdoptedAt: time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC),
	}, s.failWith
}

func (s *service) TokenCreate(_ context.Context, r httpapi.TokenRequest) (string, token.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operators++
	text, t, _, err := token.New(rand.Reader, r.Scope)
	t.Name, t.CreatedBy, t.CreatedAt = r.Name, r.By, time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
	return text, t, err
}

func (s *service) TokenList(context.Context) ([]token.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operators++
	return []token.Token{{ID: "0123456789ab", Scope: token.Custom, Name: "odoo"}}, s.failWith
}

func (s *service) TokenRevoke(_ context.Context, id, _ string) (token.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operators++
	return token.Token{ID: id, RevokedAt: time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)}, s.failWith
}

func (s *service) reached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts) + len(s.statuses) + s.operators
}

// tokens is a Tokens that holds one token of each scope.
type tokens struct {
	byHash map[token.Hash]token.Token
	text   map[token.Scope]string
}

func newTokens(tb testing.TB) tokens {
	tb.Helper()
	all := tokens{byHash: map[token.Hash]token.Token{}, text: map[token.Scope]string{}}
	for _, scope := range token.Scopes() {
		text, t, hash, err := token.New(rand.Reader, scope)
		if err != nil {
			tb.Fatal(err)
		}
		all.byHash[hash], all.text[scope] = t, text
	}
	return all
}

func (t tokens) Check(_ context.Context, hash token.Hash) (token.Token, bool, error) {
	found, ok := t.byHash[hash]
	return found, ok, nil
}

// api is a Server on its own listeners.
type api struct {
	*service
	tokens tokens
	log    *logBuffer
	socket string
	url    string
	unix   *http.Client
	tls    *http.Client
	roots  *x509.CertPool
	stop   context.CancelFunc
	served chan error
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newAPI(t *testing.T, change func(*httpapi.Config)) *api {
	t.Helper()
	a := &api{service: &service{}, tokens: newTokens(t), log: &logBuffer{}, served: make(chan error, 2)}
	cfg := httpapi.Config{
		Service: a.service, Operator: a.service, Tokens: a.tokens, Now: realNow,
		Logger: hclog.New(&hclog.LoggerOptions{Output: a.log, JSONFormat: true, Level: hclog.Trace}),
		OwnUID: uint32(os.Getuid()), Lab: true,
	}
	if change != nil {
		change(&cfg)
	}
	server := httpapi.New(cfg)
	ctx, stop := context.WithCancel(t.Context())
	a.stop = stop
	dir := t.TempDir()
	a.socket = filepath.Join(dir, "run", "masterd.sock")
	unix, err := server.ListenUnix(ctx, a.socket)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, roots := writePair(t, dir)
	tcp, err := server.ListenTLS(ctx, "127.0.0.1:0", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{unix, tcp} {
		go func() { a.served <- server.Serve(ctx, l) }()
	}
	a.url, a.roots = "https://"+tcp.Addr().String(), roots
	a.unix = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.socket)
	}}}
	a.tls = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(func() {
		a.unix.CloseIdleConnections()
		a.tls.CloseIdleConnections()
		stop()
		for range 2 {
			if err := <-a.served; err != nil {
				t.Errorf("a listener ended with %v", err)
			}
		}
	})
	return a
}

func writePair(t *testing.T, dir string) (certificate, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: realNow().Add(-time.Hour), NotAfter: realNow().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, content := range map[string][]byte{
		certificate: crt, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(crt)
	return certificate, key, roots
}

// got is an answer, taken apart.
type got struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (g got) code() string {
	e, _ := g.body["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

func (g got) message() string {
	e, _ := g.body["error"].(map[string]any)
	message, _ := e["message"].(string)
	return message
}

func send(t *testing.T, client *http.Client, r *http.Request) got {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	g := got{status: response.StatusCode, header: response.Header, raw: string(raw)}
	if err := json.Unmarshal(raw, &g.body); err != nil {
		t.Fatalf("status %d with a body that isn't an object: %v", g.status, err)
	}
	return g
}

// post calls an entry point over the Unix socket.
func (a *api) post(t *testing.T, path, body string) got {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://masterd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return send(t, a.unix, r)
}

// postTLS calls an entry point over TLS with an Authorization header.
func (a *api) postTLS(t *testing.T, path, authorization, body string) got {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return send(t, a.tls, r)
}

// startBody is a valid body of custom_start with some fields replaced; nil
// takes one out.
func startBody(t *testing.T, change map[string]any) string {
	t.Helper()
	fields := map[string]any{
		"request": requestA, "target": "web1", "instance": instanceA, "source": "a:\n  test.nop: []\n", "revision": 7,
	}
	for name, value := range change {
		if value == nil {
			delete(fields, name)
			continue
		}
		fields[name] = value
	}
	encoded, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// aReceipt is a receipt in every field, that ended failed.
func aReceipt() receipt.Receipt {
	at := time.Date(2026, 11, 30, 19, 0, 0, 123456789, time.FixedZone("", 3600))
	return receipt.Receipt{
		Binding: receipt.Binding{
			Request: requestA, Requester: "anna", Declared: 3, AcceptedAt: at,
			Body: receipt.Body{
				Target: "web1", Instance: instanceA, Profile: receipt.Custom,
				Digest: strings.Repeat("d", 64), Revision: 7,
			},
		},
		State: receipt.Failed, Code: problem.StateFailed, JID: "20261130180001000000",
		DispatchedAt: at.Add(time.Second), FinishedAt: at.Add(2 * time.Second),
		Counts:    receipt.Counts{Declared: 3, Passed: 1, Failed: 1, NotRun: 1},
		Preflight: receipt.Preflight{Passed: 1, Total: 1},
	}
}
