//go:build salt

package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// A26: the Unix socket takes the same calls as HTTPS.
func TestOverTheUnixSocket(t *testing.T) {
	client := &oduflow.Client{URL: "http://masterd", HTTP: salt.SocketClient()}
	s := request(t, plain, ordered)
	if _, err := client.CustomStart(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a, err := client.Await(t.Context(), s.Request, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, a, "succeeded", "")
	info, err := os.Stat(filepath.Dir(salt.MasterdSocket()))
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the socket's folder: %v %v", info.Mode(), err)
	}
}

// A26: salt-run reaches the same receipts, and its exit status is right.
func TestThroughSaltRun(t *testing.T) {
	s := request(t, plain, ordered)
	source := filepath.Join(scratch(t), "state.sls")
	write(t, source, s.Source)
	run := func(want int, args ...string) map[string]any {
		t.Helper()
		r, err := salt.SaltRun(t.Context(), append([]string{"--out=json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var answer map[string]any
		if err := json.Unmarshal([]byte(r.Stdout), &answer); err != nil {
			t.Fatalf("salt-run %s: status %d, %q %q", args[0], r.Code, r.Stdout, r.Stderr)
		}
		if r.Code != want {
			t.Errorf("salt-run %s: exit status %d, want %d: %v", args[0], r.Code, want, answer)
		}
		return answer
	}
	run(0, "oduflow.custom_start", "request="+s.Request, "target="+s.Target, "instance="+s.Instance, "source_path="+source, "revision=1")
	want(t, await(t, s.Request), "succeeded", "")
	if a := run(0, "oduflow.custom_status", "request="+s.Request); a["status"] != "succeeded" {
		t.Errorf("status through salt-run: %v", a)
	}
	if a := run(5, "oduflow.custom_status", "request="+oduflow.NewUUID()); a["error"] == nil && a["code"] != "unknown_request" {
		t.Errorf("an unknown request through salt-run: %v", a)
	}
	if a := run(0, "oduflow.state_validate", "source_path="+source); a["ok"] != true {
		t.Errorf("state_validate through salt-run: %v", a)
	}
	run(2, "oduflow.custom_start", "request=7", "target="+s.Target, "instance="+s.Instance, "source_path="+source, "revision=1")
	failing := request(t, plain, "a:\n  test.fail_without_changes:\n    - note: salt-run\n")
	begin(t, failing)
	await(t, failing.Request)
	run(1, "oduflow.custom_status", "request="+failing.Request)
}

// A26: salt-api's runner client, as Odoo's older module calls it.
func TestThroughSaltAPI(t *testing.T) {
	s := request(t, plain, ordered)
	call := func(fun string, kwargs url.Values) map[string]any {
		t.Helper()
		kwargs.Set("client", "runner")
		kwargs.Set("fun", fun)
		kwargs.Set("eauth", "sharedsecret")
		kwargs.Set("username", lab.APIUser)
		kwargs.Set("password", salt.APISecret)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, salt.APIURL()+"/run", strings.NewReader(kwargs.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Accept", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		raw, _ := io.ReadAll(resp.Body)
		var answer struct{ Return []map[string]any }
		if err := json.Unmarshal(raw, &answer); err != nil || len(answer.Return) != 1 {
			t.Fatalf("salt-api: %d %.300s", resp.StatusCode, raw)
		}
		return answer.Return[0]
	}
	start := url.Values{"request": {s.Request}, "target": {s.Target}, "instance": {s.Instance}, "source": {s.Source}, "revision": {"1"}}
	if a := call("oduflow.custom_start", start); a["request"] != s.Request {
		t.Fatalf("custom_start through salt-api: %v", a)
	}
	// Its queue may repeat calls (A26).
	if a := call("oduflow.custom_start", start); a["request"] != s.Request || a["execution"] != s.Request {
		t.Fatalf("repeated: %v", a)
	}
	want(t, await(t, s.Request), "succeeded", "")
	if got := order(t, s); len(got) != 3 {
		t.Errorf("ran %v", got)
	}
	if a := call("oduflow.custom_status", url.Values{"request": {s.Request}}); a["status"] != "succeeded" {
		t.Errorf("custom_status through salt-api: %v", a)
	}
}
