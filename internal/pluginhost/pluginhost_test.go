package pluginhost_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/executor"
	"github.com/oduflow/oduflow-salt/internal/pluginhost"
)

// TestMain lets this test program play a plugin: the host gives no arguments
// and no environment of ours, so the name under which it is launched says what
// to play.
func TestMain(m *testing.M) {
	if play, ok := roles[os.Args[0]]; ok {
		play()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func(){
	"echo": func() { executor.Serve(played(func(_ context.Context, in []byte) ([]byte, error) { return in, nil })) },
	"refuse": func() {
		executor.Serve(played(func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("secret") }))
	},
	"large": func() {
		executor.Serve(played(func(context.Context, []byte) ([]byte, error) { return make([]byte, executor.MaxBytes+1), nil }))
	},
	"die": func() {
		executor.Serve(played(func(context.Context, []byte) ([]byte, error) { os.Exit(7); return nil, nil }))
	},
	"hang": func() {
		executor.Serve(played(func(ctx context.Context, _ []byte) ([]byte, error) { select {} }))
	},
	"chatter": func() { fmt.Println("hello"); os.Exit(0) },
	"silent":  func() { select {} },
	"environment": func() {
		executor.Serve(played(func(context.Context, []byte) ([]byte, error) {
			stdin, _ := os.Readlink("/proc/self/fd/0")
			fds, _ := os.ReadDir("/proc/self/fd")
			names := ""
			for _, fd := range fds {
				if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
					names += fd.Name() + "=" + to + " "
				}
			}
			return []byte(strings.Join(os.Environ(), "\n") + "\nSTDIN " + stdin + "\nFDS " + names), nil
		}))
	},
	"child": func() {
		executor.Serve(played(func(_ context.Context, in []byte) ([]byte, error) {
			cmd := exec.Command("/bin/sleep", "300")
			cmd.Env = []string{"PLUGIN_CHILD=" + string(in)}
			return nil, cmd.Start()
		}))
	},
}

type played func(context.Context, []byte) ([]byte, error)

func (p played) Convert(ctx context.Context, in []byte) ([]byte, error) { return p(ctx, in) }

// plugin copies this test program, as it will be launched.
func plugin(t *testing.T, role string) pluginhost.Plugin {
	t.Helper()
	own, err := os.Executable()
	must(t, err)
	raw, err := os.ReadFile(own)
	must(t, err)
	path := filepath.Join(t.TempDir(), "plugin")
	must(t, os.WriteFile(path, raw, 0o755))
	sum := sha256.Sum256(raw)
	return pluginhost.Plugin{Path: path, Digest: sum[:], Name: role, Timeout: 20 * time.Second, Logger: hclog.NewNullLogger()}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, a pluginhost.Answer, err error, outcome pluginhost.Outcome) {
	t.Helper()
	if a.Outcome != outcome || (err == nil) != (outcome == pluginhost.Answered) {
		t.Errorf("%s, %v; expected: %s", a.Outcome, err, outcome)
	}
	if (a.High != nil) != (outcome == pluginhost.Answered) {
		t.Error("high data with that outcome")
	}
}

func TestOutcomes(t *testing.T) {
	for role, outcome := range map[string]pluginhost.Outcome{
		"echo": pluginhost.Answered, "refuse": pluginhost.NoAnswer, "large": pluginhost.NoAnswer, "die": pluginhost.NoAnswer,
		"chatter": pluginhost.NeverAsked, "silent": pluginhost.NeverAsked, "hang": pluginhost.NoAnswer,
	} {
		t.Run(role, func(t *testing.T) {
			p := plugin(t, role)
			if role == "silent" || role == "hang" {
				p.Timeout = 2 * time.Second
			}
			a, err := pluginhost.Convert(t.Context(), p, []byte(`{"a":1}`))
			expect(t, a, err, outcome)
			if outcome == pluginhost.Answered && (string(a.High) != `{"a":1}` || a.Version != executor.Version) {
				t.Errorf("answered %+v", a)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the plugin: %v", err)
			}
		})
	}
}

// Only the bytes that were signed are ever executed.
func TestRefusedBeforeLaunch(t *testing.T) {
	for name, spoil := range map[string]func(p *pluginhost.Plugin){
		"another digest": func(p *pluginhost.Plugin) { p.Digest = bytes.Repeat([]byte{1}, 32) },
		"no digest":      func(p *pluginhost.Plugin) { p.Digest = nil },
		"a short digest": func(p *pluginhost.Plugin) { p.Digest = p.Digest[:16] },
		"no file":        func(p *pluginhost.Plugin) { p.Path += "x" },
		"a link": func(p *pluginhost.Plugin) {
			must(t, os.Symlink(p.Path, p.Path+"-link"))
			p.Path += "-link"
		},
		"a changed file": func(p *pluginhost.Plugin) {
			f, err := os.OpenFile(p.Path, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteString("x")
			must(t, err)
			must(t, f.Close())
		},
		"not executable": func(p *pluginhost.Plugin) { must(t, os.Chmod(p.Path, 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(t, "echo")
			spoil(&p)
			a, err := pluginhost.Convert(t.Context(), p, []byte("x"))
			expect(t, a, err, pluginhost.RefusedBeforeLaunch)
		})
	}
}

// A plugin sees no environment, no stdin and no descriptor of its host.
func TestHygiene(t *testing.T) {
	t.Setenv("HOST_SECRET", "secret-word")
	a, err := pluginhost.Convert(t.Context(), plugin(t, "environment"), nil)
	expect(t, a, err, pluginhost.Answered)
	seen := string(a.High)
	if strings.Contains(seen, "HOST_SECRET") || strings.Contains(seen, "HOME=") {
		t.Errorf("the plugin sees %s", seen)
	}
	if !strings.Contains(seen, "PATH=") || !strings.Contains(seen, "TMPDIR=") {
		t.Errorf("the plugin sees %s", seen)
	}
	if strings.Contains(seen, t.TempDir()) {
		t.Errorf("a descriptor of the host is open: %s", seen)
	}
}

// What a plugin leaves behind is ended with it.
func TestChildrenAreKilled(t *testing.T) {
	mark := fmt.Sprint("mark-", os.Getpid())
	a, err := pluginhost.Convert(t.Context(), plugin(t, "child"), []byte(mark))
	if err != nil {
		t.Fatal(a, err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		alive, err := filepath.Glob("/proc/[0-9]*/environ")
		must(t, err)
		found := false
		for _, path := range alive {
			environ, _ := os.ReadFile(path)
			found = found || bytes.Contains(environ, []byte("PLUGIN_CHILD="+mark))
		}
		if !found {
			return
		}
		<-tick.C
	}
	t.Error("a plugin's child lives on")
}

// The reviewed plugin itself is covered by internal/minion, in which the real
// minion-executor launches the real plugins/custom.
