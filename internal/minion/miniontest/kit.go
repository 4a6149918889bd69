// Package miniontest is the minion's side for tests: the real programs, built
// and installed with a signed manifest in a folder of their own, a masterd key
// that seals messages, and a shim in Go that drives the real minion-executor.
package miniontest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// Kit is one minion without Salt.
type Kit struct {
	tb       testing.TB
	Root     string
	ID       string
	Instance string
	Masterd  ed25519.PrivateKey
	Releases ed25519.PrivateKey // signs the manifest
	Public   string             // the minion's Salt key, PEM
	Secret   []byte             // masterd's secret
	Facts    minion.Facts
	Wrap     []string // what the executor is run by, such as unshare; nil for nothing

	tickets *sync.Map // request -> the last ticket that was answered for it
}

// Module is the path of this module, for go build.
const Module = "github.com/oduflow/oduflow-salt"

var built sync.Map // build flags -> *program

type program struct {
	once sync.Once
	dir  string
	err  error
}

// Build builds minion-executor and plugins/custom once for each set of flags
// and gives the folder that holds them. Go's own cache makes it cheap.
func Build(tb testing.TB, flags ...string) string {
	tb.Helper()
	p, _ := built.LoadOrStore(fmt.Sprint(flags), &program{})
	prog := p.(*program)
	prog.once.Do(func() {
		if prog.dir, prog.err = os.MkdirTemp("", "oduflow-built-"); prog.err != nil {
			return
		}
		for name, pkg := range map[string]string{"minion-executor": "/minion-executor", "plugins/custom": "/plugins/custom"} {
			args := append([]string{"build", "-trimpath", "-o", filepath.Join(prog.dir, name)}, flags...)
			cmd := exec.CommandContext(context.Background(), "go", append(args, Module+pkg)...) //nolint:forbidigo // shared by tests
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				prog.err = fmt.Errorf("%w: %s", err, out)
				return
			}
		}
	})
	if prog.err != nil {
		tb.Fatalf("building the minion's programs: %v", prog.err)
	}
	return prog.dir
}

// RemoveBuilt removes what Build made. TestMain calls it last.
func RemoveBuilt() {
	built.Range(func(_, p any) bool {
		_ = os.RemoveAll(p.(*program).dir)
		return true
	})
}

var minionKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) //nolint:forbidigo // no test to fail here
	}
	return key
})

// New installs a kit below root, with programs built with flags.
func New(tb testing.TB, root string, flags ...string) *Kit {
	tb.Helper()
	k := &Kit{tb: tb, Root: root, ID: "web1", Instance: "0b1c5d5e-6a3c-4a8e-9b7f-1d2e3f4a5b6c", Secret: make([]byte, 32), tickets: &sync.Map{}}
	_, k.Masterd, _ = ed25519.GenerateKey(rand.Reader)
	_, k.Releases, _ = ed25519.GenerateKey(rand.Reader)
	k.Facts = minion.Facts{
		ID: k.ID, PKIDir: k.path("pki"), StateDir: k.path("state"), LibDir: k.path("lib"), EtcDir: k.path("etc"),
		RunDir: k.path("run"),
		UID:    os.Geteuid(), AllowUnprivileged: true, Multiprocessing: true,
	}
	for _, dir := range []string{"pki", "lib/plugins", "etc"} {
		k.must(os.MkdirAll(k.path(dir), 0o755))
	}
	key := minionKey()
	k.must(os.WriteFile(k.path("pki/minion.pem"), pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
	}), 0o400))
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	k.must(err)
	k.Public = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	k.must(os.WriteFile(k.path("pki/minion.pub"), []byte(k.Public), 0o644))
	k.must(keyfile.WritePublic(k.path("etc", minion.MasterdKey), k.Masterd.Public().(ed25519.PublicKey)))
	k.must(keyfile.WritePublic(k.path("etc", minion.ExecutorsKey), k.Releases.Public().(ed25519.PublicKey)))
	k.Install(Build(tb, flags...))
	return k
}

// Install copies programs from a folder and signs their manifest.
func (k *Kit) Install(from string) {
	k.tb.Helper()
	for _, name := range []string{"minion-executor", "plugins/custom"} {
		raw, err := os.ReadFile(filepath.Join(from, name))
		k.must(err)
		k.must(os.RemoveAll(k.path("lib", name)))
		k.must(os.WriteFile(k.path("lib", name), raw, 0o755))
	}
	k.Sign()
}

// Sign signs the manifest of what is installed.
func (k *Kit) Sign() {
	k.tb.Helper()
	k.must(manifest.Write(k.path("lib"), "test", k.Releases, "minion-executor", "plugins/custom"))
}

func (k *Kit) path(parts ...string) string {
	return filepath.Join(append([]string{k.Root}, parts...)...)
}

func (k *Kit) must(err error) {
	if err != nil {
		k.tb.Helper()
		k.tb.Fatal(err)
	}
}

// Document reads a source and gives its canonical form and digest.
func (k *Kit) Document(source string) (canonical []byte, digest string) {
	k.tb.Helper()
	doc, errs := state.Parse([]byte(source))
	if len(errs) > 0 {
		k.tb.Fatal(errs[0])
	}
	return doc.Canonical(), doc.Digest()
}

