package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Result is how a command ended. A status other than 0 is no error of Run's.
type Result struct {
	Stdout string
	Stderr string
	Code   int
}

// Run runs a program as one of the lab's accounts (l.Caller, l.Master, l.Masterd), in the lab's own
// environment and marked as the lab's. A name without a slash is a program of the venv.
func (l *Lab) Run(ctx context.Context, as Account, name string, args ...string) (Result, error) {
	if !strings.Contains(name, "/") {
		name = l.VenvBin(name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = l.environ(partCommand, as)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// A session of its own, so that all of it can be ended with the context.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as.credential()}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = graceful
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return result, nil
	}
	if err != nil {
		return result, fmt.Errorf("run %s as %s: %w: %s", name, as.Name, errors.Join(err, ctx.Err()), lastLines(result.Stderr, 5))
	}
	return result, nil
}

// Salt runs `salt` as the operator who started the lab (root, where it was root).
func (l *Lab) Salt(ctx context.Context, args ...string) (Result, error) {
	return l.Run(ctx, l.Caller, "salt", append([]string{"-c", l.MasterConfigDir()}, args...)...)
}

// SaltRun runs `salt-run` likewise.
func (l *Lab) SaltRun(ctx context.Context, args ...string) (Result, error) {
	return l.Run(ctx, l.Caller, "salt-run", append([]string{"-c", l.MasterConfigDir()}, args...)...)
}

// SaltCall runs `salt-call` on minion i as its user.
func (l *Lab) SaltCall(ctx context.Context, i int, args ...string) (Result, error) {
	return l.Run(ctx, l.Caller, "salt-call", append([]string{"-c", l.MinionDir(i).Config}, args...)...)
}

// publishAsMasterd publishes as masterd's login does: user oduflow, with the key that the master
// made for it. `salt` itself can't be told another user than the one who runs it.
const publishAsMasterd = `
import json, sys
import salt.client, salt.config
config, user, keyfile, target, fun = sys.argv[1:6]
client = salt.client.LocalClient(mopts=salt.config.client_config(config))
client.salt_user = user
client.key = open(keyfile).read()
json.dump(client.cmd([target], fun, sys.argv[6:], tgt_type="list", timeout=20), sys.stdout)
`

// PublishAsMasterd runs one function on one minion under masterd's login and account, and gives
// the answer by minion as JSON. It shows that the login works; masterd itself uses no Salt code.
func (l *Lab) PublishAsMasterd(ctx context.Context, target, fun string, args ...string) (string, error) {
	argv := append([]string{"-c", publishAsMasterd, l.MasterConfigPath(), masterdUser, l.KeyFile(), target, fun}, args...)
	result, err := l.Run(ctx, l.Masterd, "python", argv...)
	if err != nil {
		return "", err
	}
	if result.Code != 0 {
		return "", fmt.Errorf("publish %s to %s: exit status %d: %s", fun, target, result.Code, lastLines(result.Stderr, 5))
	}
	return result.Stdout, nil
}

// AwaitMinion returns when minion i answers a ping of the master, as after a master's restart.
func (l *Lab) AwaitMinion(ctx context.Context, i int) error {
	id := l.Minions[i-1]
	return Poll(ctx, func() (bool, error) {
		result, err := l.Salt(ctx, "--out=json", "--static", "--timeout=2", "-L", id, "test.ping")
		if err != nil {
			return false, err
		}
		return result.Code == 0 && strings.Contains(result.Stdout, "true"), nil
	})
}
