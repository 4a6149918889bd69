//go:build salt

package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

var update = flag.Bool("update", false, "write the transcript in docs/operations.md anew")

// operator runs a command of masterd's as an operator does: root, or in a lab
// without root masterd's own user. It gives the exit status with both outputs.
func operator(t *testing.T, args ...string) lab.Result {
	t.Helper()
	as := salt.Caller
	if as.UID != 0 {
		as = salt.Masterd
	}
	r, err := salt.Run(t.Context(), as, salt.BinPath("masterd"), append(args, "--config", salt.MasterdConfigPath())...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// detail is what `masterd receipts show --json` says, as far as tests read it.
type detail struct {
	Request, Status, State string
	Code                   *string
	Settled                bool
	FromLedger             bool    `json:"from_ledger"`
	Source                 *string `json:"source"`
	Next                   string
	Settlement             *struct {
		Outcome, Reason, Observed, By string
		Owed                          bool
	}
	Transitions []struct{ Event, Actor string }
	Witnesses   []struct {
		Result, Proves string
		Conflict       bool
	}
}

func show(t *testing.T, request string, more ...string) (d detail) {
	t.Helper()
	r := operator(t, append([]string{"receipts", "show", request, "--json"}, more...)...)
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		t.Fatalf("receipts show: status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	return d
}

func (d detail) results() (out []string) {
	for _, w := range d.Witnesses {
		out = append(out, w.Result)
	}
	return out
}

// carriers are the processes that a request has started.
func carriers(request string) (pids []int) {
	for _, p := range salt.Processes(name(victim)) {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if bytes.Contains(environ, []byte("ODUFLOW_REQUEST="+request+"\x00")) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// orphan starts a run on the victim and kills its Salt job process in the
// middle, with SIGKILL. What the state started lives on.
func orphan(t *testing.T) (s oduflow.Start, runs string) {
	t.Helper()
	dir := scratch(t)
	runs = filepath.Join(dir, "runs")
	s = request(t, victim, fmt.Sprintf("half way:\n  cmd.run:\n    - name: echo run >> %s; exec sleep 600\n", runs))
	begin(t, s)
	awaitFile(t, runs)
	left := carriers(s.Request)
	if len(left) == 0 {
		t.Fatal("nothing carries the request")
	}
	t.Cleanup(func() { end(carriers(s.Request)) })
	started := map[int]bool{}
	for _, pid := range left {
		started[pid] = true
	}
	// Whoever started it is the Salt job process, which carries no mark itself.
	for _, p := range salt.Processes(name(victim)) {
		if !started[p.PID] || started[p.Parent] || p.Parent <= 1 {
			continue
		}
		if err := syscall.Kill(p.Parent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	return s, runs
}

func end(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// A21, A22, A23, A24: from a page to a reconciled receipt in three commands,
// each of which says what comes next. The transcript is in docs/operations.md.
func TestReconcileInThreeCommands(t *testing.T) {
	s, runs := orphan(t)

	// The run's own process is gone, and what it started isn't: it still runs.
	awaitThat(t, "the executor to see the survivor", func() bool {
		r := operator(t, "evidence", s.Request, "--json")
		return strings.Contains(r.Stdout, `"survivors": 1`)
	})
	settle := []string{
		"reconcile", s.Request, "--outcome", "failed", "--reason", "the Salt job was killed",
		"--observed", "the command had written its line and was killed", "--confirm", name(victim),
	}
	if r := operator(t, settle...); r.Code != 4 || !strings.Contains(r.Stderr, "job_running") {
		t.Fatalf("reconciled while a survivor runs: status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	end(carriers(s.Request))
	awaitThat(t, "the receipt to be uncertain", func() bool {
		return operator(t, "evidence", s.Request).Code == 3
	})
	if d := show(t, s.Request); d.State != "uncertain" || *d.Code != "interrupted" {
		t.Fatalf("%+v", d)
	}

	// The page: whoever wants something of this target is told what blocks it.
	other := request(t, victim, "free again:\n  test.nop: []\n")
	blocked := apply(t, other)
	want(t, blocked, "failed", "target_quarantined")
	if blocked.BlockedBy == nil || blocked.BlockedBy.Request != s.Request || blocked.Preflight.Passed != 0 {
		t.Fatalf("blocked by %+v", blocked.BlockedBy)
	}

	var transcript strings.Builder
	step := func(status int, says string, args ...string) {
		t.Helper()
		r := operator(t, args...)
		if r.Code != status || !strings.Contains(r.Stdout, says) || !strings.Contains(r.Stdout, "\nnext: ") {
			t.Fatalf("masterd %s: status %d, want %d and %q: %s%s", args[0], r.Code, status, says, r.Stdout, r.Stderr)
		}
		fmt.Fprintf(&transcript, "$ masterd %s\n%s\n", quoted(args), r.Stdout)
	}
	step(0, "next: masterd evidence "+s.Request, "receipts", "list", "--status", "uncertain", "--target", name(victim))
	step(3, "masterd reconcile "+s.Request, "evidence", s.Request)
	step(0, "settled as failed", settle...)
	inDocs(t, transcript.String())

	d := show(t, s.Request)
	if d.State != "failed" || *d.Code != "settled_failed" || !d.Settled || d.Settlement == nil || d.Settlement.Owed ||
		!strings.HasPrefix(d.Settlement.By, "uid ") || d.Source != nil {
		t.Errorf("%+v, %+v", d, d.Settlement)
	}
	if got := d.results(); got[len(got)-1] != "settled" {
		t.Errorf("the ledger doesn't say that it was settled: %v", got)
	}
	if d := show(t, s.Request, "--source"); d.Source == nil || *d.Source != s.Source {
		t.Error("--source doesn't show the source")
	}
	// Said again it is no error; another outcome is.
	if r := operator(t, settle...); r.Code != 0 || !strings.Contains(r.Stdout, "before") {
		t.Errorf("said again: status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	settle[3] = "succeeded"
	if r := operator(t, settle...); r.Code != 4 || !strings.Contains(r.Stderr, "not_uncertain") {
		t.Errorf("another outcome: status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}

	// A24, A16: the target is free; an explicit retry is a new request.
	retry := other
	retry.Request, retry.Previous = oduflow.NewUUID(), other.Request
	want(t, apply(t, retry), "succeeded", "")
	again := s
	again.Request = oduflow.NewUUID()
	if _, err := odoo.CustomStart(t.Context(), again); refusal(t, err).Code != "previous_required" {
		t.Errorf("A12: %v", err)
	}
	if n := len(lines(t, runs)); n != 1 {
		t.Errorf("ran %d times", n)
	}
}

// callers posts to entry points over the Unix socket and prints each status.
const callers = `
import http.client, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
for entry in sys.argv[3:]:
    c = Unix("masterd")
    c.request("POST", "/v1/" + entry, sys.argv[2], {"Content-Type": "application/json"})
    print(entry, c.getresponse().status)
`

// A23: no endpoint over TLS, no runner, and nobody else on the master's host,
// not even Salt's own user, settles or shows anything.
func TestOperatorsEntryPointsAreLocal(t *testing.T) {
	body := `{"request":"` + oduflow.NewUUID() + `"}`
	entries := []string{
		"operator/reconcile", "operator/evidence", "operator/receipts_list", "operator/receipts_show",
		"operator/adopt", "operator/token_create", "operator/token_list", "operator/token_revoke",
	}
	for _, entry := range entries {
		status, text := post(t, entry, "application/json", "Bearer "+token, strings.NewReader(body))
		if status != http.StatusNotFound || !strings.Contains(text, "not_found") {
			t.Errorf("%s over TLS: %d %s", entry, status, text)
		}
	}
	for _, function := range []string{"reconcile", "evidence", "adopt"} {
		r, err := salt.SaltRun(t.Context(), "oduflow."+function, "request="+oduflow.NewUUID())
		if err != nil || !strings.Contains(r.Stdout+r.Stderr, "is not available") {
			t.Errorf("the runner's %s: %v, status %d: %s%s", function, err, r.Code, r.Stdout, r.Stderr)
		}
	}
	if !salt.Root {
		return
	}
	r, err := salt.Run(t.Context(), salt.Master, "python", append([]string{"-c", callers, salt.MasterdSocket(), body, "custom_status"}, entries...)...)
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if len(said) != len(entries)+1 || said[0] != "custom_status 404" { // it may call, and there is no such request
		t.Fatalf("as Salt's user: %s%s", r.Stdout, r.Stderr)
	}
	for _, line := range said[1:] {
		if !strings.HasSuffix(line, " 403") {
			t.Errorf("as Salt's user: %s", line)
		}
	}
}

// Issue 5: yesterday's database comes back. Nothing runs a second time, a run
// that it doesn't know comes back from the ledger as a quarantine, and a
// repeated request finds what it did.
func TestYesterdaysDatabase(t *testing.T) {
	saved := filepath.Join(salt.MasterdDir(), "yesterday.db")
	if r, err := salt.MasterdCommand(t.Context(), "backup", saved, "--config", salt.MasterdConfigPath()); err != nil || r.Code != 0 {
		t.Fatalf("backup: %v %s", err, r.Stderr)
	}
	// After it: one run that ends well, and one that nobody sees the end of.
	dir := scratch(t)
	done := request(t, victim, fmt.Sprintf("done since:\n  cmd.run:\n    - name: echo run >> %s/runs\n", dir))
	want(t, apply(t, done), "succeeded", "")
	lost, runs := orphan(t)
	end(carriers(lost.Request))
	awaitThat(t, "the lost run to be uncertain", func() bool { return operator(t, "evidence", lost.Request).Code == 3 })

	if r, err := salt.MasterdCommand(t.Context(), "restore", saved, "--config", salt.MasterdConfigPath()); err != nil ||
		r.Code != 7 || !strings.Contains(r.Stderr, "database_locked") {
		t.Fatalf("restored under a running masterd: %v %d %s", err, r.Code, r.Stderr)
	}
	if err := salt.StopMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Copied over by hand it isn't opened.
	today, err := os.ReadFile(salt.DatabasePath())
	if err != nil {
		t.Fatal(err)
	}
	yesterday, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, salt.DatabasePath(), yesterday)
	r, err := salt.MasterdCommand(t.Context(), "serve", "--config", salt.MasterdConfigPath())
	if err != nil || r.Code != 4 || !strings.Contains(r.Stderr, "database_rolled_back") || !strings.Contains(r.Stderr, "masterd restore") {
		t.Errorf("an older copy: %v, status %d: %s", err, r.Code, r.Stderr)
	}
	replace(t, salt.DatabasePath(), today)

	r, err = salt.MasterdCommand(t.Context(), "restore", saved, "--config", salt.MasterdConfigPath())
	if err != nil || r.Code != 0 || !strings.Contains(r.Stdout, "new epoch") {
		t.Fatalf("restore: %v, status %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	said := len(masterdLog(t))
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(masterdLog(t)[said:], `"cause":"restore"`) {
		t.Error("masterd doesn't say that it begins a new epoch")
	}
	if _, err := odoo.CustomStatus(t.Context(), lost.Request, 0); refusal(t, err).Code != "unknown_request" {
		t.Errorf("the lost request: %v", err)
	}
	// Somebody wants something of the target: its ledger says what is unfinished.
	next := request(t, victim, "after the restore:\n  test.nop: []\n")
	a := apply(t, next)
	want(t, a, "failed", "record_unfinished")
	awaitThat(t, "the record to be a receipt", func() bool {
		_, err := odoo.CustomStatus(t.Context(), lost.Request, 0)
		return err == nil
	})
	if d := show(t, lost.Request, "--source"); d.State != "uncertain" || !d.FromLedger || d.Source != nil {
		t.Errorf("made of the ledger: %+v", d)
	}
	next.Request, next.Previous = oduflow.NewUUID(), next.Request
	want(t, apply(t, next), "failed", "target_quarantined")
	// Its caller repeats it, as it must: it is known, and doesn't run.
	want(t, begin(t, lost), "uncertain", "interrupted")
	other := lost
	other.Source = "another source:\n  test.nop: []\n"
	if _, err := odoo.CustomStart(t.Context(), other); refusal(t, err).Code != "request_conflict" {
		t.Errorf("another body under its UUID: %v", err)
	}
	// It can't be reached just now: its ledger is told with the next request.
	key := filepath.Join(salt.PKIDir(), "minions", name(victim))
	away := filepath.Join(salt.PKIDir(), name(victim)+".away")
	if err := os.Rename(key, away); err != nil {
		t.Fatal(err)
	}
	settle := operator(t, "reconcile", lost.Request, "--outcome", "succeeded", "--reason", "restored", "--observed", "its line is there", "--confirm", name(victim))
	if err := os.Rename(away, key); err != nil {
		t.Fatal(err)
	}
	if settle.Code != 0 || !strings.Contains(settle.Stdout, "not told yet") {
		t.Fatalf("reconcile: %d %s%s", settle.Code, settle.Stdout, settle.Stderr)
	}
	if r := operator(t, "receipts", "list", "--owed"); !strings.Contains(r.Stdout, lost.Request) {
		t.Errorf("what is owed isn't listed: %s", r.Stdout)
	}
	// The one that ended well is adopted, not run again.
	want(t, apply(t, done), "succeeded", "")
	for _, path := range []string{runs, filepath.Join(dir, "runs")} {
		if n := len(lines(t, path)); n != 1 {
			t.Errorf("%s: ran %d times", path, n)
		}
	}
	next.Previous, next.Request = next.Request, oduflow.NewUUID()
	want(t, apply(t, next), "succeeded", "")
	if d := show(t, lost.Request); d.Settlement == nil || d.Settlement.Owed {
		t.Errorf("the ledger isn't told: %+v", d.Settlement)
	}
}

func quoted(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; strings.ContainsAny(a, " |") {
			out[i] = `"` + a + `"`
		}
	}
	return strings.Join(out, " ")
}

// The transcript in the docs, between its marks.
const (
	docs     = "docs/operations.md"
	docBegin = "<!-- transcript: go test -tags salt ./test/e2e -run TestReconcileInThreeCommands -update -->\n```console\n"
	docEnd   = "```\n<!-- end of transcript -->\n"
)

var unsteady = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "2026-11-30 18:00:00Z"},
	{regexp.MustCompile(`\b\d{20}\b`), "20261130180000000000"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), strings.Repeat("5", 64)},
	{regexp.MustCompile(`uid \d+`), "uid 0"},
}

// steady makes a transcript the same in each run: times, JIDs and digests are
// set, UUIDs are numbered in order, and what is said several times in a row is
// said once.
func steady(text string) string {
	for _, u := range unsteady {
		text = u.what.ReplaceAllString(text, u.as)
	}
	seen := map[string]string{}
	uuid := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	text = uuid.ReplaceAllStringFunc(text, func(u string) string {
		if seen[u] == "" {
			seen[u] = fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(seen)+1)
		}
		return seen[u]
	})
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n") + "\n"
}

// inDocs compares a transcript with the docs, or writes it there.
func inDocs(t *testing.T, transcript string) {
	t.Helper()
	path := filepath.Join(salt.Repo, docs)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(raw), docBegin)
	old, after, ended := strings.Cut(rest, docEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the transcript", docs)
	}
	got := steady(transcript)
	if got == old {
		return
	}
	if !*update {
		t.Errorf("%s isn't what the commands print now; run with -update:\n%s", docs, got)
		return
	}
	if err := os.WriteFile(path, []byte(before+docBegin+got+docEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
