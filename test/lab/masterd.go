package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// All that the lab knows about masterd and the minion's programs: their command lines, their
// configuration and what each must find on disk.

// The programs, and the package of each in the checkout.
var programs = []struct {
	name string // in the lab's bin
	pkg  string
	cgo  bool
}{
	{"masterd", "./masterd", true}, // SQLite
	{"minion-executor", "./minion-executor", false},
	{"custom", "./plugins/custom", false},
}

// MasterdSocket is masterd's Unix socket.
func (l *Lab) MasterdSocket() string { return l.path("run", "masterd.sock") }

// MasterdURL is where masterd answers over TLS, with the certificate in MasterdCert.
func (l *Lab) MasterdURL() string { return "https://" + l.tcp(l.Ports.Masterd) }

// MasterdCert is the certificate to trust for MasterdURL.
func (l *Lab) MasterdCert() string { return l.path("tls", "masterd.crt") }

// MasterdConfigPath is masterd's configuration file.
func (l *Lab) MasterdConfigPath() string { return l.path("conf", "masterd.yaml") }

// MasterdDir holds the receipts and masterd's keys; only masterd reads it.
func (l *Lab) MasterdDir() string { return l.path("masterd") }

// DatabasePath is the receipt database.
func (l *Lab) DatabasePath() string { return filepath.Join(l.MasterdDir(), "receipts.db") }

// BinPath is one of the lab's own programs: "masterd", "minion-executor", "custom".
func (l *Lab) BinPath(name string) string { return l.path("bin", name) }

func (l *Lab) layMasterd(over map[string]any) error {
	certificate, private, err := tlsPair(time.Now())
	if err != nil {
		return err
	}
	tlsKey := l.path("tls", "masterd.key")
	config := map[string]any{
		"listen": map[string]any{
			"unix": l.MasterdSocket(),
			"tls": map[string]any{
				"address":     l.tcp(l.Ports.Masterd),
				"certificate": l.MasterdCert(),
				"key":         tlsKey,
			},
		},
		"database": l.DatabasePath(),
		"keys": map[string]any{
			"signing": filepath.Join(l.MasterdDir(), "signing.key"),
			"secret":  filepath.Join(l.MasterdDir(), "secret.key"),
		},
		"salt": map[string]any{"config": l.MasterConfigPath(), "user": masterdUser},
		"log":  map[string]any{"level": "info", "format": "json"},
		"lab":  true,
	}
	return errors.Join(
		l.write(l.MasterdCert(), certificate, 0o644, l.Caller),
		l.write(tlsKey, private, 0o600, l.Masterd),
		l.writeYAML(l.MasterdConfigPath(), merge(config, over), 0o640, Account{UID: l.Caller.UID, GID: l.Masterd.GID}),
	)
}

// installPrograms brings the programs to where each is used: masterd's into bin, the minions' into
// every minion's lib_dir with a signed manifest and the public keys that they pin. It also lets
// `masterd init` make the database and the keys.
func (l *Lab) installPrograms(ctx context.Context, o Options) error {
	from := o.Bin
	if from == "" {
		var err error
		if from, err = l.build(ctx); err != nil {
			return err
		}
	}
	for _, p := range programs {
		if err := l.copyFile(filepath.Join(from, p.name), l.BinPath(p.name), 0o755, l.Caller); err != nil {
			return err
		}
	}
	masterdPub := l.path("conf", "masterd.pub")
	if _, err := l.masterdAs(ctx, l.Masterd, "init", "--config", l.MasterdConfigPath(), "--public-key-out", filepath.Join(l.MasterdDir(), "masterd.pub")); err != nil {
		return err
	}
	if err := l.copyFile(filepath.Join(l.MasterdDir(), "masterd.pub"), masterdPub, 0o644, l.Caller); err != nil {
		return err
	}
	executorsKey := l.path("conf", "executors.key")
	if _, err := l.masterdAs(ctx, l.Caller, "executors", "keygen", "--out", executorsKey); err != nil {
		return err
	}
	for i := range l.Minions {
		m := l.MinionDir(i + 1)
		if err := errors.Join(
			l.mkdir(filepath.Join(m.Lib, "plugins"), 0o755, l.Caller),
			l.copyFile(l.BinPath("minion-executor"), filepath.Join(m.Lib, "minion-executor"), 0o755, l.Caller),
			l.copyFile(l.BinPath("custom"), filepath.Join(m.Lib, "plugins", "custom"), 0o755, l.Caller),
			l.copyFile(masterdPub, filepath.Join(m.Etc, "masterd.pub"), 0o644, l.Caller),
			l.copyFile(executorsKey+".pub", filepath.Join(m.Etc, "executors.pub"), 0o644, l.Caller),
		); err != nil {
			return err
		}
		if err := l.SignExecutors(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// SignExecutors signs anew the manifest of what lies in minion i's lib_dir.
func (l *Lab) SignExecutors(ctx context.Context, i int) error {
	_, err := l.masterdAs(ctx, l.Caller, "executors", "sign", "--key", l.path("conf", "executors.key"), "--dir", l.MinionDir(i).Lib)
	return err
}

// build compiles the programs into a folder that is kept, where go finds them up to date the next
// time and does not link again.
func (l *Lab) build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep the built programs: %w", err)
	}
	dir := filepath.Join(cache, "oduflow-lab", strings.ReplaceAll(strings.Trim(l.Repo, "/"), "/", "+"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, p := range programs {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, p.name), p.pkg)
		cmd.Dir = l.Repo
		cgo := "0"
		if p.cgo {
			cgo = "1"
		}
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", p.pkg, err, lastLines(string(out), 20))
		}
	}
	return dir, nil
}

