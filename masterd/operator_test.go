package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/adopt"
	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
	"github.com/oduflow/oduflow-salt/internal/start"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// office is a daemon on a real database and socket, without Salt: its target
// answers what a test says.
type office struct {
	t      *testing.T
	d      *daemon
	cfg    store.Config
	config string
	result atomic.Value // message.Result of evidence; none is silence
	ended  chan struct{}
	stop   func()
}

func newOffice(t *testing.T) *office {
	t.Helper()
	dir := t.TempDir()
	clock := storetest.NewClock()
	o := &office{t: t, cfg: storetest.Config(t, clock), config: filepath.Join(dir, "masterd.yaml"), ended: make(chan struct{})}
	socket := filepath.Join(dir, "run", "masterd.sock")
	text := fmt.Sprintf("listen: {unix: %s}\ndatabase: %s\nkeys: {signing: %s, secret: %s}\nsalt: {config: /etc/salt/master, user: oduflow}\n",
		socket, o.cfg.Path, filepath.Join(dir, "signing.key"), filepath.Join(dir, "secret.key"))
	if err := os.WriteFile(o.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	db := storetest.Create(t, o.cfg)
	log := hclog.NewNullLogger()
	o.d = &daemon{db: db, log: log}
	taken := tookUp{db, make(chan struct{})}
	o.d.dispatch = dispatch.New(dispatch.Config{
		Store: taken, Exchange: target{o}, Now: time.Now, Jitter: rand.New(rand.NewPCG(1, 2)), Logger: log,
		Joined: func() bool { return true }, Changed: func(receipt.Receipt) {}, Records: records{o.d},
	})
	o.d.service = start.New(start.Config{Store: db, Now: time.Now, Bound: o.d.dispatch.Bound, Joined: func() bool { return true }, Logger: log})
	o.d.reconcile = reconcile.New(reconcile.Config{
		Store: db, Exchange: target{o}, Look: o.d.dispatch.Look, Moved: o.d.moved,
		Joined: func() bool { return true }, Now: time.Now, Logger: log,
	})
	o.d.adopt = adopt.New(adopt.Config{
		Store: db, Holders: db, Exchange: target{o}, Now: time.Now, Random: crand.Reader, NewUUID: newUUID, Joined: func() bool { return true },
	})
	if err := db.Adopt(t.Context(), receipttest.Target("web")); err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Config{Receipts: o.d, Operator: o.d, Logger: log, Now: time.Now, Lab: true, OwnUID: uint32(os.Geteuid())})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, err := server.ListenUnix(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { done <- o.d.dispatch.Run(ctx) }()
	go func() { done <- server.Serve(ctx, listener) }()
	<-taken.done // what a test binds from now on isn't found waiting
	o.stop = func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { o.stop() })
	return o
}

// tookUp says when the dispatcher has looked for receipts that wait.
type tookUp struct {
	*store.DB
	done chan struct{}
}

func (t tookUp) Unresolved(ctx context.Context) ([]receipt.Receipt, error) {
	defer close(t.done)
	return t.DB.Unresolved(ctx)
}

// deleted is a minion whose key the Salt master has no more.
const deleted = "deleted"

// target is the exchange of an office.
type target struct{ o *office }

func (x target) Key(_ context.Context, id string) (pem, fingerprint string, err error) {
	if id == deleted {
		return "", "", problem.New(problem.TargetUnknown, "no accepted key")
	}
	return "pem", "SHA256:web", nil
}
func (x target) OnLate(func(exchange.Late)) {}
func (x target) NewLaunch(exchange.Question, string) (dispatch.Launch, error) {
	return nil, problem.New(problem.Internal, "nothing is started here")
}
func (x target) WatchJID(string, func()) (stop func()) { return func() {} }
func (x target) Ask(_ context.Context, q exchange.Question, _ string) exchange.Reply {
	if q.Kind == message.Update {
		return exchange.Reply{Answer: &message.Answer{
			Protocol: message.Protocol, Kind: q.Kind, Request: q.Request, Result: message.Updated, Instance: q.Instance, Ledger: "ledger-" + q.Target, Machine: "m",
		}}
	}
	result, ok := x.o.result.Load().(message.Result)
	if !ok {
		return exchange.Reply{AskedAt: time.Now(), EndedAt: time.Now(), Silence: exchange.SilenceUnavailable}
	}
	a := message.Answer{Kind: q.Kind, Request: q.Request, Result: result, Digest: q.Digest, Ledger: "ledger-web"}
	if q.Kind == message.Settle {
		a.Result, a.Outcome = message.Settled, q.Body.Outcome
	}
	return exchange.Reply{Answer: &a, AskedAt: time.Now(), EndedAt: time.Now()}
}

