package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
)

// A25: a token does what its scope says and nothing wider.
func TestScopes(t *testing.T) {
	a := newAPI(t, nil)
	bodies := map[string]string{
		"/v1/custom_start":   startBody(t, nil),
		"/v1/custom_status":  `{"request":"` + requestA + `"}`,
		"/v1/state_validate": `{"source":"a"}`,
	}
	needs := map[string]token.Scope{
		"/v1/custom_start": token.Custom, "/v1/custom_status": token.Status, "/v1/state_validate": token.Validate,
	}
	for path, need := range needs {
		for _, have := range token.Scopes() {
			g := a.postTLS(t, path, "Bearer "+a.tokens.text[have], bodies[path])
			want := http.StatusForbidden
			if have.Includes(need) {
				want = http.StatusOK
			}
			if g.status != want || want == http.StatusForbidden && g.code() != "forbidden" {
				t.Errorf("%s with %s: status %d, code %s, want %d", path, have, g.status, g.code(), want)
			}
		}
	}
	if len(a.starts) != 1 || len(a.statuses) != 2 {
		t.Errorf("%d starts and %d statuses got through, want 1 and 2", len(a.starts), len(a.statuses))
	}
}

func TestNoTokenOrAWrongOne(t *testing.T) {
	a := newAPI(t, nil)
	good := a.tokens.text[token.Custom]
	other := a.tokens.text[token.Validate]
	for name, authorization := range map[string]string{
		"none": "", "empty": "Bearer", "another scheme": "Basic " + good, "no scheme": good, "half": "Bearer " + good[:40],
		"changed secret": "Bearer " + good[:len(good)-1] + flip(good[len(good)-1]),
		"changed id":     "Bearer odf_" + flip(good[4]) + good[5:],
		"upper case":     "Bearer " + strings.ToUpper(good),
		"somebody's id":  "Bearer " + other[:16] + good[16:],
		"more after it":  "Bearer " + good + " x", "long": "Bearer " + strings.Repeat("x", 9000),
	} {
		g := a.postTLS(t, "/v1/custom_start", authorization, startBody(t, nil))
		if g.status != 401 || g.code() != "unauthorized" || g.header.Get("WWW-Authenticate") == "" || g.header.Get(httpapi.ExitHeader) != "6" {
			t.Errorf("%s: status %d: %s", name, g.status, g.raw)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/custom_start", strings.NewReader(startBody(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good}
	if g := send(t, a.tls, r); g.status != 401 {
		t.Errorf("two headers: status %d", g.status)
	}
	if a.reached() != 0 {
		t.Error("a call got to the service")
	}
	if g := a.postTLS(t, "/v1/custom_start", "bEARER  "+good, startBody(t, nil)); g.status != 200 {
		t.Errorf("a scheme in another case: status %d", g.status)
	}
}

func flip(c byte) string {
	if c == '0' {
		return "1"
	}
	return "0"
}

// Who has no right learns nothing about his body, and it isn't read.
func TestAccessComesBeforeTheBody(t *testing.T) {
	a := newAPI(t, nil)
	if g := a.postTLS(t, "/v1/custom_start", "", "nonsense"); g.status != 401 {
		t.Errorf("status %d", g.status)
	}
	if g := a.postTLS(t, "/v1/custom_start", "Bearer "+a.tokens.text[token.Status], "nonsense"); g.status != 403 {
		t.Errorf("status %d", g.status)
	}
}

// Without Tokens nobody gets in over TLS.
func TestNoTokenStoreMeansNobody(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) { c.Tokens = nil })
	if g := a.postTLS(t, "/v1/custom_start", "Bearer "+a.tokens.text[token.Custom], startBody(t, nil)); g.status != 401 {
		t.Errorf("status %d", g.status)
	}
}

// Operators' entry points don't exist over TLS, whatever the token.
func TestOperatorsOnlyOnTheSocket(t *testing.T) {
	a := newAPI(t, nil)
	for _, path := range []string{"adopt", "token_create", "token_list", "token_revoke"} {
		g := a.postTLS(t, "/v1/operator/"+path, "Bearer "+a.tokens.text[token.Custom], `{}`)
		if g.status != 404 || g.code() != "not_found" {
			t.Errorf("%s: status %d, code %s", path, g.status, g.code())
		}
	}
	if a.operators != 0 {
		t.Error("an operator's call got through")
	}
}

// Operators are root, or masterd's own user in a lab, by peer credentials.
func TestOperatorsByPeerCredentials(t *testing.T) {
	me := uint32(os.Getuid())
	for _, c := range []struct {
		name string
		lab  bool
		own  uint32
		in   bool
	}{
		{"lab, own user", true, me, true},
		{"lab, another user", true, me + 1, me == 0},
		{"no lab, own user", false, me, me == 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t, func(cfg *httpapi.Config) { cfg.Lab = c.lab; cfg.OwnUID = c.own })
			g := a.post(t, "/v1/operator/token_list", `{}`)
			if c.in != (g.status == 200) || !c.in && (g.status != 403 || g.code() != "forbidden") {
				t.Errorf("status %d: %s", g.status, g.raw)
			}
		})
	}
}

