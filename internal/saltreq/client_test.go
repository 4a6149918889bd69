package saltreq_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/saltreq"
	"github.com/oduflow/oduflow-salt/internal/saltreq/reqtest"
)

func TestMain(m *testing.M) {
	if runAsListener() {
		return
	}
	goleak.VerifyTestMain(m)
}

var jids atomic.Int64

func nextJID() string { return fmt.Sprintf("20261130%012d", jids.Add(1)) }

func newKey(tb testing.TB) string {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func start(target string) saltreq.Publish {
	return saltreq.Publish{Fun: saltreq.Start, Target: target, Arg: "c3RhcnQ", JID: nextJID()}
}

// The fake passes the suite of the real thing.
func TestContractOnTheFake(t *testing.T) {
	reqtest.Exercise(t, func(t *testing.T) reqtest.Bench {
		m := reqtest.New(t)
		key := newKey(t)
		m.Accept("minion-1", key)
		m.Pend("minion-2", newKey(t))
		m.Forbid(saltreq.PillarRefresh)
		return reqtest.Bench{
			Client: m.Client(), Accepted: "minion-1", PEM: key, Pending: "minion-2", Unknown: "minion-3",
			Forbidden: saltreq.PillarRefresh, NextJID: nextJID,
			SpoilKey: func(*testing.T) func() {
				right, _ := os.ReadFile(m.KeyPath())
				m.WriteKey("d3Jvbmc=")
				return func() { m.WriteKey(string(right)) }
			},
		}
	})
}

// A19, A21 and rule 9: each fault, and what is known after it. Where the work
// was done, no fault may ever look like «nothing was sent».
func TestEveryFault(t *testing.T) {
	want := map[reqtest.Fault]saltreq.Published{
		reqtest.CloseAtOnce:     {Outcome: saltreq.NotAttempted, Reason: saltreq.ReasonHandshake},
		reqtest.SilentGreeting:  {Outcome: saltreq.NotAttempted, Reason: saltreq.ReasonCancelled},
		reqtest.NotZMTP:         {Outcome: saltreq.NotAttempted, Reason: saltreq.ReasonHandshake},
		reqtest.MalformedReady:  {Outcome: saltreq.NotAttempted, Reason: saltreq.ReasonHandshake},
		reqtest.HugeReady:       {Outcome: saltreq.NotAttempted, Reason: saltreq.ReasonHandshake},
		reqtest.RefuseKey:       {Outcome: saltreq.NotSent, Reason: saltreq.ReasonAuthentication},
		reqtest.Forbid:          {Outcome: saltreq.NotSent, Reason: saltreq.ReasonAuthorization},
		reqtest.BadLoad:         {Outcome: saltreq.Unknown, Reason: saltreq.ReasonMasterError},
		reqtest.AnswerNothing:   {Outcome: saltreq.Unknown, Reason: saltreq.ReasonTimeout},
		reqtest.CloseAfter:      {Outcome: saltreq.Unknown, Reason: saltreq.ReasonConnection},
		reqtest.CutAnswer:       {Outcome: saltreq.Unknown, Reason: saltreq.ReasonConnection},
		reqtest.OtherJID:        {Outcome: saltreq.Unknown, Reason: saltreq.ReasonOtherJID},
		reqtest.OtherMinions:    {Outcome: saltreq.Unknown, Reason: saltreq.ReasonOtherMinions},
		reqtest.NullJID:         {Outcome: saltreq.Unknown, Reason: saltreq.ReasonUnintelligible},
		reqtest.Garbage:         {Outcome: saltreq.Unknown, Reason: saltreq.ReasonUnintelligible},
		reqtest.Nested:          {Outcome: saltreq.Unknown, Reason: saltreq.ReasonUnintelligible},
		reqtest.HugeAnswer:      {Outcome: saltreq.Unknown, Reason: saltreq.ReasonUnintelligible},
		reqtest.LargeAnswer:     {Outcome: saltreq.Unknown, Reason: saltreq.ReasonUnintelligible},
		reqtest.ExceptionString: {Outcome: saltreq.Unknown, Reason: saltreq.ReasonMasterError},
		reqtest.ErrorAndLoad:    {Outcome: saltreq.Unknown, Reason: saltreq.ReasonMasterError},
	}
	for _, fault := range reqtest.Faults() {
		w, ok := want[fault]
		if !ok {
			t.Fatalf("fault %d has no expectation", fault)
		}
		t.Run(fmt.Sprintf("%02d %s", fault, w.Reason), func(t *testing.T) {
			m := reqtest.New(t)
			m.Accept("minion-1", "PEM")
			m.Inject(fault)
			cfg := m.Config()
			if fault == reqtest.AnswerNothing || fault == reqtest.SilentGreeting {
				cfg.Deadline = time.Second
			}
			c, err := saltreq.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Publish(t.Context(), start("minion-1"))
			if got != w {
				t.Fatalf("%v %q (%v), want %v %q", got.Outcome, got.Reason, err, w.Outcome, w.Reason)
			}
			if err == nil {
				t.Fatal("no error")
			}
			done := len(m.Published())
			if fault.DoneFirst() && (done != 1 || got.Outcome == saltreq.NotAttempted || got.Outcome == saltreq.NotSent) {
				t.Fatalf("done %d times and told %v", done, got.Outcome)
			}
			if !fault.DoneFirst() && done != 0 {
				t.Fatalf("done %d times", done)
			}
			if m.Accepts() != 1 {
				t.Fatalf("%d connections for one request", m.Accepts())
			}
			wantCode := problem.NotSent
			if w.Outcome == saltreq.Unknown {
				wantCode = problem.NoAnswer
			}
			if problem.CodeOf(err) != wantCode {
				t.Fatalf("code %s, want %s", problem.CodeOf(err), wantCode)
			}
			// The next request on the same client is its own.
			m.Inject(reqtest.None)
			if got, err := c.Publish(t.Context(), start("minion-1")); got.Outcome != saltreq.Sent {
				t.Fatalf("after the fault: %v (%v)", got.Outcome, err)
			}
			s := c.Stats()
			if s.Sent != 1 || s.Sent+s.NotSent+s.NotAttempted+s.Unknown != 2 {
				t.Fatalf("counters %+v", s)
			}
			if (fault == reqtest.MalformedReady) != (s.Panics == 1) {
				t.Fatalf("%d panics", s.Panics)
			}
		})
	}
}

func TestKeyPrintUnderEveryFault(t *testing.T) {
	for _, fault := range reqtest.Faults() {
		m := reqtest.New(t)
		m.Accept("minion-1", "PEM")
		m.Inject(fault)
		cfg := m.Config()
		cfg.Deadline = 300 * time.Millisecond
		c, err := saltreq.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.KeyPrint(t.Context(), "minion-1")
		if (err == nil) != (got == "PEM") || (err != nil && problem.CodeOf(err) != problem.ExecutorSilent) {
			t.Errorf("fault %d: %q, %v", fault, got, err)
		}
		if fault.BeforeRequest() && err == nil {
			t.Errorf("fault %d: a key", fault)
		}
		m.Close()
	}
}

// An abandoned request leaves nothing to the next one.
func TestAbandonedRequest(t *testing.T) {
	m := reqtest.New(t)
	m.Accept("minion-1", "PEM")
	arrived, release := make(chan struct{}), make(chan struct{})
	m.OnPublish(func(reqtest.Load) { arrived <- struct{}{}; <-release })
	c := m.Client()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan saltreq.Published, 1)
	go func() {
		got, _ := c.Publish(ctx, start("minion-1"))
		result <- got
	}()
	<-arrived
	cancel()
	if got := <-result; got.Outcome != saltreq.Unknown || got.Reason != saltreq.ReasonTimeout {
		t.Fatalf("%v %q", got.Outcome, got.Reason)
	}
	close(release)
	m.OnPublish(nil)
	second := start("minion-1")
	if got, err := c.Publish(t.Context(), second); got.Outcome != saltreq.Sent {
		t.Fatalf("%v (%v)", got.Outcome, err)
	}
	// A context that has ended does nothing at all.
	before := m.Accepts()
	if got, _ := c.Publish(ctx, start("minion-1")); got.Outcome != saltreq.NotAttempted || m.Accepts() != before {
		t.Fatalf("%v, %d connections more", got.Outcome, m.Accepts()-before)
	}
}