// lost makes an uncertain receipt.
func (o *office) lost(n int) receipt.Receipt {
	o.t.Helper()
	ctx := o.t.Context()
	text := fmt.Sprint("state ", n)
	b, err := storetest.Bind(ctx, o.d.db, receipttest.Binding(n, "web", text), text)
	if err != nil {
		o.t.Fatal(err)
	}
	r, err := o.d.db.Claim(ctx, b.Execution.Request, 0, receipttest.Claim("web"))
	if err == nil {
		r, err = o.d.db.Apply(ctx, r.Request, r.Seq, receipttest.Lose(time.Now()))
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

// person types at a terminal.
type person struct{ io.Reader }

func (person) Interactive() bool { return true }

type printed struct {
	exit     int
	out, err string
}

// command runs a command of masterd's against the office.
func (o *office) command(in io.Reader, args ...string) printed {
	for ; ; runtime.Gosched() {
		if p := o.once(in, args...); !strings.Contains(p.err, "masterd is starting") {
			return p
		}
	}
}

func (o *office) once(in io.Reader, args ...string) printed {
	var out, err bytes.Buffer
	exit := run(o.t.Context(), console{in, &out, &err}, append(slices.Clone(args), "--config", o.config))
	return printed{exit, out.String(), err.String()}
}

func (o *office) want(p printed, exit int, texts ...string) {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.out+p.err, text) {
			o.t.Errorf("%q isn't said", text)
		}
	}
	if p.exit != exit || o.t.Failed() {
		o.t.Fatalf("exit status %d, want %d:\n%s%s", p.exit, exit, p.out, p.err)
	}
}

var nobody = strings.NewReader("")

// A21, B2, B3: what is known of a receipt is shown whole, and the source only
// where it is asked for.
func TestReceiptsCommands(t *testing.T) {
	o := newOffice(t)
	r := o.lost(1)
	if err := o.d.db.Witness(t.Context(), receipt.Witness{
		Request: r.Request, At: time.Now(), Kind: "evidence", Result: "fenced", Code: problem.NeverStarted, Conflict: true,
	}); err != nil {
		t.Fatal(err)
	}
	o.want(o.command(nobody, "receipts", "list"), 0, r.Request, "uncertain", "no_answer", "! evidence conflict", "next: masterd evidence "+r.Request)
	o.want(o.command(nobody, "receipts", "list", "--status", "succeeded"), 0, "next: nothing")
	o.want(o.command(nobody, "receipts", "list", "--conflicts"), 0, r.Request)
	for _, filter := range [][]string{
		{"--target", "web"}, {"--code", "no_answer"}, {"--status", "uncertain"}, {"--limit", "1"},
		{"--target", "web", "--code", "no_answer", "--status", "uncertain", "--conflicts"},
	} {
		o.want(o.command(nobody, append([]string{"receipts", "list"}, filter...)...), 0, r.Request)
	}
	for _, filter := range [][]string{{"--target", "db"}, {"--code", "interrupted"}, {"--status", "failed"}, {"--owed"}} {
		if p := o.command(nobody, append([]string{"receipts", "list"}, filter...)...); p.exit != 0 || strings.Contains(p.out, r.Request) {
			t.Errorf("%v: %d %s", filter, p.exit, p.out)
		}
	}
	var list httpapi.ReceiptList
	listed := o.command(nobody, "receipts", "list", "--json", "--target", "web")
	if err := json.Unmarshal([]byte(listed.out), &list); err != nil || len(list.Receipts) != 1 || list.Receipts[0].Request != r.Request ||
		!list.Receipts[0].Conflict || list.Epoch == "" || list.Next == "" {
		t.Errorf("%v: %s", err, listed.out)
	}
	o.want(o.command(nobody, "receipts", "list", "--status", "lost"), 2, "bad_field")
	o.want(o.command(nobody, "receipts"), 2)
	o.want(o.command(nobody, "receipts", "delete", r.Request), 2) // A23

	shown := o.command(nobody, "receipts", "show", r.Request)
	o.want(shown, 0, "web, instance "+r.Body.Instance, r.JID, "queued -> dispatching", "masterd", "fenced",
		"contradicts", "3 declared", "next: ")
	if strings.Contains(shown.out, "# state 1") || strings.Contains(shown.out, r.Ticket) {
		t.Errorf("shows the source or a ticket:\n%s", shown.out)
	}
	o.want(o.command(nobody, "receipts", "show", r.Request, "--source"), 0, "# state 1")
	o.want(o.command(nobody, "receipts", "show", receipttest.Request(9)), 5, "unknown_request")

	var detail httpapi.ReceiptDetail
	asJSON := o.command(nobody, "receipts", "show", "--json", r.Request)
	if err := json.Unmarshal([]byte(asJSON.out), &detail); err != nil || len(detail.Transitions) != 2 || len(detail.Witnesses) == 0 || !detail.Conflict {
		t.Errorf("%v: %s", err, asJSON.out)
	}
}

