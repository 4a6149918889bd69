//go:build salt

package lab_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/lab"
)

// envChild makes the test binary a program that starts a lab, says where, and waits to be killed.
const envChild = "ODUFLOW_LAB_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(envChild); mode != "" {
		child(mode)
	}
	os.Exit(m.Run())
}

func child(mode string) {
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-lab-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		fmt.Println(dir)
		_, err = lab.Up(context.Background(), lab.Options{Salt: "3008", Minions: 1, Dir: dir, NoMasterd: true})
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
	os.Exit(0)
}

func upTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // a venv may have to be built
	t.Cleanup(cancel)
	return ctx
}

// users tells which of the lab's users and groups exist, so that a test can say that none was added.
func users() []string {
	var found []string
	for _, name := range []string{"salt", "oduflow"} {
		if _, err := user.Lookup(name); err == nil {
			found = append(found, name)
		}
		if _, err := user.LookupGroup(name); err == nil {
			found = append(found, "group "+name)
		}
	}
	return found
}

// othersNeedUsers tells whether a lab beside this test's keeps the users alive.
func othersNeedUsers() bool {
	claims, _ := filepath.Glob("/var/tmp/oduflow-lab-users/claim*")
	return len(claims) > 0
}

func marked(dir string) []string {
	var found []string
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		environ, _ := os.ReadFile(path)
		if bytes.Contains(environ, []byte("ODUFLOW_LAB="+dir+"\x00")) {
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
			if !bytes.Contains(status, []byte("State:\tZ")) {
				found = append(found, filepath.Dir(path))
			}
		}
	}
	return found
}

func mustBeGone(t *testing.T, dir string, usersBefore []string) {
	t.Helper()
	if left := marked(dir); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("folder %s left: %v", dir, err)
	}
	if os.Geteuid() != 0 {
		return // such a lab makes no users; those that come and go are another lab's
	}
	for _, name := range users() {
		if !slices.Contains(usersBefore, name) && !othersNeedUsers() {
			t.Errorf("left: %s", name)
		}
	}
}

func until(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	if err := lab.Poll(ctx, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("not within %s: %s", limit, what)
	}
}

// Up, what a lab offers, and Down, on the oldest and the newest line. Run by root it is the lab of
// the packages; TestUnprivileged runs it again as a user without any right.
func TestLab(t *testing.T) {
	for _, line := range []string{"3006", "3008"} {
		t.Run(line, func(t *testing.T) { upAndDown(t, line) })
	}
}