func TestNotAttempted(t *testing.T) {
	m := reqtest.New(t)
	m.Accept("minion-1", "PEM")
	c := m.Client()
	check := func(name string, want saltreq.Reason) {
		t.Helper()
		got, err := c.Publish(t.Context(), start("minion-1"))
		if got.Outcome != saltreq.NotAttempted || got.Reason != want || err == nil {
			t.Errorf("%s: %v %q (%v)", name, got.Outcome, got.Reason, err)
		}
	}
	if err := os.Chmod(m.KeyPath(), 0o640); err != nil {
		t.Fatal(err)
	}
	check("an open key", saltreq.ReasonKeyFile)
	if err := os.Remove(m.KeyPath()); err != nil {
		t.Fatal(err)
	}
	check("no key", saltreq.ReasonKeyFile)
	m.Restart("bmV3")
	if got, err := c.Publish(t.Context(), start("minion-1")); got.Outcome != saltreq.Sent {
		t.Errorf("a new key: %v (%v)", got.Outcome, err)
	}
	m.Close()
	check("a master that is down", saltreq.ReasonConnect)
	if got := c.Stats(); got.NotAttempted != 3 || got.Sent != 1 || got.ForeignListeners != 0 {
		t.Errorf("counters %+v", got)
	}
}

// «masterd refuses the key of root or of the master's own user.»
func TestNewRefuses(t *testing.T) {
	base := saltreq.Config{Address: "tcp://127.0.0.1:4506", MasterUser: "root", User: "oduflow", CacheDir: "/var/cache/salt/master"}
	if _, err := saltreq.New(base); err != nil {
		t.Fatal(err)
	}
	bad := map[string]func(*saltreq.Config){
		"root":                func(c *saltreq.Config) { c.User = "root" },
		"the master's user":   func(c *saltreq.Config) { c.MasterUser, c.User = "daemon", "daemon" },
		"the master's uid":    func(c *saltreq.Config) { c.MasterUser, c.User = "1", "daemon" },
		"sudo":                func(c *saltreq.Config) { c.User = "sudo_root" },
		"a path":              func(c *saltreq.Config) { c.User = "../x" },
		"no login":            func(c *saltreq.Config) { c.User = "" },
		"no master":           func(c *saltreq.Config) { c.MasterUser = "" },
		"an unknown master":   func(c *saltreq.Config) { c.MasterUser = "no-such-user-here" },
		"a relative cachedir": func(c *saltreq.Config) { c.CacheDir = "cache" },
		"a name as address":   func(c *saltreq.Config) { c.Address = "tcp://localhost:4506" },
		"another transport":   func(c *saltreq.Config) { c.Address = "ipc:///run/x" },
		"all addresses":       func(c *saltreq.Config) { c.Address = "tcp://0.0.0.0:4506" },
		"no port":             func(c *saltreq.Config) { c.Address = "tcp://127.0.0.1" },
		"a negative deadline": func(c *saltreq.Config) { c.Deadline = -1 },
	}
	for name, spoil := range bad {
		cfg := base
		spoil(&cfg)
		if _, err := saltreq.New(cfg); problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No log of ours holds the key or the argument, and no error does.
func TestNothingSecretIsLogged(t *testing.T) {
	for _, fault := range append(reqtest.Faults(), reqtest.None) {
		m := reqtest.New(t)
		m.Accept("minion-1", "PEM")
		m.Restart("U0VDUkVUS0VZ")
		m.Inject(fault)
		var out bytes.Buffer
		cfg := m.Config()
		cfg.Deadline = 300 * time.Millisecond
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace})
		c, err := saltreq.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p := start("minion-1")
		p.Arg = "U0VDUkVUQVJH"
		_, err = c.Publish(t.Context(), p)
		_, err2 := c.KeyPrint(t.Context(), "minion-1")
		text := fmt.Sprint(out.String(), err, err2)
		if strings.Contains(text, "U0VDUkVU") {
			t.Errorf("fault %d: %s", fault, text)
		}
		m.Close()
	}
}

