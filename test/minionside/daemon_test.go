//go:build salt

package minionside

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// daemons starts a real salt-master and salt-minion for a minion's folders.
func (m *saltMinion) daemons() {
	m.t.Helper()
	publish, ret := freePort(m.t), freePort(m.t)
	must(m.t, os.WriteFile(filepath.Join(m.conf, "master"), []byte(fmt.Sprintf(`
root_dir: %[1]s
pki_dir: %[1]s/mpki
pidfile: %[1]s/pids/master.pid
cachedir: %[1]s/mcache
sock_dir: %[1]s/ms
log_file: %[1]s/mlog
interface: 127.0.0.1
publish_port: %[2]d
ret_port: %[3]d
auto_accept: True
worker_threads: 3
gather_job_timeout: 3
file_roots: {base: [%[1]s/srv]}
`, m.Root, publish, ret)), 0o600))
	conf, err := os.ReadFile(filepath.Join(m.conf, "minion"))
	must(m.t, err)
	conf = append(bytes.Replace(conf, []byte("file_client: local"), []byte("file_client: remote"), 1),
		fmt.Sprintf("\nmaster: 127.0.0.1\npublish_port: %d\nmaster_port: %d\n", publish, ret)...)
	must(m.t, os.WriteFile(filepath.Join(m.conf, "minion"), conf, 0o600))
	m.daemon("salt-master", "-l", "quiet")
	// A minion that meets no master gives up, and comes back within a minute.
	until(m.t, 2*time.Minute, "the master to listen", func() bool {
		return answers(publish) && answers(ret)
	})
	m.startMinion()
}

// startMinion starts the minion's daemon and waits until it says that it is
// ready, and then answers.
func (m *saltMinion) startMinion() {
	m.t.Helper()
	log := filepath.Join(m.Root, "log")
	before, _ := os.ReadFile(log)
	m.minion = m.daemon("salt-minion", "-l", "quiet")
	until(m.t, 2*time.Minute, "the minion to be ready", func() bool {
		select {
		case <-m.minion.ended:
			m.t.Fatal("the minion ended as it was started")
		default:
		}
		now, _ := os.ReadFile(log)
		return bytes.Contains(now[min(len(before), len(now)):], []byte("Minion is ready to receive requests!"))
	})
	until(m.t, 2*time.Minute, "the minion to answer", func() bool {
		raw, _ := m.saltFor("3", "test.ping")
		return string(raw) == "true"
	})
}

// daemon is a process with a group of its own.
type daemon struct {
	pid   int
	ended chan struct{}
}

func (m *saltMinion) daemon(name string, args ...string) *daemon {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(m.venv, "bin", name), append([]string{"--config-dir", m.conf}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(m.t, cmd.Start())
	d := &daemon{pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		_ = cmd.Wait()
	}()
	m.t.Cleanup(func() {
		if d.pid > 1 {
			_ = syscall.Kill(-d.pid, syscall.SIGKILL)
		}
		cancel()
		<-d.ended
	})
	return d
}

func answers(port int) bool {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// salt publishes one function as an operator would.
func (m *saltMinion) salt(args ...string) (json.RawMessage, error) {
	return m.saltFor("40", args...)
}

func (m *saltMinion) saltFor(seconds string, args ...string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	args = append([]string{"--config-dir", m.conf, "--out", "json", "-l", "quiet", "-t", seconds, m.ID}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(m.venv, "bin/salt"), args...).Output()
	var returned map[string]json.RawMessage
	if json.Unmarshal(out, &returned) != nil {
		return nil, fmt.Errorf("salt: %w: %s", err, out)
	}
	return returned[m.ID], nil
}

func (m *saltMinion) published(q miniontest.Question) message.Answer {
	m.t.Helper()
	raw, err := m.salt("oduflow."+string(q.Message.Kind), q.Text)
	must(m.t, err)
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		m.t.Fatalf("returned something else than a text: %s", raw)
	}
	return m.Read(q, text)
}

// The same on a real minion daemon: events, exclusion both ways, nothing on
// the bus, in the job cache or in a proc file.
func TestDaemon(t *testing.T) {
	m := newMinion(t, "state_events: True\nstate_queue: True\ntest: True\nstartup_states: ''\n")
	m.daemons()
	ctx, cancel := context.WithCancel(context.Background())
	var bus bytes.Buffer
	listen := exec.CommandContext(ctx, filepath.Join(m.venv, "bin/salt-run"), "--config-dir", m.conf, "-l", "quiet", "state.event")
	listen.Stdout = &bus
	listen.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, listen.Start())

	canonical, digest := m.Document(fmt.Sprintf(`
secret-id-1:
  oduflow_probe.append: [{name: %[1]s/count}, {text: secret-word-1}]
secret-id-2:
  cmd.run: [{name: 'echo secret-word-2; touch %[1]s/ours; while test ! -e %[1]s/go; do sleep 0.1; done'}]
`, m.Root))
	request := miniontest.NewUUID()
	a := m.published(m.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest}))
	expect(t, a, message.Prepared, "")
	start := m.AskStart(request, a.Ticket, canonical)
	done := make(chan message.Answer, 1)
	go func() { done <- m.published(start) }()
	await(t, filepath.Join(m.Root, "ours"))
	raw, err := m.salt("state.single", "test.nop", "x", "queue=False")
	must(t, err)
	if !strings.Contains(string(raw), "is running as PID") {
		t.Errorf("an operator's state run beside ours returned %s", raw)
	}
	expect(t, m.published(m.Seal(miniontest.Ask{Kind: message.Evidence, Request: request})), message.Running, "")
	must(t, os.WriteFile(filepath.Join(m.Root, "go"), nil, 0o600))
	expect(t, <-done, message.Finished, "", 2, 2, 0, 0)
	expect(t, m.published(start), message.Finished, "", 2, 2, 0, 0) // a whole start replayed
	count, err := os.ReadFile(filepath.Join(m.Root, "count"))
	must(t, err)
	if string(count) != "secret-word-1\n" {
		t.Errorf("the counter says %q", count)
	}

	request = miniontest.NewUUID()
	a = m.published(m.Seal(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest}))
	go func() {
		_, _ = m.salt("state.single", "cmd.run", fmt.Sprintf("touch %[1]s/theirs; sleep 8", m.Root), "test=False", "queue=False")
	}()
	await(t, filepath.Join(m.Root, "theirs"))
	expect(t, m.published(m.AskStart(request, a.Ticket, canonical)), message.Fenced, problem.StartRefusedStateRunning)

	cancel()
	_ = listen.Wait()
	if !bytes.Contains(bus.Bytes(), []byte("odf1.")) {
		t.Error("the listener saw no answer at all")
	}
	for _, word := range []string{"secret-word", "secret-id"} {
		if bytes.Contains(bus.Bytes(), []byte(word)) {
			t.Errorf("the bus shows %s", word)
		}
		for _, dir := range []string{"mcache", "mlog", "ms"} {
			_ = filepath.WalkDir(filepath.Join(m.Root, dir), func(path string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return nil
				}
				if raw, _ := os.ReadFile(path); bytes.Contains(raw, []byte(word)) {
					t.Errorf("%s shows %s", path, word)
				}
				return nil
			})
		}
	}
}
