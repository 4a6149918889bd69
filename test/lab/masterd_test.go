//go:build salt

package lab_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/test/lab"
)

// masterd's place in the lab, with a stand-in for the programs: that it can reach what it needs
// under its own account, and is reached by whom it must be.
func TestMasterdsPlace(t *testing.T) {
	ctx := upTimeout(t)
	bin := t.TempDir()
	for _, name := range []string{"masterd", "minion-executor", "custom"} {
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, name), "./testdata/stub")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the stub: %v\n%s", err, out)
		}
	}
	before := users()
	l, err := lab.Up(ctx, lab.Options{
		Salt: "3008", Minions: 1, NoAPI: true, Bin: bin, Log: t.Output(),
		Masterd: map[string]any{"extra": "configured"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Down() }()

	if got, want := uids(t, l, "masterd"), uids(t, l, "master"); os.Geteuid() == 0 && (got == want || got == "0") {
		t.Errorf("masterd runs as %s, salt-master as %s", got, want)
	}
	if body := health(ctx, t, l); body != "stub configured\n" {
		t.Errorf("health over TLS: %q", body)
	}
	// A runner has the master's account.
	const connect = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
	if r, err := l.Run(ctx, l.Master, "python", "-c", connect, l.MasterdSocket()); err != nil || r.Code != 0 {
		t.Errorf("a runner can't reach masterd's socket: %v %s", err, r.Stderr)
	}
	if os.Geteuid() == 0 {
		stranger := lab.Account{Name: "nobody", UID: 65534, GID: 65534}
		for _, path := range []string{l.DatabasePath(), l.KeyFile(), l.MasterConfigPath(), l.MasterdConfigPath()} {
			if r, err := l.Run(ctx, stranger, "/bin/cat", path); err != nil || r.Code == 0 {
				t.Errorf("anybody can read %s (%v)", path, err)
			}
		}
		if r, err := l.Run(ctx, stranger, "python", "-c", connect, l.MasterdSocket()); err != nil || r.Code == 0 {
			t.Errorf("anybody can reach masterd's socket (%v)", err)
		}
	}
	m := l.MinionDir(1)
	for _, path := range []string{
		filepath.Join(m.Lib, "minion-executor"), filepath.Join(m.Lib, "plugins", "custom"), filepath.Join(m.Lib, "manifest.json"),
		filepath.Join(m.Lib, "manifest.sig"), filepath.Join(m.Etc, "masterd.pub"), filepath.Join(m.Etc, "executors.pub"),
	} {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if token, err := l.Token(ctx, "custom", "demo"); err != nil || token != "token-custom-demo" {
		t.Errorf("token %q, %v", token, err)
	}
	if err := l.Adopt(ctx, 1, "6f1c1c1e-0000-4000-8000-000000000001"); err != nil {
		t.Error("adopt:", err)
	}
	if err := l.KillMasterd(); err != nil {
		t.Fatal(err)
	}
	if left := l.Processes("masterd"); len(left) > 0 {
		t.Errorf("after KillMasterd: %v", left)
	}
	if err := l.StartMasterd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.StopMasterd(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.KeyFile()); err != nil {
		t.Fatal(err)
	}
	if err := l.StartMasterd(ctx); err == nil || !strings.Contains(err.Error(), "_key") {
		t.Errorf("a masterd that ends at once: %v, want its own words in the error", err)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	mustBeGone(t, l.Dir, before)
}

func health(ctx context.Context, t *testing.T, l *lab.Lab) string {
	t.Helper()
	pem, err := os.ReadFile(l.MasterdCert())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.MasterdURL()+"/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
