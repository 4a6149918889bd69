package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

func bare() *httpapi.Server {
	return httpapi.New(httpapi.Config{Service: &service{}, Now: realNow, OwnUID: uint32(os.Getuid())})
}

// The folder is the authorisation: 0750 when made, and nothing laxer is taken.
func TestSocketFolder(t *testing.T) {
	old := syscall.Umask(0o077) // the mode asked for must not depend on it
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "run")
	l, err := bare().ListenUnix(t.Context(), filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	folder, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	sock, err := os.Stat(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	if folder.Mode().Perm() != 0o750 || sock.Mode().Perm() != 0o660 {
		t.Errorf("folder %04o, socket %04o; want 0750 and 0660", folder.Mode().Perm(), sock.Mode().Perm())
	}
	for mode, ok := range map[os.FileMode]bool{
		0o750: true, 0o700: true, 0o710: true, 0o755: false, 0o770: false, 0o751: false, 0o777: false, 0o1777: false,
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := bare().ListenUnix(t.Context(), filepath.Join(dir, "s"))
		if err == nil {
			_ = l.Close()
		}
		if ok != (err == nil) || err != nil && problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestSocketPathsThatAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	linkedDir := filepath.Join(filepath.Dir(dir), "linked")
	if err := os.Symlink(dir, linkedDir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, filepath.Join(linkedDir, "s"), filepath.Join(file, "s"), "relative/s", filepath.Join(dir, "no", "such", "s")} {
		if l, err := bare().ListenUnix(t.Context(), path); err == nil {
			_ = l.Close()
			t.Errorf("%s was taken", path)
		} else if problem.CodeOf(err) != problem.BadConfig {
			t.Errorf("%s: %v", path, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file is now %q, %v", content, err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if l, err := bare().ListenUnix(t.Context(), filepath.Join(dir, "s")); err == nil {
			_ = l.Close()
			t.Error("a stranger's folder was taken")
		}
	}
}

// A stale socket is replaced, one with a listener isn't.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s")
	first, err := bare().ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := bare().ListenUnix(t.Context(), path); err == nil {
		_ = l.Close()
		t.Error("two listen on one path")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first one's socket is gone: %v", err)
	}
	_ = first.Close()
	// What a process leaves that was killed: a socket that nobody listens on.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := bare().ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatalf("a stale socket is in the way: %v", err)
	}
	_ = l.Close()
}

func TestTLSVersions(t *testing.T) {
	a := newAPI(t, nil)
	address := strings.TrimPrefix(a.url, "https://")
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		d := tls.Dialer{Config: &tls.Config{RootCAs: a.roots, MinVersion: version, MaxVersion: version}}
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if ok != (err == nil) {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), `"ok"`) {
		t.Errorf("plain HTTP was answered: %s", answer)
	}
}

// A certificate that is renewed on disk is taken up, a broken one isn't.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certificate, key, _ := writePair(t, dir)
	server := bare()
	l, err := server.ListenTLS(t.Context(), "127.0.0.1:0", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx, l) }()
	serial := func() string {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if err := os.WriteFile(certificate, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := realNow().Add(time.Hour)
	if err := os.Chtimes(certificate, later, later); err != nil {
		t.Fatal(err)
	}
	if serial() != first {
		t.Error("a broken file changed the certificate")
	}
	writePair(t, dir)
	later = later.Add(time.Hour)
	if err := os.Chtimes(certificate, later, later); err != nil {
		t.Fatal(err)
	}
	if serial() == first {
		t.Error("the renewed certificate wasn't taken up")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Slow callers are cut off: while sending headers, a body, or nothing.
func TestSlowCallersAreCutOff(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) {
		c.Limits = httpapi.Limits{ReadHeader: 50 * time.Millisecond, Read: 100 * time.Millisecond, Idle: 50 * time.Millisecond}
	})
	for name, sent := range map[string]string{
		"nothing": "",
		"header":  "POST /v1/custom_start HTTP/1.1\r\nHost: x\r\nX-",
		"body":    "POST /v1/custom_start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		"idle":    "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(realNow().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%s: the connection stayed open: %v", name, err)
		}
		if name == "body" && !strings.Contains(string(answer), "400 Bad Request") {
			t.Errorf("%s: answered %q", name, answer)
		}
		_ = conn.Close()
	}
	if len(a.starts) != 0 {
		t.Error("half a call was taken")
	}
}

func TestLargeHeadersAreRefused(t *testing.T) {
	a := newAPI(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://masterd/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	response, err := a.unix.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
}

// A wait outlives the deadline for reading the call (wait_s may be 30, reading 15).
func TestWaitOutlivesTheReadDeadline(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) { c.Limits.Read = 50 * time.Millisecond })
	a.status = func(ctx context.Context, request string, _ time.Duration) (start.Answer, error) {
		timer := time.NewTimer(300 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return start.Answer{Request: request, Status: receipt.StatusSucceeded}, nil
		case <-ctx.Done():
			return start.Answer{Request: request, Status: receipt.StatusRunning}, nil
		}
	}
	if g := a.post(t, "/v1/custom_status", `{"request":"`+requestA+`","wait_s":30}`); g.status != 200 || g.body["status"] != "succeeded" {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
}

// Beyond the bound of waiting calls a call is answered at once, not refused.
func TestWaitsAreBounded(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) { c.Limits.WaitingCalls = 1 })
	waiting, release := make(chan struct{}), make(chan struct{})
	a.status = func(_ context.Context, request string, wait time.Duration) (start.Answer, error) {
		if wait > 0 {
			close(waiting)
			<-release
		}
		return start.Answer{Request: request, Status: receipt.StatusRunning, PollAfter: time.Second}, nil
	}
	first := make(chan got, 1)
	go func() { first <- a.post(t, "/v1/custom_status", `{"request":"`+requestA+`","wait_s":30}`) }()
	<-waiting
	if g := a.post(t, "/v1/custom_status", `{"request":"`+requestA+`","wait_s":30}`); g.status != 200 || g.body["poll_after_s"] != 1.0 {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
	if a.statuses[1] != 0 {
		t.Errorf("the second call was to wait %v", a.statuses[1])
	}
	close(release)
	<-first
}