func upAndDown(t *testing.T, line string) {
	ctx := upTimeout(t)
	before := users()
	began := time.Now()
	l, err := lab.Up(ctx, lab.Options{
		Salt: line, Minions: 2, NoMasterd: true, Log: t.Output(),
		MasterConf: map[string]any{"publisher_acl": map[string]any{"nobody": []any{"test.version"}}},
		MinionConf: map[string]any{"state_events": true},
		PerMinion:  map[string]map[string]any{"minion-2": {"test": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %.1f s", time.Since(began).Seconds())
	down := false
	defer func() {
		if !down {
			_ = l.Down()
		}
	}()

	root := os.Geteuid() == 0
	master, masterd := strconv.Itoa(l.Master.UID), strconv.Itoa(l.Masterd.UID)
	if root && (l.Master.Name != "salt" || l.Masterd.Name != "oduflow" || l.Masterd.GID != l.Master.GID) {
		t.Errorf("accounts %+v %+v", l.Master, l.Masterd)
	}
	if own := strconv.Itoa(os.Geteuid()); !root && (master != own || masterd != own) {
		t.Errorf("accounts %+v %+v, and we are %s", l.Master, l.Masterd, own)
	}
	if got := uids(t, l, "master"); got != master {
		t.Errorf("salt-master runs as %s, want %s", got, master)
	}
	if got := uids(t, l, "api"); got != master {
		t.Errorf("salt-api runs as %s, want %s", got, master)
	}
	if got, want := uids(t, l, "minion-1"), strconv.Itoa(os.Geteuid()); got != want {
		t.Errorf("a minion runs as %s, want %s", got, want)
	}
	info, err := os.Stat(l.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	if owner := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)); owner != masterd || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %s's, %v; want %s's, 0600", owner, info.Mode().Perm(), masterd)
	}
	for id, port := range map[string]int{"publish": l.Ports.Publish, "ret": l.Ports.Ret, "api": l.Ports.API} {
		if listeners := listening(t, port); len(listeners) != 1 || listeners[0] != "0100007F" {
			t.Errorf("port %s listens on %v, want 127.0.0.1 alone", id, listeners)
		}
	}

	pings(ctx, t, l, 1)
	pings(ctx, t, l, 2)
	if out, err := l.PublishAsMasterd(ctx, "minion-1", "cmd.run", "id"); err == nil && strings.Contains(out, "uid=") {
		t.Error("masterd's login is not limited:", out)
	}
	result, err := l.Run(ctx, l.Masterd, "python", "-c",
		"import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])", filepath.Join(l.SockDir(), "master_event_pub.ipc"))
	if err != nil || result.Code != 0 {
		t.Errorf("masterd's user can't join the bus: %v %s", err, result.Stderr)
	}
	if result, err = l.SaltCall(ctx, 2, "--local", "--out=json", "config.get", "test"); err != nil || !strings.Contains(result.Stdout, "true") {
		t.Errorf("PerMinion is not in force: %v %+v", err, result)
	}
	if result, err = l.SaltRun(ctx, "--out=json", "manage.up"); err != nil || result.Code != 0 || !strings.Contains(result.Stdout, "minion-2") {
		t.Errorf("salt-run: %v %+v", err, result)
	}
	apiAnswers(ctx, t, l)
	restarts(ctx, t, l)

	// A job that leaves something behind must not outlive the lab.
	if result, err = l.Salt(ctx, "-L", "minion-1", "cmd.run", "nohup setsid sleep 1000 >/dev/null 2>&1 & echo started"); err != nil || !strings.Contains(result.Stdout, "started") {
		t.Errorf("salt: %v %+v", err, result)
	}
	began, down = time.Now(), true
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	t.Logf("down after %.1f s", time.Since(began).Seconds())
	mustBeGone(t, l.Dir, before)
	if err := l.Down(); err != nil {
		t.Error("a second Down:", err)
	}
}

func pings(ctx context.Context, t *testing.T, l *lab.Lab, i int) {
	t.Helper()
	id := "minion-" + strconv.Itoa(i)
	out, err := l.PublishAsMasterd(ctx, id, "test.ping")
	if want := fmt.Sprintf("{%q: true}", id); err != nil || out != want {
		t.Errorf("test.ping as masterd: %q, %v; want %s", out, err, want)
	}
}

func apiAnswers(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	form := url.Values{
		"client": {"runner"}, "fun": {"test.arg"}, "arg": {"hello"},
		"eauth": {"sharedsecret"}, "username": {lab.APIUser}, "password": {l.APISecret},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.APIURL()+"/run", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("hello")) {
		t.Errorf("salt-api: %s, %v: %s", response.Status, err, body)
	}
}

// restarts takes the parts away and brings them back in each way that the tests use.
func restarts(ctx context.Context, t *testing.T, l *lab.Lab) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(l.KeyFile())
	must(err)
	must(l.KillMaster())
	if left := l.Processes("master"); len(left) > 0 {
		t.Errorf("after KillMaster: %v", left)
	}
	must(l.StartMaster(ctx))
	if now, err := os.ReadFile(l.KeyFile()); err != nil || bytes.Equal(now, old) {
		t.Errorf("the key was not made anew: %v", err)
	}
	must(l.AwaitMinion(ctx, 1))
	must(l.StopMinion(ctx, 1))
	if left := l.Processes("minion-1"); len(left) > 0 {
		t.Errorf("after StopMinion: %v", left)
	}
	if err := l.StartMinion(ctx, 2); err == nil {
		t.Error("a minion that runs was started again")
	}
	must(l.StartMinion(ctx, 1))
	must(l.KillMinion(1))
	must(l.StartMinion(ctx, 1))
	pings(ctx, t, l, 1)
	must(l.PauseMinion(1))
	for _, p := range l.Processes("minion-1") {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID)); !bytes.Contains(status, []byte("State:\tT")) {
			t.Errorf("process %d of a paused minion is not stopped", p.PID)
		}
	}
	must(l.ResumeMinion(1))
	pings(ctx, t, l, 1)
	must(l.StopMaster(ctx))
	must(l.StartMaster(ctx))
	must(l.AwaitMinion(ctx, 2))
}

// uids lists the distinct effective users of a part's processes.
func uids(t *testing.T, l *lab.Lab, part string) string {
	t.Helper()
	var distinct []string
	for _, p := range l.Processes(part) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		_, rest, _ := strings.Cut(string(status), "\nUid:\t")
		fields := strings.Fields(rest)
		if len(fields) > 1 && !strings.Contains(" "+strings.Join(distinct, " ")+" ", " "+fields[1]+" ") {
			distinct = append(distinct, fields[1])
		}
	}
	return strings.Join(distinct, " ")
}