// A20, B13: asking again starts nothing, says what each statement proves, and
// ends with the receipt's own exit status.
func TestEvidenceCommand(t *testing.T) {
	o := newOffice(t)
	r := o.lost(1)
	o.want(o.command(nobody, "evidence", r.Request), 3, "web doesn't answer: the minion has no oduflow module", "next: bring the minion's executor", "--server-gone")
	o.result.Store(message.Running)
	o.want(o.command(nobody, "evidence", r.Request), 3, "web answers: running", "it runs, or processes that it left do", "next: it still runs")
	o.result.Store(message.NeverBegan)
	o.want(o.command(nobody, "evidence", r.Request), 1, "ended before its effect", `"previous": "`+r.Request)
	o.want(o.command(nobody, "evidence"), 2)
	asJSON := o.command(nobody, "evidence", r.Request, "--json")
	var answer httpapi.EvidenceAnswer
	if err := json.Unmarshal([]byte(asJSON.out), &answer); err != nil || asJSON.exit != 1 || !answer.Answered || len(answer.Receipt.Witnesses) != 3 {
		t.Fatalf("%v: %s", err, asJSON.out)
	}
	for _, w := range answer.Receipt.Witnesses {
		if w.At == nil || w.Proves == "" || w.Proves == "nothing" {
			t.Errorf("a witness without its time, or what it proves: %+v", w)
		}
	}

	// What contradicts a receipt that has ended is raised, and changes nothing.
	o.result.Store(message.Interrupted)
	o.want(o.command(nobody, "evidence", r.Request), 1, "! proves: nothing: it contradicts", "next: find out on web which is true")
	o.want(o.command(nobody, "receipts", "list", "--conflicts"), 0, "next: masterd receipts show "+r.Request)
}

