package minion_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// executor runs minion-executor by hand.
func executor(t *testing.T, k *miniontest.Kit, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(k.Facts.LibDir, "minion-executor"), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func counters(t *testing.T, k *miniontest.Kit) map[string]int {
	t.Helper()
	out, _, status := executor(t, k, "ledger", "show", "--json", "--state-dir", k.Facts.StateDir)
	var shown struct {
		Counters map[string]int `json:"counters"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || status != 0 {
		t.Fatalf("ledger show: %d %v %s", status, err, out)
	}
	return shown.Counters
}

// Issue 3, it must show: a message signed by another key or by none, sealed to
// another minion, for another target or entry point, and a whole start
// replayed elsewhere: nothing runs, nothing changes, each is counted.
func TestRejectedMessages(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	start := k.AskStart(request, ticket, canonical)

	forged := *k
	forged.Masterd = otherKey(t)
	forgedStart := forged.AskStart(request, ticket, canonical)

	elsewhere := *k
	elsewhere.ID = "web2"
	otherTarget := elsewhere.AskStart(request, ticket, canonical)

	// A minion of its own, with its own Salt key, ledger and instance.
	second := newKit(t)
	second.Masterd = k.Masterd
	must(t, os.Remove(filepath.Join(second.Facts.EtcDir, minion.MasterdKey)))
	raw, err := os.ReadFile(filepath.Join(k.Facts.EtcDir, minion.MasterdKey))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(second.Facts.EtcDir, minion.MasterdKey), raw, 0o644))
	second.Facts.ID = "web2"

	for _, c := range []struct {
		name string
		at   *miniontest.Kit
		kind message.Kind
		text string
		code problem.Code
	}{
		{"signed by another key", k, message.Start, forgedStart.Text, message.Unsigned},
		{"for another target", k, message.Start, otherTarget.Text, message.WrongTarget},
		{"at another entry point", k, message.Evidence, start.Text, message.WrongKind},
		{"garbage", k, message.Start, "garbage", message.Unreadable},
		{"replayed to another minion", second, message.Start, start.Text, message.WrongTarget},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := counters(t, c.at)[string(c.code)]
			said := c.at.Send(c.kind, c.text, mustNotRun(t))
			if want := "oduflow: rejected " + string(c.code); said.Text != want {
				t.Errorf("said %q, expected %q", said.Text, want)
			}
			if after := counters(t, c.at)[string(c.code)]; after != before+1 {
				t.Errorf("counted %d, and before %d", after, before)
			}
		})
	}
	expect(t, k.Evidence(request, true), message.NotStartedYet, "")
	expect(t, k.Start(request, strings.Repeat("0", 32), canonical, mustNotRun(t)), message.Disregarded, "")
	if counters(t, k)["start_disregarded"] != 1 {
		t.Error("a start under another ticket isn't counted")
	}
	expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
}

// A pinned key that others may write, or none at all, opens nothing.
func TestPinnedKey(t *testing.T) {
	k := newKit(t)
	path := filepath.Join(k.Facts.EtcDir, minion.MasterdKey)
	q := k.Seal(miniontest.Ask{Kind: message.Evidence, Request: miniontest.NewUUID()})
	must(t, os.Chmod(path, 0o666))
	if said := k.Send(message.Evidence, q.Text, miniontest.Shim{}); said.Text != "oduflow: rejected bad_config" {
		t.Errorf("said %q", said.Text)
	}
	must(t, os.Remove(path))
	if said := k.Send(message.Evidence, q.Text, miniontest.Shim{}); said.Text != "oduflow: rejected bad_config" {
		t.Errorf("said %q", said.Text)
	}
}

// Executors of another time: one that speaks less, and a message of a newer
// masterd.
func TestProtocols(t *testing.T) {
	old := newKit(t, "-ldflags", "-X "+miniontest.Module+"/internal/version.AnswerProtocol=0 -X "+miniontest.Module+"/internal/version.Version=0.0.1")
	canonical, digest := old.Document(threeStates)
	a := old.Prepare(miniontest.NewUUID(), canonical)
	if a.Protocol != 0 || a.Executor != "0.0.1" {
		t.Errorf("an outdated executor says %d %q", a.Protocol, a.Executor)
	}
	k := newKit(t)
	q := k.Seal(miniontest.Ask{
		Kind: message.Prepare, Request: miniontest.NewUUID(), Digest: digest,
		Change: func(m *message.Message) { m.Protocol = message.Protocol + 1 },
	})
	expect(t, k.Read(q, k.Send(message.Prepare, q.Text, miniontest.Shim{}).Text), message.Refused, problem.ExecutorOutdated)
	if counters(t, k)["message_unsupported"] != 1 {
		t.Error("it isn't counted")
	}
}

// A conversation that isn't ours ends, without a record.
func TestBrokenConversations(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	q := k.AskStart(request, ticket, canonical)
	for name, lease := range map[string]any{"no lease": map[string]any{}, "a number": 12, "an error": map[string]any{"lease": "error"}} {
		t.Run(name, func(t *testing.T) {
			said := k.Send(message.Start, q.Text, miniontest.Shim{Lease: func(string, time.Duration) any { return lease }, Ran: mustNotRun(t).Ran})
			if said.Text != "" || said.Err == nil {
				t.Errorf("said %q, %v", said.Text, said.Err)
			}
		})
	}
	for name, input := range map[string]string{
		"nothing": "", "no JSON": "hello\n", "half a line": `{"v":1`, "another version": `{"v":2,"message":"","facts":{}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(k.Facts.LibDir, "minion-executor"), "start")
			cmd.Stdin = strings.NewReader(input)
			out, err := cmd.Output()
			if err == nil || cmd.ProcessState.ExitCode() != problem.ExitFailed || len(out) != 0 {
				t.Errorf("ended with %v, said %q", err, out)
			}
		})
	}
	expect(t, k.Start(request, ticket, canonical, succeed(canonical)), message.Finished, "")
}

// For operators: what the ledger holds, and exit codes.
func TestLedgerShow(t *testing.T) {
	k := newKit(t)
	request, ticket, canonical := prepared(t, k, threeStates)
	k.Start(request, ticket, canonical, succeed(canonical))
	out, _, status := executor(t, k, "ledger", "show", "--state-dir", k.Facts.StateDir)
	for _, want := range []string{request, "finished", k.Instance, "lease     free"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't in\n%s", want, out)
		}
	}
	if status != 0 {
		t.Error("status", status)
	}
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"version"}, 0}, {[]string{"--help"}, 0}, {nil, 2}, {[]string{"nonsense"}, 2}, {[]string{"start", "x"}, 2},
		{[]string{"ledger"}, 2}, {[]string{"ledger", "show", "--nonsense"}, 2}, {[]string{"ledger", "show", "--state-dir", "/nonexistent"}, 1},
	} {
		if _, _, status := executor(t, k, c.args...); status != c.status {
			t.Errorf("%v: status %d, expected %d", c.args, status, c.status)
		}
	}
}