const listenerEnv = "SALTREQ_TEST_LISTENER"

// runAsListener is the other process of TestForeignListener: it listens, tells
// its port, greets as a master does, and reports every byte after that.
func runAsListener() bool {
	if os.Getenv(listenerEnv) == "" {
		return false
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.TODO(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ln.Addr())
	conn, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("accepted")
	_, _ = os.Stdin.Read(make([]byte, 1)) // leave to go on
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
	_, _ = conn.Write(append(append(greeting, 0x04, byte(len(ready))), ready...))
	got, _ := io.ReadAll(conn)
	fmt.Printf("%q\n", got)
	return true
}

// «A listener on 4506 that isn't the master's is not given the key», with a
// real process of another user; and the same behind a look at the listener
// that was passed, so that the look at the accepted socket is what holds.
func TestForeignListener(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a listener of another user")
	}
	for _, swapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("swapped=%v", swapped), func(t *testing.T) {
			m := reqtest.New(t)
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = []string{listenerEnv + "=1"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			var addr string
			if _, err := fmt.Fscanln(out, &addr); err != nil {
				t.Fatal(err)
			}
			cfg := m.Config()
			cfg.Address = "tcp://" + addr
			if swapped {
				root, swap := procBeforeSwap(t, addr)
				cfg.ProcRoot = root
				go func() {
					_, _ = fmt.Fscanln(out, new(string)) // accepted
					swap()
					_, _ = in.Write([]byte("\n"))
				}()
			}
			c, err := saltreq.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Publish(t.Context(), start("minion-1"))
			if got.Outcome != saltreq.NotAttempted || got.Reason != saltreq.ReasonListener {
				t.Fatalf("%v %q (%v)", got.Outcome, got.Reason, err)
			}
			if c.Stats().ForeignListeners != 1 {
				t.Fatalf("counters %+v", c.Stats())
			}
			if !swapped {
				return // it wasn't even connected to
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			key, _ := os.ReadFile(m.KeyPath())
			if len(rest) < 64 || bytes.Contains(rest, key) || bytes.Contains(rest, []byte("publish")) {
				t.Fatalf("the listener read %s", rest)
			}
		})
	}
}

// procBeforeSwap is a /proc in which root listens at addr, as a look just
// before a swap would have seen it, until swap makes it the kernel's own.
func procBeforeSwap(t *testing.T, addr string) (root string, swap func()) {
	t.Helper()
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	tcp := filepath.Join(root, "net", "tcp")
	if err := os.Mkdir(filepath.Dir(tcp), 0o700); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("head\n 0: 0100007F:%04X 00000000:0000 0A 0:0 0:0 0 0 0 7 1\n", at.Port())
	if err := os.WriteFile(tcp, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/net/tcp", tcp+".now"); err != nil {
		t.Fatal(err)
	}
	return root, func() {
		if err := os.Rename(tcp+".now", tcp); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	m := reqtest.New(b)
	m.Accept("minion-1", "PEM")
	c := m.Client()
	for b.Loop() {
		if got, err := c.Publish(b.Context(), start("minion-1")); got.Outcome != saltreq.Sent {
			b.Fatal(err)
		}
	}
}