// NewUUID draws a request.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Ask is a question to be sealed. What is empty gets the kit's own.
type Ask struct {
	Kind     message.Kind
	Request  string
	Instance string
	Ticket   string
	Digest   string
	Body     message.Body
	Change   func(*message.Message) // the last word, before it is signed
}

// Question is a sealed question and what it takes to read its answer.
type Question struct {
	Text    string
	Message message.Message
	Key     []byte
}

// Seal seals a question. Evidence is asked for about the last ticket that was
// answered, as masterd does.
func (k *Kit) Seal(a Ask) Question {
	k.tb.Helper()
	if a.Instance == "" {
		a.Instance = k.Instance
	}
	if ticket, ok := k.tickets.Load(a.Request); ok && a.Kind == message.Evidence && a.Ticket == "" {
		a.Ticket = ticket.(string)
	}
	key, err := message.ResultKey(k.Secret, a.Request, k.ID, a.Instance)
	k.must(err)
	a.Body.ResultKey = key
	if a.Kind == message.Prepare || a.Kind == message.Start {
		if a.Body.Profile == "" {
			a.Body.Profile = "custom"
		}
	}
	nonce, err := message.NewNonce(rand.Reader)
	k.must(err)
	body, err := message.EncodeBody(a.Body)
	k.must(err)
	m := message.Message{
		Protocol: message.Protocol, Kind: a.Kind, Target: k.ID, Instance: a.Instance, Request: a.Request,
		Ticket: a.Ticket, Digest: a.Digest, Nonce: nonce, Body: body,
	}
	if a.Change != nil {
		a.Change(&m)
	}
	text, err := message.Seal(m, k.Masterd, k.Public)
	k.must(err)
	return Question{Text: text, Message: m, Key: key}
}

// Read verifies an answer.
func (k *Kit) Read(q Question, text string) message.Answer {
	k.tb.Helper()
	a, err := message.DecodeAnswer(text, q.Key, q.Message)
	if err != nil {
		k.tb.Fatalf("%v: %q", err, text)
	}
	if a.Result == message.Prepared {
		k.tickets.Store(a.Request, a.Ticket)
	}
	return *a
}

// Identify gives the minion its identity.
func (k *Kit) Identify() message.Answer {
	k.tb.Helper()
	q := k.Seal(Ask{Kind: message.Update, Request: NewUUID(), Body: message.Body{Update: message.UpdateIdentity}})
	return k.Read(q, k.Send(message.Update, q.Text, Shim{}).Text)
}

// Prepare prepares a request for a canonical form.
func (k *Kit) Prepare(request string, canonical []byte) message.Answer {
	k.tb.Helper()
	q := k.Seal(Ask{Kind: message.Prepare, Request: request, Digest: Digest(canonical)})
	return k.Read(q, k.Send(message.Prepare, q.Text, Shim{}).Text)
}

// Digest is the digest of a canonical form.
func Digest(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// AskStart seals a start.
func (k *Kit) AskStart(request, ticket string, canonical []byte) Question {
	k.tb.Helper()
	return k.Seal(Ask{
		Kind: message.Start, Request: request, Ticket: ticket, Digest: Digest(canonical), Body: message.Body{Canonical: canonical},
	})
}

// Start prepares nothing: it sends the start of a prepared request.
func (k *Kit) Start(request, ticket string, canonical []byte, s Shim) message.Answer {
	k.tb.Helper()
	q := k.AskStart(request, ticket, canonical)
	return k.Read(q, k.Send(message.Start, q.Text, s).Text)
}

// Evidence asks what the ledger proves.
func (k *Kit) Evidence(request string, fence bool) message.Answer {
	k.tb.Helper()
	q := k.Seal(Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: fence}})
	return k.Read(q, k.Send(message.Evidence, q.Text, Shim{}).Text)
}

// Settle settles a record.
func (k *Kit) Settle(request string, canonical []byte, outcome message.Outcome) message.Answer {
	k.tb.Helper()
	q := k.Seal(Ask{Kind: message.Settle, Request: request, Digest: Digest(canonical), Body: message.Body{Outcome: outcome}})
	return k.Read(q, k.Send(message.Settle, q.Text, Shim{}).Text)
}

// Ledger gives the state folder's path below.
func (k *Kit) Ledger(parts ...string) string {
	return filepath.Join(append([]string{k.Facts.StateDir}, parts...)...)
}

// Deadline is how long one conversation may take in a test.
const Deadline = 60 * time.Second

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Deadline) //nolint:forbidigo // for goroutines of a test
}

// ResultPairs gives the keys that a run of a document has to bring, each with
// one result.
func ResultPairs(canonical []byte, result string) [][2]string {
	doc, err := state.Decode(canonical)
	if err != nil {
		panic(err) //nolint:forbidigo // no test to fail here
	}
	pairs := [][2]string{}
	for _, key := range doc.Expected() {
		pairs = append(pairs, [2]string{key.String(), result})
	}
	return pairs
}