// A23: the confirmation is asked for at a terminal only, after the ledger was
// asked; scripts give it.
func TestReconcileCommand(t *testing.T) {
	o := newOffice(t)
	r := o.lost(1)
	words := []string{"reconcile", r.Request, "--outcome", "failed", "--reason", "power", "--observed", "half of it"}
	o.want(o.command(nobody, words...), 2, "not_confirmed", "--confirm web")
	o.want(o.command(nobody, words[:6]...), 2, "--observed")
	o.want(o.command(person{strings.NewReader("web-2\n")}, words...), 2, "Type the target's name", "not_confirmed")
	o.want(o.command(person{strings.NewReader("")}, words...), 2, "nothing is settled")
	o.result.Store(message.Running)
	running := o.command(person{strings.NewReader("web\n")}, words...)
	o.want(running, 4, "job_running")
	if strings.Contains(running.out, "Type") {
		t.Error("asked although it can't be settled")
	}
	o.result.Store(message.Interrupted)
	seen := filepath.Join(t.TempDir(), "seen.txt")
	if err := os.WriteFile(seen, []byte("dpkg --audit:\nnginx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	words[7] = seen
	o.want(o.command(person{strings.NewReader("web\n")}, words...), 0, "is settled as failed", "by      uid ", "told at", "next: nothing: web is free")
	o.want(o.command(nobody, "receipts", "show", r.Request), 0, "settled by an operator, not proved", "reason    power", "dpkg --audit:\n", "nginx", "settle")
	o.want(o.command(nobody, append(words, "--confirm", "web")...), 0, "settled as failed before")
	words[3] = "succeeded"
	o.want(o.command(nobody, append(words, "--confirm", "web")...), 4, "not_uncertain")
	words[7] = "/no/such/file"
	o.want(o.command(nobody, words...), 2, "there is no file")
}

// A settlement that couldn't be delivered is shown as owed.
func TestReconcileCommandShowsWhatIsOwed(t *testing.T) {
	o := newOffice(t)
	r := o.lost(1)
	o.want(o.command(nobody, "reconcile", r.Request, "--outcome", "succeeded", "--reason", "dead", "--observed", "all there", "--confirm", "web"),
		0, "settled as succeeded", "not told yet", "didn't answer", "next: nothing: the ledger of web is told")
	o.want(o.command(nobody, "receipts", "list", "--owed"), 0, r.Request, "settled, owed")
	h := o.d.db
	if s, err := h.Stats(t.Context()); err != nil || s.Owed != 1 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestServerGoneCommand(t *testing.T) {
	o := newOffice(t)
	r := o.lost(1)
	words := []string{"reconcile", r.Request, "--outcome", "failed", "--reason", "destroyed", "--observed", "deleted at the provider", "--confirm", "web", "--server-gone"}
	o.want(o.command(nobody, words...), 4, "not_replaced", "first adopt")
	successor := receipttest.Target("web")
	successor.Instance = receipttest.Instance("successor")
	if err := o.d.db.Adopt(t.Context(), successor); err != nil {
		t.Fatal(err)
	}
	o.want(o.command(nobody, words...), 0, "settled as failed", "its server is gone")
}

// An instance is one server: a second target is adopted as it only where the
// minion was renamed, and its old key is gone.
func TestAdoptCommand(t *testing.T) {
	o := newOffice(t)
	web := receipttest.Target("web").Instance
	words := func(target, instance string, more ...string) []string {
		return append([]string{"adopt", target, "--instance", instance, "--reason", "was there"}, more...)
	}
	o.want(o.command(nobody, words("db", receipttest.Instance("db"))...), 0, "db is adopted as instance "+receipttest.Instance("db"), "ledger-db")
	o.want(o.command(nobody, words("db", web)...), 4, "instance_taken", "recorded for web, since 2", "--replaces web", "salt-key -d web")
	o.want(o.command(nobody, words("db", web, "--replaces", "web")...), 4, "instance_taken", "still accepts a key for web")
	if holder, err := o.d.db.Holder(t.Context(), web); err != nil || holder.ID != "web" {
		t.Errorf("held by %+v, %v", holder, err)
	}
	gone := receipttest.Target(deleted)
	if err := o.d.db.Adopt(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	o.want(o.command(nobody, words("new", gone.Instance, "--replaces", deleted)...), 0, "new is adopted as instance "+gone.Instance)
	o.want(o.command(nobody, words("new", gone.Instance)...), 0) // may be repeated
	o.want(o.command(nobody, words("new", gone.Instance, "--replaces", "web*")...), 2, "bad_field")
	o.want(o.command(nobody, "adopt", "new"), 2, "--instance")
}

// Issue 5, 6: restore is refused under a running masterd and beside it nothing
// is lost; init is refused beside a database.
func TestBackupRestoreAndInitCommands(t *testing.T) {
	o := newOffice(t)
	o.lost(1)
	o.stop()
	o.stop = func() {}
	saved := filepath.Join(t.TempDir(), "saved.db")
	o.want(o.command(nobody, "restore", o.cfg.Path), 7, "database_locked")
	if err := o.d.db.Close(); err != nil {
		t.Fatal(err)
	}
	o.want(o.command(nobody, "backup", saved), 0, "is copied to", "next: ")
	o.want(o.command(nobody, "backup", saved), 4, "database_exists")
	o.want(o.command(nobody, "restore", saved), 0, "new epoch", "what was there", "waiting in it   0", "not ended       1", "next: start masterd")
	o.want(o.command(nobody, "init"), 4, "database_exists")
	o.want(o.command(nobody, "restore", filepath.Join(t.TempDir(), "none")), 5, "database_missing")
	o.want(o.command(nobody, "backup"), 2)
	o.want(o.command(nobody, "receipts", "list"), 7, "unreachable")
}

// Each command tells how it is used, with an example.
func TestOperatorHelp(t *testing.T) {
	for _, name := range []string{"adopt", "receipts", "evidence", "reconcile", "backup", "restore"} {
		var out, errs bytes.Buffer
		exit := run(t.Context(), console{nobody, &out, &errs}, []string{name, "--help"})
		if exit != 0 || !strings.Contains(out.String(), "Examples:\n") || !strings.Contains(out.String(), "Exit status:") {
			t.Errorf("%s: %d %s%s", name, exit, out.String(), errs.String())
		}
	}
}