// dialAs connects with another effective uid than the test's own.
func dialAs(t *testing.T, path string, uid int) net.Conn {
	t.Helper()
	runtime.LockOSThread() // setresuid below is of this thread alone
	defer runtime.UnlockOSThread()
	const keep = ^uintptr(0)
	set := func(euid uintptr) {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, euid, keep); errno != 0 {
			t.Fatal(errno)
		}
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	set(uintptr(uid))
	err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	set(0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A23: who passes the folder by its group may call, and is no operator.
func TestGroupMayCallAndIsNoOperator(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	const somebody = 23456
	for _, lab := range []bool{false, true} {
		desk := &ledgerDesk{}
		a := newAPI(t, func(c *httpapi.Config) { c.Lab, c.Receipts = lab, desk })
		for dir := filepath.Dir(filepath.Dir(a.socket)); dir != os.TempDir(); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil { // t.TempDir's own folders
				t.Fatal(err)
			}
		}
		a.unix.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return dialAs(t, a.socket, somebody), nil
		}}
		if g := a.post(t, "/v1/custom_start", startBody(t, nil)); g.status != 200 {
			t.Errorf("custom_start: status %d: %s", g.status, g.raw)
		}
		for path, body := range map[string]string{
			"adopt": `{"target":"a","instance":"` + instanceA + `","reason":"x"}`, "token_create": `{"scope":"custom","name":"a"}`,
			"token_list": `{}`, "token_revoke": `{"id":"0123456789ab"}`,
			"receipts_list": `{}`, "receipts_show": `{"request":"` + requestA + `"}`, "evidence": `{"request":"` + requestA + `"}`,
			"reconcile": `{"request":"` + requestA + `","outcome":"failed","reason":"r","observed":"o","confirm":"web1"}`,
		} {
			if g := a.post(t, "/v1/operator/"+path, body); g.status != 403 || g.code() != "forbidden" {
				t.Errorf("%s: status %d: %s", path, g.status, g.raw)
			}
		}
		if a.operators != 0 || desk.calls != 0 {
			t.Error("an operator's call got through")
		}
		if !strings.Contains(a.log.String(), `"peer":"uid 23456"`) {
			t.Error("the log doesn't name the caller's uid")
		}
	}
}

func TestOperatorAnswers(t *testing.T) {
	a := newAPI(t, nil)
	g := a.post(t, "/v1/operator/adopt", `{"target":"web1","instance":"`+strings.ToUpper(instanceA)+`","reason":"It was there."}`)
	const want = `{"target":"web1","instance":"` + instanceA + `","fingerprint":"aa:bb","ledger":"l1","machine":"m1","adopted_at":"2026-11-30T18:00:00.000000Z"}` + "\n"
	if g.raw != want {
		t.Errorf("got  %s\nwant %s", g.raw, want)
	}
	if r := a.adopted[0]; r.Reason != "It was there." || r.Replaces != "" || !strings.HasPrefix(r.By, "uid ") {
		t.Errorf("adopted %+v", r)
	}
	a.post(t, "/v1/operator/adopt", `{"target":"web1","replaces":"web0","instance":"`+instanceA+`","reason":"renamed"}`)
	if r := a.adopted[1]; r.Replaces != "web0" {
		t.Errorf("adopted %+v", r)
	}
	g = a.post(t, "/v1/operator/token_create", `{"scope":"status","name":"odoo"}`)
	text, _ := g.body["token"].(string)
	if id, ok := token.IDOf(text); !ok || id != g.body["id"] || g.body["scope"] != "status" || g.body["name"] != "odoo" {
		t.Errorf("created %s", g.raw)
	}
	if strings.Contains(a.log.String(), text) {
		t.Error("the token is in the log")
	}
}

func TestTokenText(t *testing.T) {
	zero := strings.NewReader(strings.Repeat("\x00", 38))
	text, tok, hash, err := token.New(zero, token.Status)
	if err != nil {
		t.Fatal(err)
	}
	want := "odf_000000000000_" + strings.Repeat("0", 64)
	if text != want || tok.ID != "000000000000" || tok.Scope != token.Status || hash != token.HashOf(want) {
		t.Errorf("text %s, token %+v", text, tok)
	}
	if _, _, _, err := token.New(strings.NewReader("short"), token.Status); err == nil {
		t.Error("a token was made without enough random bytes")
	}
	if _, _, _, err := token.New(strings.NewReader(strings.Repeat("x", 38)), "root"); err == nil {
		t.Error("a token was made for a scope that doesn't exist")
	}
	for _, bad := range []string{"", "odf_", want[:80], want + "0", "ODF" + want[3:], strings.Replace(want, "_0", "-0", 1), want[:20] + "G" + want[21:]} {
		if _, ok := token.IDOf(bad); ok {
			t.Errorf("%q has an id", bad)
		}
	}
	if token.Scope("").Includes("") || token.Custom.Includes("root") || token.Scope("root").Includes(token.Validate) {
		t.Error("what isn't a scope includes or is included")
	}
}
