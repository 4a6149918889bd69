// Package pluginhost launches one reviewed plugin for one question.
//
// The file is opened once: go-plugin's SecureConfig hashes that descriptor
// against the digest of the signed manifest and that descriptor is executed,
// so a swap of the file in between runs nothing else. The plugin gets a short environment, no host
// environment, no stdin, a process group of its own which is killed whole
// afterwards, and a private folder for its socket. There is one process an
// attempt and no reattaching.
package pluginhost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/oduflow/oduflow-salt/internal/executor"
)

// Outcome says how far a question got. It is no error: each of them is
// something that the caller has to tell apart.
type Outcome int

// The outcomes. The first two provably did nothing; after NoAnswer nobody
// knows what the plugin did.
const (
	RefusedBeforeLaunch Outcome = iota + 1 // not the signed file, or not to be had
	NeverAsked                             // launched, but it never got the question
	NoAnswer                               // asked; no answer, or an error for an answer
	Answered
)

func (o Outcome) String() string {
	switch o {
	case RefusedBeforeLaunch:
		return "refused before launch"
	case NeverAsked:
		return "launched, never asked"
	case NoAnswer:
		return "asked, no answer"
	case Answered:
		return "answered"
	}
	return fmt.Sprintf("outcome %d", int(o))
}

// Plugin is what to launch. Digest is required: there is no way to launch
// without one.
type Plugin struct {
	Path    string
	Digest  []byte // SHA-256, from the signed manifest
	Name    string // what the process list shows
	Timeout time.Duration
	Logger  hclog.Logger
}

// Answer is what came of a question. High is set for Answered only, Version
// from NeverAsked on where the handshake came about.
type Answer struct {
	Outcome Outcome
	High    []byte
	Version int
}

// Convert launches p, asks it to convert canonical, and ends it. The error
// says why the outcome isn't Answered.
func Convert(ctx context.Context, p Plugin, canonical []byte) (Answer, error) {
	file, err := open(p)
	if err != nil {
		return Answer{Outcome: RefusedBeforeLaunch}, err
	}
	defer func() { _ = file.Close() }()
	dir, err := os.MkdirTemp("", "oduflow-plugin-")
	if err != nil {
		return Answer{Outcome: RefusedBeforeLaunch}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	// The descriptor is closed by the kernel as the plugin is executed, after
	// its path was looked up.
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", file.Fd())) //nolint:gosec // our own descriptor
	cmd.Args = []string{p.Name}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  executor.Handshake,
		VersionedPlugins: executor.Sets(nil),
		Cmd:              cmd,
		// It reads the very descriptor that is executed, by the same path. A
		// SecureConfig serves one launch: its hash isn't reset.
		SecureConfig:     &plugin.SecureConfig{Checksum: p.Digest, Hash: sha256.New()},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     p.Timeout,
		Logger:           p.Logger,
		Managed:          true,
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(executor.MaxBytes), grpc.MaxCallSendMsgSize(executor.MaxBytes))},
	})
	defer end(client, cmd)

	rpc, err := client.Client()
	if err != nil {
		if cmd.Process == nil {
			return Answer{Outcome: RefusedBeforeLaunch}, err
		}
		return Answer{Outcome: NeverAsked}, err
	}
	answer := Answer{Outcome: NeverAsked, Version: client.NegotiatedVersion()}
	raw, err := rpc.Dispense(executor.Name)
	if err != nil {
		return answer, err
	}
	converter, ok := raw.(executor.Converter)
	if !ok {
		return answer, errors.New("the plugin serves something else than a converter")
	}
	answer.Outcome = NoAnswer
	high, err := converter.Convert(ctx, canonical)
	if err != nil {
		return answer, err
	}
	answer.Outcome, answer.High = Answered, high
	return answer, nil
}

// open opens the plugin's file. A symbolic link in its place is refused.
func open(p Plugin) (*os.File, error) {
	if len(p.Digest) != sha256.Size {
		return nil, errors.New("a plugin needs a SHA-256 digest")
	}
	return os.OpenFile(p.Path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
}

// end asks the plugin to go and then kills what is left of its process group.
func end(client *plugin.Client, cmd *exec.Cmd) {
	pid := 0
	if cmd.Process != nil {
		pid = cmd.Process.Pid
	}
	client.Kill()
	if pid > 1 { // kill(0) and kill(-1) would hit ourselves and everybody
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}

// CleanUp ends whatever plugin is still there. Programs call it once as they
// exit.
func CleanUp() { plugin.CleanupClients() }