// At the end waiting calls answer with what is known, without an error.
func TestEndAnswersWaitingCalls(t *testing.T) {
	a := newAPI(t, nil)
	waiting := make(chan struct{})
	a.status = func(ctx context.Context, request string, wait time.Duration) (start.Answer, error) {
		if wait > 0 {
			close(waiting)
			<-ctx.Done()
			return start.Answer{}, ctx.Err()
		}
		return start.Answer{Request: request, Status: receipt.StatusRunning}, nil
	}
	answered := make(chan got, 1)
	go func() { answered <- a.post(t, "/v1/custom_status", `{"request":"`+requestA+`","wait_s":30}`) }()
	<-waiting
	a.stop()
	if g := <-answered; g.status != 200 || g.body["status"] != "running" {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
}

// A start under way is finished when masterd is told to end.
func TestEndLetsAStartFinish(t *testing.T) {
	a := newAPI(t, nil)
	began, release := make(chan struct{}), make(chan struct{})
	a.start = func(ctx context.Context, r start.CustomRequest) (start.Answer, error) {
		close(began)
		<-release
		return start.Answer{Request: r.Request, Status: receipt.StatusQueued}, ctx.Err()
	}
	answered := make(chan got, 1)
	go func() { answered <- a.post(t, "/v1/custom_start", startBody(t, nil)) }()
	<-began
	a.stop()
	close(release)
	if g := <-answered; g.status != 200 {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
}

// Connections beyond the limit wait for a place and get one.
func TestConnectionsAreBounded(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) { c.Limits.Connections = 1 })
	hold, err := new(net.Dialer).DialContext(t.Context(), "unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	// Answered once: the connection has been accepted and has the only place.
	if _, err := io.WriteString(hold, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(hold).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	second, err := new(net.Dialer).DialContext(t.Context(), "unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if _, err := io.WriteString(second, "GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := second.SetReadDeadline(realNow().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came without a place", n)
	}
	_ = hold.Close()
	if err := second.SetReadDeadline(realNow().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(second); err != nil || !strings.Contains(string(answer), "200 OK") {
		t.Errorf("%v: %s", err, answer)
	}
}

// from gives a client and a dialler that call from one address of this host.
func (a *api) from(t *testing.T, ip string) (*http.Client, func() net.Conn) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: a.roots}, DialContext: dialer.DialContext, DisableKeepAlives: true,
	}}
	return client, func() net.Conn {
		t.Helper()
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func healthFrom(t *testing.T, a *api, client *http.Client) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func refusedConnections(t *testing.T, a *api) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://masterd/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	n, ok := send(t, a.unix, r).body["refused_connections"].(float64)
	if !ok {
		t.Fatal("the health answer doesn't count refused connections")
	}
	return int(n)
}

// One address, with idle connections beyond all places, doesn't keep another
// one waiting. Places that it gives back are given again, to itself too.
func TestOneAddressCantTakeAllPlaces(t *testing.T) {
	const opened, share = 600, 384 // of 512 places
	a := newAPI(t, func(c *httpapi.Config) {
		c.Limits = httpapi.Limits{ReadHeader: time.Minute, Read: time.Minute} // nobody is cut off meanwhile
	})
	greedy, dial := a.from(t, "127.0.0.1")
	held := make([]net.Conn, opened)
	for i := range held {
		held[i] = dial()
	}
	for i, conn := range held[share:] {
		if err := conn.SetReadDeadline(realNow().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d: %v, want it closed", share+i, err)
		}
	}
	other, _ := a.from(t, "127.0.0.2")
	if err := healthFrom(t, a, other); err != nil {
		t.Errorf("another address is kept waiting: %v", err)
	}
	if err := healthFrom(t, a, greedy); err == nil {
		t.Error("the greedy address got one more place")
	}
	if n := refusedConnections(t, a); n != opened-share+1 {
		t.Errorf("%d connections counted as refused, want %d", n, opened-share+1)
	}
	if n := strings.Count(a.log.String(), "connections are refused"); n != 1 || !strings.Contains(a.log.String(), `"127.0.0.1/32"`) {
		t.Errorf("the log tells of it %d times", n)
	}
	_ = held[0].Close()
	deadline := realNow().Add(20 * time.Second)
	for err := error(io.EOF); err != nil; err = healthFrom(t, a, greedy) {
		if realNow().After(deadline) {
			t.Fatal("a place that was given back isn't given again")
		}
	}
}

func TestListenersThatCantBe(t *testing.T) {
	dir := t.TempDir()
	certificate, key, _ := writePair(t, dir)
	if _, err := bare().ListenTLS(t.Context(), "127.0.0.1:0", key, certificate); problem.CodeOf(err) != problem.BadConfig {
		t.Errorf("swapped files: %v", err)
	}
	if _, err := bare().ListenTLS(t.Context(), "127.0.0.1:0", filepath.Join(dir, "no"), key); problem.CodeOf(err) != problem.BadConfig {
		t.Errorf("no file: %v", err)
	}
	if _, err := bare().ListenTLS(t.Context(), "256.0.0.1:0", certificate, key); problem.CodeOf(err) != problem.BadConfig {
		t.Errorf("no address: %v", err)
	}
}

func TestClient(t *testing.T) {
	a := newAPI(t, nil)
	c := httpapi.NewClient(a.socket)
	adopted, err := c.Adopt(t.Context(), "web1", instanceA, "was there")
	if err != nil || adopted.Fingerprint != "aa:bb" || adopted.AdoptedAt.IsZero() {
		t.Errorf("adopt: %+v, %v", adopted, err)
	}
	text, tok, err := c.TokenCreate(t.Context(), token.Custom, "odoo")
	if id, ok := token.IDOf(text); err != nil || !ok || id != tok.ID || tok.Name != "odoo" || tok.CreatedAt.IsZero() {
		t.Errorf("token_create: %q, %+v, %v", text, tok, err)
	}
	list, err := c.TokenList(t.Context())
	if err != nil || len(list) != 1 || list[0].Scope != token.Custom {
		t.Errorf("token_list: %+v, %v", list, err)
	}
	revoked, err := c.TokenRevoke(t.Context(), tok.ID)
	if err != nil || revoked.RevokedAt.IsZero() {
		t.Errorf("token_revoke: %+v, %v", revoked, err)
	}
	a.failWith = problem.New(problem.ExecutorSilent, "no answer").WithHint("is it up?")
	if _, err := c.TokenRevoke(t.Context(), tok.ID); problem.CodeOf(err) != problem.ExecutorSilent || problem.Outer(err).Hint != "is it up?" {
		t.Errorf("a refusal came as %v", err)
	}
	if _, err := c.Adopt(t.Context(), "*", instanceA, "x"); problem.CodeOf(err) != problem.BadField {
		t.Errorf("a bad target came as %v", err)
	}
	if _, err := c.Replace(t.Context(), "web2", "web*", instanceA, "x"); problem.CodeOf(err) != problem.BadField {
		t.Errorf("a bad old name came as %v", err)
	}
	reply, err := c.Get(t.Context(), "/v1/health")
	if err != nil || reply.Status != 200 || reply.Exit != 0 || reply.Err() != nil {
		t.Errorf("health: %+v, %v", reply, err)
	}
	a.healthy = &start.Health{Code: problem.Starting}
	if reply, err = c.Get(t.Context(), "/v1/health"); err != nil || reply.Status != 503 || reply.Exit != 7 || reply.Err() != nil {
		t.Errorf("health: %+v, %v", reply, err)
	}
	if _, err := httpapi.NewClient(filepath.Join(t.TempDir(), "none")).Get(t.Context(), "/v1/health"); problem.CodeOf(err) != problem.Unreachable {
		t.Errorf("nobody there came as %v", err)
	}
}

// What answers on the socket but isn't masterd is no answer.
func TestClientRefusesStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ok":true}`)
	})}
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	if _, err := httpapi.NewClient(path).Get(t.Context(), "/v1/health"); problem.CodeOf(err) != problem.Unreachable {
		t.Errorf("a stranger came as %v", err)
	}
}
