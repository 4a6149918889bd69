//go:build salt

package soak

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// model is one minion: the real executor in this process, and in the place of
// the Salt process a shim that knows what the states of each request come to.
type model struct {
	w        *world
	id       string
	instance string
	facts    minion.Facts
	host     minion.Host
}

// installMinions lays out 100 minions: one set of programs, one Salt key, and
// a ledger for each.
func (w *world) installMinions(t *testing.T) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	in := func(parts ...string) string { return filepath.Join(append([]string{w.dir}, parts...)...) }
	for _, dir := range []string{"lib/plugins", "etc", "minion-pki"} {
		must(os.MkdirAll(in(dir), 0o755))
	}
	for name, pkg := range map[string]string{"minion-executor": "../../minion-executor", "plugins/custom": "../../plugins/custom"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", in("lib", name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	_, releases, err := ed25519.GenerateKey(random)
	must(err)
	must(manifest.Write(in("lib"), "soak", releases, "minion-executor", "plugins/custom"))
	must(keyfile.WritePublic(in("etc", minion.ExecutorsKey), releases.Public().(ed25519.PublicKey)))
	must(os.Rename(in("masterd.pub"), in("etc", minion.MasterdKey)))
	key, err := rsa.GenerateKey(random, 2048)
	must(err)
	must(os.WriteFile(in("minion-pki", "minion.pem"), pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
	}), 0o400))
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(err)
	accepted := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))

	for n := range targets {
		id := fmt.Sprintf("target-%d", n)
		m := &model{w: w, id: id, instance: oduflow.NewUUID()}
		m.facts = minion.Facts{
			ID: id, PKIDir: in("minion-pki"), StateDir: in("minions", id), RunDir: in("minions-run", id), LibDir: in("lib"), EtcDir: in("etc"),
			UID: os.Geteuid(), AllowUnprivileged: true, Multiprocessing: true,
		}
		must(os.MkdirAll(m.facts.StateDir, 0o700))
		must(os.MkdirAll(m.facts.RunDir, 0o700))
		m.host = minion.Default(random, quiet)
		m.host.Self = in("lib", "minion-executor")
		w.minions[id] = m
		w.master.Accept(id, accepted)
	}
}

// serve holds one conversation, as salt/_modules/oduflow.py does.
func (m *model) serve(kind message.Kind, text string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	hears, tells := io.Pipe()
	says, speaks := io.Pipe()
	go func() {
		_ = m.host.Serve(ctx, kind, minion.NewTalk(hears, speaks))
		_ = speaks.Close()
		_ = hears.Close()
	}()
	defer func() { _ = tells.Close(); _ = says.Close() }()
	in, out := json.NewEncoder(tells), bufio.NewReaderSize(says, 1<<20)
	if err := in.Encode(minion.Opening{Version: minion.TalkVersion, Message: text, Facts: m.facts}); err != nil {
		return failed
	}
	var lease *os.File
	defer func() {
		if lease != nil {
			_ = lease.Close()
		}
	}()
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return failed
		}
		var asked struct {
			Do      string  `json:"do"`
			Text    string  `json:"text"`
			Request string  `json:"request"`
			WaitS   float64 `json:"wait_s"`
		}
		if err := json.Unmarshal(line, &asked); err != nil {
			return failed
		}
		switch asked.Do {
		case "return":
			return asked.Text
		case "facts":
			err = in.Encode(map[string]any{"facts": m.facts})
		case "lease":
			word := "busy"
			if lease = m.takeLease(asked.Request, time.Duration(asked.WaitS*float64(time.Second))); lease != nil {
				word = "held"
			}
			err = in.Encode(map[string]any{"lease": word})
		case "run":
			err = in.Encode(map[string]any{"kind": "map", "results": m.w.effect(ctx, asked.Request)})
		default:
			return failed
		}
		if err != nil {
			return failed
		}
	}
}

const failed = "oduflow: unavailable executor_failed"

func (m *model) takeLease(request string, wait time.Duration) *os.File {
	f, err := os.OpenFile(filepath.Join(m.facts.StateDir, ledger.LeaseFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err = lab.Poll(ctx, func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		_ = f.Close()
		return nil
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%-256s", fmt.Sprintf(`{"version":1,"request":%q}`, request)), 0); err != nil {
		_ = f.Close()
		return nil
	}
	return f
}