// listening gives the addresses, in /proc's hexadecimal, on which the port listens.
func listening(t *testing.T, port int) []string {
	t.Helper()
	var found []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		rows, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for _, row := range strings.Split(string(rows), "\n") {
			fields := strings.Fields(row)
			if len(fields) > 3 && fields[3] == "0A" {
				if address, hexPort, _ := strings.Cut(fields[1], ":"); hexPort == fmt.Sprintf("%04X", port) {
					found = append(found, address)
				}
			}
		}
	}
	return found
}

// The same as a user without any right, which root makes for this test.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestLab ran unprivileged already")
	}
	const name = "oduflow-lab-test"
	if out, err := exec.CommandContext(t.Context(), "useradd", "--system", "--no-create-home", "--shell", "/bin/sh", name).CombinedOutput(); err != nil {
		t.Fatalf("useradd: %v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("userdel", name).CombinedOutput(); err != nil {
			t.Errorf("userdel: %v: %s", err, out)
		}
	}()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)

	// go test builds into a folder of root's; the user needs a copy that it can reach.
	dir, err := os.MkdirTemp("/var/tmp", "oduflow-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "lab.test")
	body, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(upTimeout(t), binary, "-test.v", "-test.run=^(TestLab|TestKilledParentLeavesNothing)$")
	cmd.Env = append(os.Environ(), "HOME="+dir, "USER="+name, "LOGNAME="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	t.Logf("as %s:\n%s", name, out)
	if err != nil {
		t.Error(err)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestLab/3006")) || !bytes.Contains(out, []byte("--- PASS: TestLab/3008")) {
		t.Error("the unprivileged run did not pass both lines")
	}
}

// A process that is killed while its lab starts, and one whose lab is up.
func TestKilledParentLeavesNothing(t *testing.T) {
	for _, mode := range []string{"starting", "up"} {
		t.Run(mode, func(t *testing.T) {
			before := users()
			ctx := upTimeout(t)
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = append(os.Environ(), envChild+"="+mode)
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			lines.Scan()
			dir := lines.Text()
			if !strings.HasPrefix(dir, "/var/tmp/oduflow-lab-") {
				t.Fatalf("the child said %q", dir)
			}
			if mode == "up" {
				if lines.Scan(); lines.Text() != "up" {
					t.Fatalf("the child said %q", lines.Text())
				}
			} else {
				until(t, time.Minute, "a process of the lab", func() bool { return len(marked(dir)) >= 3 })
			}
			if len(marked(dir)) < 3 {
				t.Fatal("the marker does not find the lab's processes")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			until(t, 30*time.Second, "folder gone", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
			mustBeGone(t, dir, before)
		})
	}
}

// Two labs at once share nothing but the users, which stay until the last one is down. The first is
// left running and found again, as `lab up` and `lab down` do.
func TestTwoLabsAtOnce(t *testing.T) {
	before := users()
	ctx := upTimeout(t)
	type outcome struct {
		l   *lab.Lab
		err error
	}
	results := make(chan outcome, 2)
	for range 2 {
		go func() {
			l, err := lab.Up(ctx, lab.Options{Salt: "3008", Minions: 1, NoMasterd: true, NoAPI: true})
			results <- outcome{l, err}
		}()
	}
	var labs []*lab.Lab
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		defer func() { _ = r.l.Down() }()
		labs = append(labs, r.l)
	}
	if t.Failed() {
		return
	}
	pings(ctx, t, labs[0], 1)
	pings(ctx, t, labs[1], 1)
	labs[0].Detach()
	again, err := lab.Attach(labs[0].Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.StopMinion(ctx, 1); err != nil {
		t.Error("stop after Attach:", err)
	}
	if err := again.StartMinion(ctx, 1); err != nil {
		t.Error("start after Attach:", err)
	}
	pings(ctx, t, again, 1)
	if err := again.Down(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(labs[0].Dir); !os.IsNotExist(err) {
		t.Error("the first lab's folder is still there")
	}
	pings(ctx, t, labs[1], 1)
	if err := labs[1].Down(); err != nil {
		t.Error(err)
	}
	mustBeGone(t, labs[1].Dir, before)
}

// A lab that can't start says why and leaves nothing.
func TestFailedUp(t *testing.T) {
	before := users()
	ctx := upTimeout(t)
	_, err := lab.Up(ctx, lab.Options{Salt: "3008", Minions: 1, NoMasterd: true, NoAPI: true,
		MasterConf: map[string]any{"interface": "192.0.2.1"}}) // no address of this machine
	if err == nil {
		t.Fatal("a master without its address got ready")
	}
	if !strings.Contains(err.Error(), "/log/master") {
		t.Errorf("the error doesn't show the master's log: %v", err)
	}
	_, dir, _ := strings.Cut(err.Error(), "start lab ")
	dir, _, _ = strings.Cut(dir, " ")
	mustBeGone(t, dir, before)
}