// StartMasterd starts masterd with `serve` and more arguments, if any, and returns when its health
// answer is 200.
func (l *Lab) StartMasterd(ctx context.Context, more ...string) error {
	argv := append([]string{l.BinPath("masterd"), "serve", "--config", l.MasterdConfigPath()}, more...)
	client := l.SocketClient()
	defer client.CloseIdleConnections()
	return l.start(ctx, partMasterd, l.Masterd, argv, func() bool {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(asking, http.MethodGet, "http://masterd/v1/health", nil)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// StopMasterd ends masterd with SIGTERM.
func (l *Lab) StopMasterd(ctx context.Context) error { return l.stop(ctx, partMasterd) }

// KillMasterd ends masterd with SIGKILL.
func (l *Lab) KillMasterd() error { return l.signal(partMasterd, syscall.SIGKILL) }

// PauseMasterd stops masterd where it stands: it keeps its connections and answers nothing.
func (l *Lab) PauseMasterd() error { return l.signal(partMasterd, syscall.SIGSTOP) }

// ResumeMasterd lets a paused masterd go on.
func (l *Lab) ResumeMasterd() error { return l.signal(partMasterd, syscall.SIGCONT) }

// SocketClient speaks HTTP over masterd's Unix socket; the host in its URLs is ignored.
func (l *Lab) SocketClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", l.MasterdSocket())
		},
	}}
}

// MasterdCommand runs a command of masterd's as its own user, whatever its exit status.
func (l *Lab) MasterdCommand(ctx context.Context, args ...string) (Result, error) {
	return l.Run(ctx, l.Masterd, l.BinPath("masterd"), args...)
}

// Token makes a bearer token.
func (l *Lab) Token(ctx context.Context, scope, name string) (string, error) {
	out, err := l.masterdAs(ctx, l.Masterd, "token", "create", "--config", l.MasterdConfigPath(), "--scope", scope, "--name", name)
	return strings.TrimSpace(out), err
}

// Adopt records minion i as the server with this instance UUID.
func (l *Lab) Adopt(ctx context.Context, i int, instance string) error {
	_, err := l.masterdAs(ctx, l.Masterd, "adopt", l.Minions[i-1], "--instance", instance, "--reason", "lab", "--config", l.MasterdConfigPath())
	return err
}

func (l *Lab) masterdAs(ctx context.Context, as Account, args ...string) (string, error) {
	result, err := l.Run(ctx, as, l.BinPath("masterd"), args...)
	if err != nil {
		return "", err
	}
	if result.Code != 0 {
		return "", fmt.Errorf("masterd %s: exit status %s: %s", strings.Join(args[:min(2, len(args))], " "),
			strconv.Itoa(result.Code), lastLines(result.Stderr+result.Stdout, 5))
	}
	return result.Stdout, nil
}

func (l *Lab) copyFile(from, to string, mode fs.FileMode, owner Account) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// A running program can't be written to; a new file under its name can be put there.
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.write(to, body, mode, owner)
}
